//! Where the toy store is, and how long to wait for it.

use membership_core::{ConnectionString, TableError};
use membership_provider::{Endpoint, Secret, Timeouts};

use crate::STORE;

/// The schemes of its connection strings.
pub(crate) const SCHEMES: &[&str] = &["toy"];
/// Where the store listens unless the connection string says otherwise.
const DEFAULT_PORT: u16 = 7007;

/// How to connect to a toy store. `Debug` hides the password (clause T15).
#[derive(Clone, Debug)]
pub struct ToyConfig {
    pub(crate) server: Endpoint,
    pub(crate) password: Option<Secret>,
    pub(crate) timeouts: Timeouts,
}

impl ToyConfig {
    /// What a connection string says: `toy://[:password@]host[:port]`, with the option
    /// `operation_timeout` (such as `3s`). Without that option the timeout is that of [`Timeouts`].
    ///
    /// # Errors
    /// `Configuration`; the string is not repeated, because it may hold a password.
    pub fn from_url(url: &str) -> Result<Self, TableError> {
        let url = ConnectionString::parse(STORE, SCHEMES, url)?;
        Ok(Self {
            server: Endpoint::single(STORE, &url, DEFAULT_PORT)?,
            timeouts: Timeouts::of_operations(STORE, &url.options)?,
            password: url.password.map(Secret::from),
        })
    }
}
