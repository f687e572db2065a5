//! The membership table in PostgreSQL.
//!
//! * `config`, `tls`: which server, and how to talk to it.
//! * `table`: the contract; each operation is a task of its own, so that a future that is dropped or not polled holds nobody up.
//! * `link`: the one connection, its checks, its time-outs, and whether something was sent.
//! * `schema`, `sql`: what is in the database, and the statements; `codec`: rows of answers as rows of the contract.
//! * `read`, `commit`, `admin`: the operations. `hints`: LISTEN. `yardstick`: what the server itself costs.

mod admin;
mod codec;
mod commit;
mod config;
mod error;
mod hints;
mod link;
mod read;
mod schema;
mod sql;
mod table;
mod tls;
mod yardstick;

pub use config::{PostgresConfig, PostgresFailover, PostgresSslMode, PostgresSynchronousCommit};
pub use table::PostgresTable;

/// The name of this store in errors, logs and metrics.
pub(crate) const STORE: &str = "postgres";
