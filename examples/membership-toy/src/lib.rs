//! The membership table in the toy store: one document per cluster.
//!
//! ```no_run
//! use membership_provider::Provider;
//!
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! let url = "toy://127.0.0.1:7007";
//! let table = membership_toy::provider().connect(url, "billing/blue".parse()?).await?;
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
pub use table::{ToyDocuments, provider};

/// The name of this store in errors, logs and metrics.
pub(crate) const STORE: &str = "toy";
