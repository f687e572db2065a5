//! What the suite does not test: errors of the real service, keys that other programs wrote, and
//! large tables under concurrent writes.
#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used, clippy::panic)]

#[path = "../support/mod.rs"]
mod support;

mod certificates;
mod played;
mod requests;
mod trouble;
mod worst_day;
