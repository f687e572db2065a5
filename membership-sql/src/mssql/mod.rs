//! The membership table in SQL Server or Azure SQL.
//!
//! * `config`: options and URLs. `client`: what all clones share. `connection`: one connection,
//!   its settings and its answers. `checks`: the server and the tables. `error`.
//! * `schema`, `sql`: tables and statements. `codec`: answers.
//! * `read`, `commit`, `heartbeat`, `admin`: the operations. `table`, `baseline`: the contract.
//!
//! Every operation of a running cluster is one batch, with its values as parameters; no transaction
//! stays open while the server waits for this client.

mod admin;
mod baseline;
mod checks;
mod client;
mod codec;
mod commit;
mod config;
mod connection;
mod error;
mod heartbeat;
mod read;
mod schema;
mod sql;
mod table;

pub use config::{MssqlConfig, MssqlEncryption, MssqlTokenSource};
pub use table::{MssqlTable, provider};

/// The name of this store in errors, logs and metrics.
pub(crate) const STORE: &str = "mssql";
