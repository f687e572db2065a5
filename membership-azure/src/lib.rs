//! The membership table in Azure Table storage.
//!
//! A cluster is one partition; a commit is one entity group transaction, whose condition is the ETag of the version row, so that two silos never
//! both succeed on one version. Start at [`AzureTable`].
//!
//! ```no_run
//! use membership_azure::{AzureTable, AzureTableConfig};
//! use membership_core::{InitializeRequest, MembershipTable, SharedSettings, TableId};
//!
//! # async fn example(random: u128) -> Result<(), Box<dyn std::error::Error>> {
//! let config = AzureTableConfig::from_url("azure-table://contoso/membership?credential=managed")?;
//! let table = AzureTable::open(config, "billing/blue".parse()?)?;
//! // A silo does this by itself when it starts; doing it again changes nothing.
//! table.initialize(&InitializeRequest { table_id: TableId::new(random), settings: SharedSettings::default() }).await?;
//! # Ok(()) }
//! ```
//!
//! Set-up, permissions, layout, limits and what reads are worth are in the crate's `README.md`.
//!
//! * `config`, `url`, `settings`, `auth`: which table, and who asks.
//! * `link`, `batch`: one request and its answer; transactions as HTTP carries them.
//! * `entity`, `read`: what stands in the table, and snapshots out of pages.
//! * `table`, `admin`, `yardstick`: the contract.
#![forbid(unsafe_code)]
#![deny(missing_docs)]

mod admin;
mod auth;
mod batch;
mod config;
mod entity;
mod error;
mod link;
mod read;
mod settings;
mod table;
mod url;
mod yardstick;

pub use auth::Identity;
pub use config::AzureTableConfig;
pub use table::AzureTable;

/// The name of this store in errors, logs and metrics.
pub(crate) const STORE: &str = "azure-table";

/// The code in the document compiles.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Package;
