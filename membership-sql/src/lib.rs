//! The membership table in a SQL database.
//!
//! Today that is SQLite (feature `sqlite`, on by default): one file on a local disk, shared by every process of one machine, with nothing
//! to install. It is what the project's own program and demos use when no store is named. Start at `SqliteTable`.
//!
//! ```
//! use membership_core::{InitializeRequest, MembershipTable, ReadAnswer, ReadRequest, SharedSettings, TableId};
//! use membership_sql::{SqliteConfig, SqliteTable};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let folder = tempfile::tempdir()?;
//! let table = SqliteTable::open(SqliteConfig::new(folder.path().join("members.db")), "billing/blue".parse()?).await?;
//! // A silo does this by itself when it starts; doing it again changes nothing.
//! table.initialize(&InitializeRequest { table_id: TableId::new(1), settings: SharedSettings::default() }).await?;
//! let ReadAnswer::Snapshot { snapshot, .. } = table.read(&ReadRequest::all()).await? else { unreachable!() };
//! assert_eq!((snapshot.version(), snapshot.rows.len()), (0, 0));
//! # Ok(()) }
//! ```
//!
//! Set-up, permissions, layout and limits are in the crate's `README.md`.
#![forbid(unsafe_code)]
#![deny(missing_docs)]

#[cfg(any(feature = "sqlite", feature = "postgres"))]
mod bell;
#[cfg(feature = "mysql")]
mod mysql;
#[cfg(feature = "postgres")]
mod postgres;
#[cfg(feature = "sqlite")]
mod sqlite;
#[cfg(any(feature = "postgres", feature = "mysql"))]
#[cfg(feature = "mysql")]
pub use mysql::{MysqlConfig, MysqlProcedure, MysqlSslMode, MysqlTable};
#[cfg(feature = "postgres")]
pub use postgres::{
    PostgresConfig, PostgresFailover, PostgresSslMode, PostgresSynchronousCommit, PostgresTable,
};
#[cfg(feature = "sqlite")]
pub use sqlite::{SqliteConfig, SqliteTable};

/// The code in the document compiles.
#[cfg(all(doctest, feature = "sqlite"))]
#[doc = include_str!("../README.md")]
struct Package;
