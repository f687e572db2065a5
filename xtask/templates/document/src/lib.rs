//! The membership table in {{Title}}: one document per cluster.
//!
//! ```no_run
//! use membership_provider::Provider;
//!
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! let url = "{{name}}://127.0.0.1:{{port}}";
//! let table = membership_{{ident}}::provider().connect(url, "billing/blue".parse()?).await?;
//! # let _ = table; Ok(()) }
//! ```
//!
//! Set-up, permissions, layout and limits are in the crate's `README.md`.
#![forbid(unsafe_code)]
#![deny(missing_docs)]

mod config;
mod error;
mod table;

pub use config::{{Title}}Config;
pub use table::{{{Title}}Documents, connect, provider};

/// The name of this store in errors, logs and metrics.
pub(crate) const STORE: &str = "{{name}}";
