//! The membership table in NATS JetStream: one document per cluster in a key-value bucket, and a key
//! per heartbeat beside it.
//!
//! ```no_run
//! use membership_provider::Provider;
//!
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! let url = "nats://127.0.0.1:4222?sync=always";
//! let table = membership_nats::provider().connect(url, "billing/blue".parse()?).await?;
//! # let _ = table; Ok(()) }
//! ```
//!
//! Set-up, permissions, layout and limits are in the crate's `README.md`.
#![forbid(unsafe_code)]
#![deny(missing_docs)]

mod admin;
mod cells;
mod client;
mod commit;
mod config;
mod confirm;
mod error;
mod heartbeat;
mod keys;
mod read;
mod table;

pub use config::NatsConfig;
pub use table::{NatsDocuments, connect, provider};

/// The code in the README compiles.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

/// The name of this store in errors, logs and metrics.
pub(crate) const STORE: &str = "nats";
