//! The suite that every provider runs, over a real PostgreSQL; and the process that it kills.
#![cfg(feature = "postgres")]
#![allow(missing_docs, clippy::unwrap_used)]

#[path = "support/postgres/mod.rs"]
mod postgres;

use conformance_tests::Suite;
use postgres::{Options, Postgres};

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn conformance() {
    let report = Suite::new(Postgres::start(Options::default()).await)
        .run()
        .await;
    assert!(report.passed(), "{report}");
}

/// The same with nothing left in the session, as it must be behind a pooler that breaks sessions.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn conformance_as_behind_a_pooler() {
    let mut postgres = Postgres::start(Options::default()).await;
    postgres.pooler = true;
    // Every case; the long ones a tenth as long, because the server and its clients are the same as above.
    let suite = Suite::new(postgres)
        .effort(|e| (e.model_operations, e.commits, e.kills, e.rows) = (300, 200, 20, 500));
    let report = suite.run().await;
    assert!(report.passed(), "{report}");
}

/// Does nothing unless it is the process that the suite kills.
#[tokio::test]
async fn crash_child() {
    postgres::crash_child().await;
}
