//! Where the toy store is, and how long to wait for it.

use std::fmt;
use std::time::Duration;

use membership_core::{TableError, TableErrorKind};

use crate::error::error;

/// How to connect to a toy store.
#[derive(Clone)]
pub struct ToyConfig {
    pub(crate) address: String,
    pub(crate) password: Option<String>,
    pub(crate) timeout: Duration,
}

impl ToyConfig {
    /// What a connection string says: `toy://[:password@]host:port`. The time-out is 5 s unless [`timeout`](Self::timeout) says
    /// otherwise.
    ///
    /// # Errors
    /// `Configuration`; the string is not repeated, because it may hold a password.
    pub fn from_url(url: &str) -> Result<Self, TableError> {
        let wrong = || error(TableErrorKind::Configuration, "a connection string is `toy://[:password@]host:port`");
        let rest = url.strip_prefix("toy://").ok_or_else(wrong)?;
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
impl fmt::Debug for ToyConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ToyConfig").field("address", &self.address).field("timeout", &self.timeout).finish_non_exhaustive()
    }
}
