//! The membership table in MongoDB: a replica set or a sharded cluster.
//!
//! A cluster is one document, so that a commit is one atomic update of it, which only matches the version it is based on; heartbeats
//! stand in a document of their own. Commits, heartbeats and reads take one round trip each. Start at [`MongoTable`].
//!
//! ```no_run
//! use membership_core::{InitializeRequest, MembershipTable, SharedSettings, TableId};
//! use membership_mongo::{MongoConfig, MongoTable};
//!
//! # async fn example(random: u128) -> Result<(), Box<dyn std::error::Error>> {
//! let config = MongoConfig::from_url("mongodb://a.internal,b.internal,c.internal/membership?replicaSet=rs0")?;
//! let table = MongoTable::connect(config, "billing/blue".parse()?).await?;
//! // A silo does this by itself when it starts; doing it again changes nothing.
//! table.initialize(&InitializeRequest { table_id: TableId::new(random), settings: SharedSettings::default() }).await?;
//! # Ok(()) }
//! ```
//!
//! Every write is acknowledged when a majority has it in its journal; reads are linearizable, unless the configuration asks for less.
//! Permissions, layout, limits and what a failover does are in the crate's `README.md`.
//!
//! * `config`, `url`: which servers, and how to use them.
//! * `link`, `error`: one command sent, with everything that can go wrong, and what the caller does next.
//! * `codec`, `commands`: documents and commands, without input or output.
//! * `table`, `yardstick`: the contract.
#![forbid(unsafe_code)]
#![deny(missing_docs)]

mod codec;
mod commands;
mod config;
mod error;
mod link;
mod table;
mod url;
mod yardstick;

pub use config::MongoConfig;
pub use table::MongoTable;

/// The name of this store in errors, logs and metrics.
pub(crate) const STORE: &str = "mongodb";

/// The code in the document compiles.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Package;
