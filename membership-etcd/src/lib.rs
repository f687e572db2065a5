//! The membership table in etcd.
//!
//! A cluster is a handful of keys below one prefix: the version row, its recent commits, and a row
//! and a heartbeat per silo. A commit is one transaction that compares the version row, so two
//! silos never both succeed on one version; a commit that fails gets the table in the same answer.
//! Start at [`EtcdTable`].
//!
//! ```no_run
//! use membership_core::{ClusterKey, InitializeRequest, MembershipTable, SharedSettings, TableId};
//! use membership_etcd::{EtcdConfig, EtcdTable};
//!
//! # async fn example(random: u128) -> Result<(), Box<dyn std::error::Error>> {
//! let config = EtcdConfig::from_url("etcd://etcd-0:2379,etcd-1:2379,etcd-2:2379")?;
//! let table = EtcdTable::connect(config, "billing/blue".parse()?).await?;
//! // A silo does this when it starts; a second call changes nothing.
//! let cluster_key = ClusterKey::new([9; 32]); // random
//! let request = InitializeRequest::new(TableId::new(random), SharedSettings::default(), cluster_key);
//! table.initialize(&request).await?;
//! # Ok(()) }
//! ```
//!
//! Set-up, permissions, layout, limits and consistency are in the crate's `README.md`.
//!
//! The files have the names that they have in every provider; two are this store's own: `wire` (the
//! requests and answers of the JSON gateway) and `login` (a user's token).
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
mod login;
mod read;
mod table;
mod wire;

pub use config::EtcdConfig;
pub use table::{EtcdTable, provider};

/// The name of this store in errors, logs and metrics.
pub(crate) const STORE: &str = "etcd";

/// The code in the document compiles.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Package;
