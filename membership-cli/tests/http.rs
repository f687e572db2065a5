//! `membership silo --http`: real silos, asked over HTTP.
#![cfg(feature = "http")]
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout,
    clippy::print_stderr,
    missing_docs
)]

mod support;

#[path = "http/access.rs"]
mod access;
#[path = "http/answers.rs"]
mod answers;
#[path = "http/client.rs"]
mod client;
#[path = "http/languages.rs"]
mod languages;
#[path = "http/metrics.rs"]
mod metrics;
#[path = "http/page.rs"]
mod page;
#[path = "http/sick.rs"]
mod sick;
#[path = "http/strangers.rs"]
mod strangers;
#[path = "http/streams.rs"]
mod streams;
