//! The membership table in Consul's key-value store.
//!
//! A cluster is one folder of keys: its version row, and a folder with a row and a heartbeat per
//! silo. A commit is one transaction that replaces the mark of the version it is based on by the
//! mark of the next one, so two silos never both succeed on one version. Start at [`ConsulTable`].
//!
//! ```no_run
//! use membership_consul::{ConsulConfig, ConsulTable};
//! use membership_core::{ClusterKey, InitializeRequest, MembershipTable, SharedSettings, TableId};
//!
//! # async fn example(random: u128) -> Result<(), Box<dyn std::error::Error>> {
//! let config = ConsulConfig::from_url("consul://127.0.0.1:8500/membership")?;
//! let table = ConsulTable::connect(config, "billing/blue".parse()?).await?;
//! // A silo does this when it starts; a second call changes nothing.
//! let cluster_key = ClusterKey::new([9; 32]); // random
//! let request = InitializeRequest::new(TableId::new(random), SharedSettings::default(), cluster_key);
//! table.initialize(&request).await?;
//! # Ok(()) }
//! ```
//!
//! Set-up, permissions, layout, limits and consistency are in the crate's `README.md`.
//!
//! The files have the names that they have in every provider; `txn` is this store's own:
//! transactions.
#![forbid(unsafe_code)]
#![deny(missing_docs)]

mod admin;
mod baseline;
mod client;
mod codec;
mod commit;
mod config;
mod error;
mod heartbeat;
mod hints;
mod keys;
mod read;
mod table;
mod txn;

pub use config::ConsulConfig;
pub use table::{ConsulTable, provider};

/// The name of this store in errors, logs and metrics.
pub(crate) const STORE: &str = "consul";

/// The code in the document compiles.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Package;
