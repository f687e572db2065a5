//! The membership table in Redis or Valkey: a single server, a master watched by Sentinel, or Redis Cluster.
//!
//! Every operation is one Lua script and one round trip; a commit is compared and written within the server, so that two silos never
//! both succeed on one version. Start at [`RedisTable`].
//!
//! ```no_run
//! use membership_core::{InitializeRequest, MembershipTable, SharedSettings, TableId};
//! use membership_redis::{RedisConfig, RedisTable};
//!
//! # async fn example(random: u128) -> Result<(), Box<dyn std::error::Error>> {
//! let config = RedisConfig::from_url("redis://127.0.0.1:6379/0?prefix=membership")?;
//! let table = RedisTable::connect(config, "billing/blue".parse()?).await?;
//! // A silo does this by itself when it starts; doing it again changes nothing.
//! table.initialize(&InitializeRequest { table_id: TableId::new(random), settings: SharedSettings::default() }).await?;
//! # Ok(()) }
//! ```
//!
//! Redis copies to its replicas after it has answered: what a failover can lose, and what can be done about it, is in the crate's
//! `README.md`, together with permissions, layout and limits.
//!
//! * `config`, `url`: which servers, and how to use them.
//! * `place`, `dial`, `link`: where the master is, one connection to it, and one script sent over it with everything that can go wrong.
//! * `scripts`, `codec`: what runs in the server, and what its answers mean.
//! * `table`, `hints`, `yardstick`: the contract.
#![forbid(unsafe_code)]
#![deny(missing_docs)]

mod codec;
mod config;
mod dial;
mod error;
mod hints;
mod link;
mod place;
mod scripts;
mod table;
mod url;
mod yardstick;

pub use config::RedisConfig;
pub use table::RedisTable;

/// The name of this store in errors, logs and metrics.
pub(crate) const STORE: &str = "redis";

/// The code in the document compiles.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Package;
