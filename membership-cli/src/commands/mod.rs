//! What the program can do: one file per command.

pub(crate) mod bench;
pub(crate) mod cleanup;
#[cfg(feature = "conformance")]
pub(crate) mod conformance;
pub(crate) mod delete;
pub(crate) mod demo;
pub(crate) mod doctor;
pub(crate) mod evict;
pub(crate) mod history;
pub(crate) mod schema;
pub(crate) mod settings;
pub(crate) mod silo;
mod silo_report;
pub(crate) mod status;
pub(crate) mod watch;
pub(crate) mod why;
