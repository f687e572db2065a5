//! The membership table in {{Title}}: a row per silo, changed in conditional batches.
//!
//! ```no_run
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! let table = membership_{{ident}}::open("{{name}}://127.0.0.1:{{port}}".to_owned(), "billing/blue".parse()?).await?;
//! # let _ = table; Ok(()) }
//! ```
//!
//! Set-up, permissions, layout and limits are in the crate's `README.md`.
#![forbid(unsafe_code)]
#![deny(missing_docs)]

mod codec;
mod config;
mod error;
mod table;

pub use config::{{Title}}Config;
pub use table::{{Title}}Table;

use std::pin::Pin;
use std::sync::Arc;

use membership_core::{ClusterName, MembershipTable, TableError};

/// The name of this store in errors, logs, metrics and connection strings.
pub(crate) const STORE: &str = "{{name}}";

/// What [`open`] gives.
pub type Opening = Pin<Box<dyn Future<Output = Result<Arc<dyn MembershipTable>, TableError>> + Send>>;

/// The table of a cluster. Nothing is written.
///
/// # Errors
/// What the store says. Cancel safe.
pub async fn connect(config: &{{Title}}Config, cluster: ClusterName) -> Result<Arc<dyn MembershipTable>, TableError> {
    Ok(Arc::new({{Title}}Table::open(config, cluster).await?))
}

/// The table that a connection string names: what `Connectors::register("{{name}}", membership_{{ident}}::open)` takes.
///
/// # Errors
/// `Configuration`, or those of [`connect`].
pub fn open(url: String, cluster: ClusterName) -> Opening {
    Box::pin(async move { connect(&{{Title}}Config::from_url(&url)?, cluster).await })
}
