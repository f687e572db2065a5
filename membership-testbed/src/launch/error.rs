//! Why a server does not run.

use std::io;
use std::path::PathBuf;

use super::options::How;
use crate::kind::Kind;

/// Why a server could not be started or controlled.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LaunchError {
    /// The server cannot be installed; the text names the missing package and says what to do.
    #[error("{0}")]
    Install(String),
    /// The server is external, so the launcher must not stop, pause or configure it.
    #[error(
        "{variable} names an external {kind}, but {what} needs a server that the launcher starts: unset the variable"
    )]
    External {
        /// The server.
        kind: Kind,
        /// The environment variable that names it.
        variable: &'static str,
        /// The requested operation or option.
        what: &'static str,
    },
    /// The server ended, or did not answer in time.
    #[error("{kind} did not start: {why}{}", tail(.log))]
    Start {
        /// The server.
        kind: Kind,
        /// What happened.
        why: String,
        /// The last lines of its log.
        log: String,
    },
    /// The server cannot do this in the way in which it runs.
    #[error("{kind} as a {how} offers no {what}")]
    Unsupported {
        /// The server.
        kind: Kind,
        /// The way in which it runs.
        how: How,
        /// The requested operation or option.
        what: &'static str,
    },
    /// The launcher itself failed.
    #[error("no {how} can be started: {why}")]
    Unavailable {
        /// The way in which it was to run.
        how: How,
        /// The cause.
        why: String,
    },
    /// The address in an environment variable cannot be used.
    #[error(
        "{variable} contains no usable address: {why}. Write it as scheme://user:password@host:port/…"
    )]
    Address {
        /// The variable.
        variable: &'static str,
        /// The cause.
        why: String,
    },
    /// The operating system refused an operation.
    #[error("{what} {}: {source}", path.display())]
    Io {
        /// The operation.
        what: &'static str,
        /// The file or folder.
        path: PathBuf,
        /// The error of the system.
        source: io::Error,
    },
}

fn tail(log: &str) -> String {
    if log.is_empty() {
        String::new()
    } else {
        format!(". The end of its log:\n{log}")
    }
}

impl LaunchError {
    pub(super) fn io(
        what: &'static str,
        path: impl Into<PathBuf>,
    ) -> impl FnOnce(io::Error) -> Self {
        let path = path.into();
        move |source| Self::Io { what, path, source }
    }
}
