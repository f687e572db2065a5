//! The membership table in a SQLite file.
//!
//! * `config`, `place`: which file, and whether it may be used at all.
//! * `table`: the contract, as messages to the table's thread.
//! * `worker`, `timer`: that thread, its queue, its deadlines, and the bell it rings for hints.
//! * `session`, `schema`: the open file, its transactions, and what is in it.
//! * `read`, `commit`, `admin`: the operations, one blocking function each; `yardstick`: what benchmarks hold them against.

mod admin;
mod commit;
mod config;
mod error;
mod place;
mod read;
mod schema;
mod session;
mod table;
mod timer;
mod worker;
mod yardstick;

pub use config::SqliteConfig;
pub use table::SqliteTable;

/// The name of this store in errors, logs and metrics.
pub(crate) const STORE: &str = "sqlite";
