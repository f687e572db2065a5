//! Behaviour of Redis alone: forgotten scripts, restricted users, full memory, replicas, failovers,
//! clusters, TLS, hints.
#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used, clippy::panic)]

#[path = "../support/mod.rs"]
mod support;

mod cluster;
mod hints;
mod layout;
mod permissions;
mod played;
mod replicas;
mod round_trips;
mod sentinel;
mod strangers;
mod tls;
mod trouble;
mod worst_day;
