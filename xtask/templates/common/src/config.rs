//! Where {{Title}} is, and how long to wait for it.

use std::fmt;
use std::time::Duration;

use membership_core::{TableError, TableErrorKind};

use crate::error::error;

/// How to connect to {{Title}}.
#[allow(dead_code, reason = "until the first function is written")]
#[derive(Clone)]
pub struct {{Title}}Config {
    pub(crate) address: String,
    pub(crate) password: Option<String>,
    pub(crate) timeout: Duration,
}

impl {{Title}}Config {
    /// What a connection string says: `{{name}}://[:password@]host:port`. The time-out is 5 s unless [`timeout`](Self::timeout) says
    /// otherwise.
    ///
    /// # Errors
    /// `Configuration`; the string is not repeated, because it may hold a password.
    pub fn from_url(url: &str) -> Result<Self, TableError> {
        let wrong = || error(TableErrorKind::Configuration, "a connection string is `{{name}}://[:password@]host:port`");
        let rest = url.strip_prefix("{{name}}://").ok_or_else(wrong)?;
        let (password, address) = match rest.rsplit_once('@') {
            Some((credentials, address)) => (Some(credentials.strip_prefix(':').ok_or_else(wrong)?.to_owned()), address),
            None => (None, rest),
        };
        if !address.rsplit_once(':').is_some_and(|(host, port)| !host.is_empty() && port.parse::<u16>().is_ok()) {
            return Err(wrong());
        }
        Ok(Self { address: address.to_owned(), password, timeout: Duration::from_secs(5) })
    }

    /// How long one operation may take before it ends with an error.
    #[must_use]
    pub const fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }
}

/// Without the password.
impl fmt::Debug for {{Title}}Config {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("{{Title}}Config").field("address", &self.address).field("timeout", &self.timeout).finish_non_exhaustive()
    }
}
