//! The membership table in a SQLite file.
//!
//! * `config`, `path`: which file, and whether it may be used. `client`: what all clones share.
//!   `error`.
//! * `worker`, `timer`: the thread, its queue and its deadlines; it also polls the version for
//!   hints.
//! * `session`, `schema`, `codec`: the open file, its tables and its columns.
//! * `read`, `commit`, `heartbeat`, `admin`: the operations, blocking. `table`, `baseline`: the
//!   contract.

mod admin;
mod baseline;
mod client;
mod codec;
mod commit;
mod config;
mod error;
mod heartbeat;
mod path;
mod read;
mod schema;
mod session;
mod table;
mod timer;
mod worker;

pub use config::SqliteConfig;
pub use table::{SqliteTable, provider};

/// The name of this store in errors, logs and metrics.
pub(crate) const STORE: &str = "sqlite";
