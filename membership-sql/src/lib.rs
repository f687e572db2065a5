//! The membership table in a SQL database.
//!
//! Today that is SQLite (feature `sqlite`, on by default): one file on a local disk, shared by every process of one machine, with nothing
//! to install. It is what the project's own program and demos use when no store is named. Start at `SqliteTable`.
//!
//! Set-up, permissions, layout and limits are in the crate's `README.md`.
#![forbid(unsafe_code)]
#![deny(missing_docs)]

#[cfg(feature = "sqlite")]
mod sqlite;

#[cfg(feature = "sqlite")]
pub use sqlite::{SqliteConfig, SqliteTable};

/// The code in the document compiles.
#[cfg(all(doctest, feature = "sqlite"))]
#[doc = include_str!("../README.md")]
struct Package;
