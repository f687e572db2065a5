//! Cluster membership without a store.
#![forbid(unsafe_code)]
#![deny(missing_docs)]

pub mod protocol;
pub mod state;
