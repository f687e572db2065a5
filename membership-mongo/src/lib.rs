//! The membership table in MongoDB: a replica set or a sharded cluster.
//!
//! A cluster is one document, so that a commit is one atomic update that matches only the version
//! it is based on. Heartbeats are in a document of their own. A commit, a heartbeat and a read take
//! one round trip each. Start at [`MongoTable`].
//!
//! ```no_run
//! use membership_core::{ClusterKey, InitializeRequest, MembershipTable, SharedSettings, TableId};
//! use membership_mongo::{MongoConfig, MongoTable};
//!
//! # async fn example(random: u128) -> Result<(), Box<dyn std::error::Error>> {
//! let url = "mongodb://a.internal,b.internal,c.internal/membership?replicaSet=rs0";
//! let config = MongoConfig::from_url(url)?;
//! let table = MongoTable::connect(config, "billing/blue".parse()?).await?;
//! // A silo does this by itself when it starts; doing it again changes nothing.
//! let cluster_key = ClusterKey::new([9; 32]); // random
//! let request = InitializeRequest::new(TableId::new(random), SharedSettings::default(), cluster_key);
//! table.initialize(&request).await?;
//! # Ok(()) }
//! ```
//!
//! A write is acknowledged when a majority has it in its journal. Reads are linearizable unless the
//! configuration asks for less. The crate's `README.md` describes permissions, layout, limits and
//! failover.
//!
//! * `config`: options and URLs. `client`: the connection and what all clones share. `error`.
//! * `keys`, `codec`, `commands`: names, documents and commands, without input or output.
//! * `read`, `commit`, `heartbeat`, `admin`: the operations. `table`, `baseline`: the contract.
#![forbid(unsafe_code)]
#![deny(missing_docs)]
#![cfg_attr(docsrs, feature(doc_cfg))]

mod admin;
mod baseline;
mod client;
mod codec;
mod commands;
mod commit;
mod config;
mod error;
mod heartbeat;
mod keys;
mod read;
mod table;

pub use config::MongoConfig;
pub use table::{MongoTable, provider};

/// The name of this store in errors, logs and metrics.
pub(crate) const STORE: &str = "mongodb";

/// The code in the document compiles.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Package;
