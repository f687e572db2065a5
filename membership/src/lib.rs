//! Cluster membership on tokio: who is in the cluster, agreed on through a small table in a storage system that you already operate.
//!
//! This crate runs the protocol of `membership-core`, whose public types it re-exports, and brings the [transport](transport) that carries
//! the silos' messages.
#![forbid(unsafe_code)]
#![deny(missing_docs)]

pub mod transport;

// Everything public in the core is public here, under the same name: users depend on this crate alone.
// With the feature `testing` that includes the module `testing`, the virtual-time harness.
pub use membership_core::*;
