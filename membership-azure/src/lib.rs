//! The membership table in Azure Table storage.
//!
//! A cluster is one partition. A commit is one entity group transaction on the condition of the
//! version row's ETag, so that two silos never both succeed on one version. Start at
//! [`AzureTable`].
//!
//! ```no_run
//! use membership_azure::{AzureTable, AzureTableConfig};
//! use membership_core::{ClusterKey, InitializeRequest, MembershipTable, SharedSettings, TableId};
//!
//! # async fn example(random: u128) -> Result<(), Box<dyn std::error::Error>> {
//! let config = AzureTableConfig::from_url("azure-table://contoso/membership?credential=managed")?;
//! let table = AzureTable::connect(config, "billing/blue".parse()?).await?;
//! // A silo does this when it starts; doing it again changes nothing.
//! let (table_id, settings) = (TableId::new(random), SharedSettings::default());
//! let cluster_key = ClusterKey::new([9; 32]); // random
//! table.initialize(&InitializeRequest::new(table_id, settings, cluster_key)).await?;
//! # Ok(()) }
//! ```
//!
//! Set-up, permissions, layout, limits and consistency are in the crate's `README.md`.
//!
//! * `config`, `auth`: the options and the credentials. `client`, `requests`, `batch`, `error`:
//!   requests, transactions as HTTP carries them, errors.
//! * `keys`, `codec`: names and entities ⇄ version rows, rows and heartbeats. `fence`: one snapshot
//!   out of pages of different moments.
//! * `read`, `commit`, `heartbeat`, `admin`: the operations. `table`, `baseline`: the contract.
#![forbid(unsafe_code)]
#![deny(missing_docs)]

mod admin;
mod auth;
mod baseline;
mod batch;
mod client;
mod codec;
mod commit;
mod config;
mod error;
mod fence;
mod heartbeat;
mod keys;
mod read;
mod requests;
mod table;

pub use auth::Identity;
pub use config::AzureTableConfig;
pub use table::{AzureTable, provider};

/// The name of this store in errors, logs and metrics.
pub(crate) const STORE: &str = "azure-table";

/// The code in the README compiles.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Package;
