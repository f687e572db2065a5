//! The membership table in Apache ZooKeeper.
//!
//! A cluster is one znode with the version row as its data and a child per silo. A commit is one
//! `multi` that requires the version it is based on, so that two commits never succeed on one
//! version. Start at [`ZkTable`].
//!
//! ```no_run
//! use membership_core::{ClusterKey, InitializeRequest, MembershipTable, SharedSettings, TableId};
//! use membership_zk::{ZkConfig, ZkTable};
//!
//! # async fn example(random: u128) -> Result<(), Box<dyn std::error::Error>> {
//! let config = ZkConfig::from_url("zk://10.0.0.1,10.0.0.2,10.0.0.3/membership")?;
//! let table = ZkTable::connect(config, "billing/blue".parse()?).await?;
//! // A silo does this by itself when it starts; doing it again changes nothing.
//! let cluster_key = ClusterKey::new([9; 32]); // random
//! let request = InitializeRequest::new(TableId::new(random), SharedSettings::default(), cluster_key);
//! table.initialize(&request).await?;
//! # Ok(()) }
//! ```
//!
//! Set-up, permissions, layout, limits and consistency are in the crate's `README.md`.
//!
//! * `config`: options and URLs. `client`: the session and what all clones share. `diagnose`,
//!   `error`.
//! * `keys`, `batch`: paths of znodes; one `multi`, with its size.
//! * `read`, `snapshot_read`, `commit`, `heartbeat`, `admin`: the operations. `table`, `hints`,
//!   `baseline`: the contract.
#![forbid(unsafe_code)]
#![deny(missing_docs)]
#![cfg_attr(docsrs, feature(doc_cfg))]

mod admin;
mod baseline;
mod batch;
mod client;
mod commit;
mod config;
mod diagnose;
mod error;
mod heartbeat;
mod hints;
mod keys;
mod read;
mod snapshot_read;
mod table;

pub use config::ZkConfig;
pub use table::{ZkTable, provider};

/// The name of this store in errors, logs and metrics.
pub(crate) const STORE: &str = "zookeeper";

/// The code in the document compiles.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Package;
