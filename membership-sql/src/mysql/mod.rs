//! The membership table in MySQL or MariaDB.
//!
//! * `config`: options and URLs. `client`: the two connections and what all clones share.
//!   `connection`, `server`, `checks`: one connection, and checks of the server and the tables.
//!   `error`.
//! * `keys`, `schema`, `sql`, `procedure`: names, tables, statements, the optional procedure.
//!   `codec`, `columns`: answers.
//! * `read`, `commit`, `heartbeat`, `admin`: the operations. `table`, `baseline`: the contract.
//!
//! Every statement is text, and every value in it is a hexadecimal literal, which no character set,
//! no `sql_mode` and no proxy can change.

mod admin;
mod baseline;
mod checks;
mod client;
mod codec;
mod columns;
mod commit;
mod config;
mod connection;
mod error;
mod heartbeat;
mod keys;
mod procedure;
mod read;
mod schema;
mod server;
mod sql;
mod table;

pub use config::{MysqlConfig, MysqlProcedure, MysqlSslMode};
pub use table::{MysqlTable, provider};

/// The name of this store in errors, logs and metrics.
pub(crate) const STORE: &str = "mysql";
