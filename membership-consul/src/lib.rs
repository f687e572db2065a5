//! The membership table in Consul's key-value store.
//!
//! A cluster is one folder of keys: its version row, and a folder with a row and a heartbeat per silo. A commit is one transaction that
//! takes the mark of the version it is based on away and sets that of the next one, so that two silos never both succeed on one version.
//! Start at [`ConsulTable`].
//!
//! ```no_run
//! use membership_consul::{ConsulConfig, ConsulTable};
//! use membership_core::{InitializeRequest, MembershipTable, SharedSettings, TableId};
//!
//! # async fn example(random: u128) -> Result<(), Box<dyn std::error::Error>> {
//! let config = ConsulConfig::from_url("consul://127.0.0.1:8500/membership")?;
//! let table = ConsulTable::connect(config, "billing/blue".parse()?).await?;
//! // A silo does this by itself when it starts; doing it again changes nothing.
//! table.initialize(&InitializeRequest { table_id: TableId::new(random), settings: SharedSettings::default() }).await?;
//! # Ok(()) }
//! ```
//!
//! Set-up, permissions, layout, limits and consistency are in the crate's `README.md`.
//!
//! * `config`: which servers, and how to use them. `link`, `error`: one request, and what can go wrong with it.
//! * `keys`, `codec`: keys and values of Consul ⇄ version rows, rows and heartbeats. `txn`: transactions.
//! * `read`, `commit`, `beat`, `admin`: the operations. `table`, `hints`, `yardstick`: the contract.
#![forbid(unsafe_code)]
#![deny(missing_docs)]

mod admin;
mod beat;
mod codec;
mod commit;
mod config;
mod error;
mod hints;
mod keys;
mod link;
mod read;
mod table;
mod txn;
mod yardstick;

pub use config::ConsulConfig;
pub use table::ConsulTable;

/// The name of this store in errors, logs and metrics.
pub(crate) const STORE: &str = "consul";

/// The code in the document compiles.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Package;
