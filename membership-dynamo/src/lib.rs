//! The membership table in Amazon DynamoDB.
//!
//! A cluster is one partition: its version row, and a row and a heartbeat per silo. A commit is one
//! `TransactWriteItems` with conditions on the version row, so that two silos never both succeed on
//! one version. Start at [`DynamoTable`].
//!
//! ```no_run
//! use membership_core::{ClusterKey, InitializeRequest, MembershipTable, SharedSettings, TableId};
//! use membership_dynamo::{DynamoConfig, DynamoTable};
//!
//! # async fn example(random: u128) -> Result<(), Box<dyn std::error::Error>> {
//! let config = DynamoConfig::from_url("dynamodb://eu-west-1/membership")?;
//! let table = DynamoTable::connect(config, "billing/blue".parse()?).await?;
//! // A silo does this when it starts; doing it again changes nothing.
//! let (table_id, settings) = (TableId::new(random), SharedSettings::default());
//! let cluster_key = ClusterKey::new([9; 32]); // random
//! table.initialize(&InitializeRequest::new(table_id, settings, cluster_key)).await?;
//! # Ok(()) }
//! ```
//!
//! Set-up, permissions, layout, limits and consistency are in the crate's `README.md`.
//!
//! * `config`: the options. `client`, `query`, `error`: requests and their errors.
//! * `keys`, `codec`: names and items ⇄ version rows, rows and heartbeats. `fence`: whether rows
//!   that were read at different moments are as of one version.
//! * `read`, `commit`, `heartbeat`, `admin`: the operations. `table`, `baseline`: the contract.
#![forbid(unsafe_code)]
#![deny(missing_docs)]

mod admin;
mod baseline;
mod client;
mod codec;
mod commit;
mod config;
mod error;
mod fence;
mod heartbeat;
mod keys;
mod query;
mod read;
mod table;

pub use config::DynamoConfig;
pub use table::{DynamoTable, provider};

/// The name of this store in errors, logs and metrics.
pub(crate) const STORE: &str = "dynamodb";

/// The code in the README compiles.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Package;
