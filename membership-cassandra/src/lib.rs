//! The membership table in Apache Cassandra or ScyllaDB.
//!
//! A cluster is one partition: its version row and a row per silo. A commit is one conditional batch, a lightweight transaction whose
//! conditions hang on the version row, so that two silos never both succeed on one version. Heartbeats are plain writes to a table of their
//! own. Start at [`CassandraTable`].
//!
//! ```no_run
//! use membership_cassandra::{CassandraConfig, CassandraTable};
//! use membership_core::{InitializeRequest, MembershipTable, SharedSettings, TableId};
//!
//! # async fn example(random: u128) -> Result<(), Box<dyn std::error::Error>> {
//! let config = CassandraConfig::from_url("cassandra://10.0.0.1,10.0.0.2,10.0.0.3/membership")?;
//! let table = CassandraTable::connect(config, "billing/blue".parse()?).await?;
//! // A silo does this by itself when it starts; doing it again changes nothing.
//! table.initialize(&InitializeRequest { table_id: TableId::new(random), settings: SharedSettings::default() }).await?;
//! # Ok(()) }
//! ```
//!
//! Set-up, permissions, layout, limits and consistency are in the crate's `README.md`.
//!
//! * `config`, `dial`: which servers, how to use them, and a session with them. `link`, `error`: one request, and what can go wrong with it.
//!   `missing`: whether tables that a node does not know are gone.
//! * `schema`: keyspace and tables, and every statement. `codec`: rows of Cassandra ⇄ version rows, rows and heartbeats.
//! * `commit`, `admin`, `beats`: the operations that write. `table`, `durability`, `yardstick`: the contract.
#![forbid(unsafe_code)]
#![deny(missing_docs)]

mod admin;
mod beats;
mod codec;
mod commit;
mod config;
mod dial;
mod durability;
mod error;
mod link;
mod missing;
mod schema;
mod table;
mod yardstick;

pub use config::CassandraConfig;
pub use table::CassandraTable;

/// The name of this store in errors, logs and metrics.
pub(crate) const STORE: &str = "cassandra";

/// The code in the document compiles.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Package;
