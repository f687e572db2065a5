//! The membership table in etcd.
//!
//! A cluster is a handful of keys below one prefix: the version row, the commits it remembers, a row and a heartbeat per silo. A commit is
//! one transaction that compares the version row, so that two silos never both succeed on one version; whoever fails is given the table in
//! the same answer. Start at [`EtcdTable`].
//!
//! ```no_run
//! use membership_core::{InitializeRequest, MembershipTable, SharedSettings, TableId};
//! use membership_etcd::{EtcdConfig, EtcdTable};
//!
//! # async fn example(random: u128) -> Result<(), Box<dyn std::error::Error>> {
//! let config = EtcdConfig::from_url("etcd://etcd-0:2379,etcd-1:2379,etcd-2:2379")?;
//! let table = EtcdTable::connect(config, "billing/blue".parse()?).await?;
//! // A silo does this by itself when it starts; doing it again changes nothing.
//! table.initialize(&InitializeRequest { table_id: TableId::new(random), settings: SharedSettings::default() }).await?;
//! # Ok(()) }
//! ```
//!
//! Set-up, permissions, layout, limits and consistency are in the crate's `README.md`.
//!
//! * `config`, `url`: which members, and how to use them.
//! * `wire`: what the JSON gateway takes and gives. `error`: what it means when it refuses. `login`, `link`: one request, to one member
//!   after the other.
//! * `keys`, `codec`: keys and values of etcd ⇄ version rows, rows and heartbeats.
//! * `table`, `commit`, `hints`, `yardstick`: the contract.
#![forbid(unsafe_code)]
#![deny(missing_docs)]

mod beat;
mod codec;
mod commit;
mod config;
mod error;
mod hints;
mod keys;
mod link;
mod login;
mod table;
mod url;
mod wire;
mod yardstick;

pub use config::EtcdConfig;
pub use table::EtcdTable;

/// The name of this store in errors, logs and metrics.
pub(crate) const STORE: &str = "etcd";

/// The code in the document compiles.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Package;
