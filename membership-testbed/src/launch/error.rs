//! Why a server does not run.

use std::io;
use std::path::PathBuf;

use super::options::How;
use crate::kind::Kind;

/// Why a server could not be started or controlled.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LaunchError {
    /// The server cannot be had; the text says which package is missing and what to do.
    #[error("{0}")]
    Install(String),
    /// The server is not the suite's own, so that nobody here may stop, pause or configure it.
    #[error(
        "{kind} was named by {variable}: {what} needs a server that the suite starts by itself"
    )]
    External {
        /// Which server.
        kind: Kind,
        /// The environment variable that names it.
        variable: &'static str,
        /// What was wanted.
        what: &'static str,
    },
    /// The server ended, or did not answer in time.
    #[error("{kind} did not come up: {why}{}", tail(.log))]
    Start {
        /// Which server.
        kind: Kind,
        /// What happened.
        why: String,
        /// The last lines of what it said.
        log: String,
    },
    /// The way in which the server runs does not offer this.
    #[error("{kind} as a {how} offers no {what}")]
    Unsupported {
        /// Which server.
        kind: Kind,
        /// In which way it runs.
        how: How,
        /// What was wanted.
        what: &'static str,
    },
    /// The launcher itself is broken.
    #[error("no {how} can be started: {why}")]
    Unavailable {
        /// In which way it was to run.
        how: How,
        /// What went wrong.
        why: String,
    },
    /// The address in an environment variable cannot be used.
    #[error(
        "{variable} holds no usable address: {why}. Give it as scheme://user:password@host:port/…"
    )]
    Address {
        /// Which variable.
        variable: &'static str,
        /// What is wrong.
        why: String,
    },
    /// The machine refused something.
    #[error("{what} {}: {source}", path.display())]
    Io {
        /// What was tried.
        what: &'static str,
        /// With which file or folder.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
}

fn tail(log: &str) -> String {
    if log.is_empty() {
        String::new()
    } else {
        format!(". The last it said:\n{log}")
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
