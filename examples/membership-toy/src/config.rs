//! Where the toy store is, and how long to wait for it.

use std::fmt;
use std::time::Duration;

use membership_core::{ConnectionString, TableError, TableErrorKind};

use crate::STORE;
use crate::error::error;

/// Where the store listens unless the connection string says otherwise.
const DEFAULT_PORT: u16 = 7007;

/// How to connect to a toy store.
#[derive(Clone)]
pub struct ToyConfig {
    pub(crate) address: String,
    pub(crate) password: Option<String>,
    pub(crate) timeout: Duration,
}

impl ToyConfig {
    /// What a connection string says: `toy://[:password@]host[:port]`, with the option `operation_timeout` (such as `3s`). The time-out
    /// is 5 s unless that or [`timeout`](Self::timeout) says otherwise.
    ///
    /// # Errors
    /// `Configuration`; the string is not repeated, because it may hold a password.
    pub fn from_url(url: &str) -> Result<Self, TableError> {
        let parts = ConnectionString::parse(STORE, &["toy"], url)?;
        let addresses = parts.addresses(DEFAULT_PORT);
        let [address] = addresses.as_slice() else {
            return Err(error(
                TableErrorKind::Configuration,
                "one host is named: `toy://host:port`",
            ));
        };
        let mut config = Self {
            address: address.clone(),
            password: parts.password,
            timeout: Duration::from_secs(5),
        };
        for option in &parts.options {
            match option.name() {
                "operation_timeout" => config.timeout = option.duration()?,
                _ => return Err(option.unknown("operation_timeout")),
            }
        }
        Ok(config)
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
        f.debug_struct("ToyConfig")
            .field("address", &self.address)
            .field("timeout", &self.timeout)
            .finish_non_exhaustive()
    }
}
