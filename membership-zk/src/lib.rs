//! The membership table in Apache ZooKeeper.
//!
//! A cluster is one znode with the version row as its data, and below it a znode per silo. A commit is one `multi` that hangs on the version
//! it was based on, so that two silos never both succeed on one version. Start at [`ZkTable`].
//!
//! ```no_run
//! use membership_core::{InitializeRequest, MembershipTable, SharedSettings, TableId};
//! use membership_zk::{ZkConfig, ZkTable};
//!
//! # async fn example(random: u128) -> Result<(), Box<dyn std::error::Error>> {
//! let config = ZkConfig::from_url("zk://10.0.0.1,10.0.0.2,10.0.0.3/membership")?;
//! let table = ZkTable::connect(config, "billing/blue".parse()?).await?;
//! // A silo does this by itself when it starts; doing it again changes nothing.
//! table.initialize(&InitializeRequest { table_id: TableId::new(random), settings: SharedSettings::default() }).await?;
//! # Ok(()) }
//! ```
//!
//! Set-up, permissions, layout, limits and consistency are in the crate's `README.md`.
//!
//! * `config`, `url`: which servers, and how to use them.
//! * `link`, `diagnose`, `error`: the session, why there is none, and what can go wrong with a request.
//! * `place`, `batch`: the names of znodes; one `multi`, with its size.
//! * `gather`, `read`, `commit`, `admin`: the operations. `table`, `hints`, `yardstick`: the contract.
#![forbid(unsafe_code)]
#![deny(missing_docs)]

mod admin;
mod batch;
mod commit;
mod config;
mod diagnose;
mod error;
mod gather;
mod hints;
mod link;
mod place;
mod read;
mod table;
mod url;
mod yardstick;

pub use config::ZkConfig;
pub use table::ZkTable;

/// The name of this store in errors, logs and metrics.
pub(crate) const STORE: &str = "zookeeper";

/// The code in the document compiles.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Package;
