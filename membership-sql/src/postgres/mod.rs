//! The membership table in PostgreSQL.
//!
//! * `config`: options and URLs. `client`: what all clones share. `connection`, `checks`, `tls`,
//!   `error`.
//! * `keys`, `schema`, `sql`: names, tables and statements. `codec`: answers.
//! * `read`, `commit`, `heartbeat`, `admin`: the operations; `seen`: what they have shown. `table`, `hints`, `baseline`: the
//!   contract.

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
mod hints;
mod keys;
mod read;
mod schema;
mod seen;
mod sql;
mod table;
mod tls;
mod unlogged;

pub use config::{PostgresConfig, PostgresFailover, PostgresSslMode, PostgresSynchronousCommit};
pub use table::{PostgresTable, provider};

/// The name of this store in errors, logs and metrics.
pub(crate) const STORE: &str = "postgres";
