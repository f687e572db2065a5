//! The membership table in Redis or Valkey: a single server, a master watched by Sentinel, or Redis
//! Cluster.
//!
//! Every operation is one Lua script and one round trip. The server compares and writes within the
//! script, so two silos never both succeed on one version. Start at [`RedisTable`].
//!
//! ```no_run
//! use membership_core::{ClusterKey, InitializeRequest, MembershipTable, SharedSettings, TableId};
//! use membership_redis::{RedisConfig, RedisTable};
//!
//! # async fn example(random: u128) -> Result<(), Box<dyn std::error::Error>> {
//! let config = RedisConfig::from_url("redis://127.0.0.1:6379/0?prefix=membership")?;
//! let table = RedisTable::connect(config, "billing/blue".parse()?).await?;
//! // A silo does this when it starts; a second call changes nothing.
//! let cluster_key = ClusterKey::new([9; 32]); // random
//! let request = InitializeRequest::new(TableId::new(random), SharedSettings::default(), cluster_key);
//! table.initialize(&request).await?;
//! # Ok(()) }
//! ```
//!
//! Redis copies to its replicas after it has answered. What a failover can lose, and how to prevent
//! it, is in the crate's `README.md`, with permissions, layout and limits.
//!
//! The files have the names that they have in every provider; three are this store's own:
//! `scripts` (what runs in the server), `topology` (where the master is) and `connection` (one
//! connection to one server).
#![forbid(unsafe_code)]
#![deny(missing_docs)]

mod admin;
mod baseline;
mod client;
mod codec;
mod commit;
mod config;
mod connection;
mod error;
mod heartbeat;
mod hints;
mod keys;
mod read;
mod scripts;
mod table;
mod topology;

pub use config::RedisConfig;
pub use table::{RedisTable, provider};

/// The name of this store in errors, logs and metrics.
pub(crate) const STORE: &str = "redis";

/// The code in the document compiles.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Package;
