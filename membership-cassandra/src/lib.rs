//! The membership table in Apache Cassandra or ScyllaDB.
//!
//! A cluster is one partition: its version row and a row per silo. A commit is one conditional
//! batch, a lightweight transaction with conditions on the version row, so that two silos never
//! both succeed on one version. Heartbeats are plain writes to a table of their own. Start at
//! [`CassandraTable`].
//!
//! ```no_run
//! use membership_cassandra::{CassandraConfig, CassandraTable};
//! use membership_core::{ClusterKey, InitializeRequest, MembershipTable, SharedSettings, TableId};
//!
//! # async fn example(random: u128) -> Result<(), Box<dyn std::error::Error>> {
//! let config = CassandraConfig::from_url("cassandra://10.0.0.1,10.0.0.2,10.0.0.3/membership")?;
//! let table = CassandraTable::connect(config, "billing/blue".parse()?).await?;
//! // A silo does this when it starts; doing it again changes nothing.
//! let (table_id, settings) = (TableId::new(random), SharedSettings::default());
//! let cluster_key = ClusterKey::new([9; 32]); // random
//! table.initialize(&InitializeRequest::new(table_id, settings, cluster_key)).await?;
//! # Ok(()) }
//! ```
//!
//! Set-up, permissions, layout, limits and consistency are in the crate's `README.md`.
//!
//! * `config`: the options. `client`, `statements`, `execute`, `error`: the session, requests and
//!   their errors.
//! * `keys`, `codec`: names and rows of Cassandra ⇄ version rows, rows and heartbeats.
//! * `read`, `commit`, `heartbeat`, `admin`: the operations. `table`, `durability`, `baseline`: the
//!   contract.
#![forbid(unsafe_code)]
#![deny(missing_docs)]

mod admin;
mod baseline;
mod client;
mod codec;
mod commit;
mod config;
mod dial;
mod durability;
mod error;
mod execute;
mod heartbeat;
mod keys;
mod read;
mod statements;
mod table;

pub use config::CassandraConfig;
pub use table::{CassandraTable, provider};

/// The name of this store in errors, logs and metrics.
pub(crate) const STORE: &str = "cassandra";

/// The code in the README compiles.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Package;
