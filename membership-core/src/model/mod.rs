//! The data types: silos, entries, heartbeats, the version row, rows and snapshots. They are plain
//! data; no decision is made here.

pub mod address;
pub mod cluster;
pub mod cluster_key;
pub mod content_hash;
pub mod core_cell;
pub mod entry;
pub mod gateway;
pub mod ids;
pub mod info;
mod lineage;
pub(crate) mod place;
pub mod rows;
pub mod settings;
pub mod snapshot;
pub mod status;
pub(crate) mod text;
pub mod time;
pub mod version;
