//! Behaviour of etcd alone: users and their tokens, missing members, no majority, watches,
//! compaction, a full disk, TLS.
#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used, clippy::panic)]

#[path = "../support/mod.rs"]
mod support;

mod hints;
mod layout;
mod members;
mod played;
mod strangers;
mod tls;
mod trouble;
mod users;
mod worst_day;
