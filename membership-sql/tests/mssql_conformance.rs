//! The suite that every provider runs, over SQL Server; and the process that the suite kills.
//!
//! No package source has the server, so it runs where somebody asks for it: with a Docker engine, or
//! with `MEMBERSHIP_TEST_SQLSERVER_URL`.
#![cfg(feature = "mssql")]
#![allow(missing_docs, clippy::unwrap_used)]

#[path = "support/mssql.rs"]
mod support;

use conformance_tests::Suite;
use conformance_tests::helpers::passes;
use support::{Mssql, backend};

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
#[ignore = "needs a SQL Server: a Docker engine, or MEMBERSHIP_TEST_SQLSERVER_URL"]
async fn sqlserver() {
    passes(Suite::new(backend().await)).await;
}

/// Does nothing unless this process is the one that the suite kills.
#[tokio::test]
async fn crash_child() {
    conformance_tests::servers::crash_child(&Mssql).await;
}
