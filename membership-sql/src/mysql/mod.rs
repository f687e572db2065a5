//! The membership table in MySQL or MariaDB.
//!
//! * `config`: which server, and how it is used.
//! * `table`: the contract; `lane`: the two connections, their deadlines, and what happens to one that was left in the middle.
//! * `session`: a connection, what is set on it, and what is asked of the server before it is used.
//! * `schema`, `procedure`, `sql`: the tables, the optional procedure, and the texts that are sent.
//! * `read`, `commit`, `admin`: the operations.
//! * `yardstick`: what the server itself costs.
//!
//! Every statement is text, and every value in it is a hexadecimal literal: no character set, no `sql_mode` and no proxy can make
//! anything else of it.

mod admin;
mod commit;
mod config;
mod error;
mod lane;
mod procedure;
mod read;
mod schema;
mod session;
mod sql;
mod table;
mod yardstick;

pub use config::{MysqlConfig, MysqlProcedure, MysqlSslMode};
pub use table::MysqlTable;

/// The name of this store in errors, logs and metrics.
pub(crate) const STORE: &str = "mysql";
