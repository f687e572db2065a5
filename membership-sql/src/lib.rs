//! The membership table in a SQL database.
//!
//! * `SqliteTable` (feature `sqlite`, on by default): one file on a local disk, shared by all
//!   processes of a machine, without anything to install. The project's program uses it when no
//!   store is named.
//! * `PostgresTable` (feature `postgres`).
//! * `MysqlTable` (feature `mysql`): MySQL and MariaDB.
//! * `MssqlTable` (feature `mssql`): SQL Server and Azure SQL.
//!
//! ```
//! use membership_core::{
//!     ClusterKey, InitializeRequest, MembershipTable, ReadAnswer, ReadRequest, SharedSettings, TableId,
//! };
//! use membership_sql::{SqliteConfig, SqliteTable};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let folder = tempfile::tempdir()?;
//! let config = SqliteConfig::new(folder.path().join("members.db"));
//! let table = SqliteTable::connect(config, "billing/blue".parse()?).await?;
//! // A silo does this by itself when it starts; doing it again changes nothing.
//! let cluster_key = ClusterKey::new([9; 32]); // random
//! table.initialize(&InitializeRequest::new(TableId::new(1), SharedSettings::default(), cluster_key)).await?;
//! let ReadAnswer::Snapshot { snapshot, .. } = table.read(&ReadRequest::all()).await? else {
//!     unreachable!()
//! };
//! assert_eq!((snapshot.version(), snapshot.rows.len()), (0, 0));
//! # Ok(()) }
//! ```
//!
//! Set-up, permissions, layout and limits are in the crate's `README.md`.
#![forbid(unsafe_code)]
#![deny(missing_docs)]
#![cfg_attr(docsrs, feature(doc_cfg))]

#[cfg(feature = "mssql")]
mod mssql;
#[cfg(feature = "mysql")]
mod mysql;
#[cfg(feature = "postgres")]
mod postgres;
#[cfg(any(
    feature = "sqlite",
    feature = "postgres",
    feature = "mysql",
    feature = "mssql"
))]
mod shared;
#[cfg(feature = "sqlite")]
mod sqlite;

#[cfg(feature = "mssql")]
pub use mssql::{
    MssqlConfig, MssqlEncryption, MssqlTable, MssqlTokenSource, provider as mssql_provider,
};
#[cfg(feature = "mysql")]
pub use mysql::{
    MysqlConfig, MysqlProcedure, MysqlSslMode, MysqlTable, provider as mysql_provider,
};
#[cfg(feature = "postgres")]
pub use postgres::{
    PostgresConfig, PostgresFailover, PostgresSslMode, PostgresSynchronousCommit, PostgresTable,
    provider as postgres_provider,
};
#[cfg(feature = "sqlite")]
pub use sqlite::{SqliteConfig, SqliteTable, provider as sqlite_provider};

/// The code in the document compiles.
#[cfg(all(doctest, feature = "sqlite"))]
#[doc = include_str!("../README.md")]
struct Package;
