//! The membership table in the toy store: one document per cluster.
//!
//! ```no_run
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! let table = membership_toy::open("toy://127.0.0.1:7007".to_owned(), "billing/blue".parse()?).await?;
//! # let _ = table; Ok(()) }
//! ```
//!
//! Set-up, permissions, layout and limits are in the crate's `README.md`.
#![forbid(unsafe_code)]
#![deny(missing_docs)]

mod config;
mod error;
mod table;

pub use config::ToyConfig;
pub use table::ToyDocuments;

use std::pin::Pin;
use std::sync::Arc;

use membership_core::{ClusterName, DocumentTable, MembershipTable, TableError};

/// The name of this store in errors, logs, metrics and connection strings.
pub(crate) const STORE: &str = "toy";

/// What [`open`] gives.
pub type Opening =
    Pin<Box<dyn Future<Output = Result<Arc<dyn MembershipTable>, TableError>> + Send>>;

/// The table of a cluster. Nothing is written.
///
/// # Errors
/// What the store says. Cancel safe.
pub async fn connect(
    config: &ToyConfig,
    cluster: ClusterName,
) -> Result<Arc<dyn MembershipTable>, TableError> {
    let documents = ToyDocuments::open(config, &cluster).await?;
    Ok(Arc::new(DocumentTable::new(cluster, documents)))
}

/// The table that a connection string names: what `Connectors::register("toy", membership_toy::open)` takes.
///
/// # Errors
/// `Configuration`, or those of [`connect`].
pub fn open(url: String, cluster: ClusterName) -> Opening {
    Box::pin(async move { connect(&ToyConfig::from_url(&url)?, cluster).await })
}
