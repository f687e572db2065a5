//! What the suite does not ask: errors of the real service, keys that somebody else wrote, and large tables while others write.
#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used, clippy::panic)]

#[path = "../support/mod.rs"]
mod support;

mod trouble;
