//! The membership table in Amazon DynamoDB.
//!
//! A cluster is one partition: its version row, a row and a heartbeat per silo. A commit is one `TransactWriteItems` whose conditions hang
//! on the version row, so that two silos never both succeed on one version. Start at [`DynamoTable`].
//!
//! ```no_run
//! use membership_core::{InitializeRequest, MembershipTable, SharedSettings, TableId};
//! use membership_dynamo::{DynamoConfig, DynamoTable};
//!
//! # async fn example(random: u128) -> Result<(), Box<dyn std::error::Error>> {
//! let config = DynamoConfig::from_url("dynamodb://eu-west-1/membership")?;
//! let table = DynamoTable::connect(config, "billing/blue".parse()?).await?;
//! // A silo does this by itself when it starts; doing it again changes nothing.
//! table.initialize(&InitializeRequest { table_id: TableId::new(random), settings: SharedSettings::default() }).await?;
//! # Ok(()) }
//! ```
//!
//! Set-up, permissions, layout, limits and consistency are in the crate's `README.md`.
//!
//! * `config`: which table, and how to use it. `link`, `error`: one request, and what can go wrong with it.
//! * `codec`: items of DynamoDB ⇄ version rows, rows and heartbeats. `fence`: whether what was read together belongs together.
//! * `read`, `commit`, `admin`: the operations. `table`, `yardstick`: the contract.
#![forbid(unsafe_code)]
#![deny(missing_docs)]

mod admin;
mod codec;
mod commit;
mod config;
mod error;
mod fence;
mod link;
mod read;
mod table;
mod yardstick;

pub use config::DynamoConfig;
pub use table::DynamoTable;

/// The name of this store in errors, logs and metrics.
pub(crate) const STORE: &str = "dynamodb";

/// The code in the document compiles.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Package;
