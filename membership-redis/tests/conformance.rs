//! The suite that every provider runs: over Redis and Valkey in full, and with shorter long cases over Cluster, Sentinel and TLS; and the
//! process that it kills.
#![allow(missing_docs, clippy::unwrap_used)]

mod support;

use std::time::{Duration, Instant};

use conformance_tests::launch::Kind;
use conformance_tests::{Suite, child};
use membership_core::NextStep;
use support::{Store, URL, open};

async fn passes(suite: Suite) {
    let report = suite.run().await;
    assert!(report.passed(), "{report}");
}

/// What depends on how the table is reached, and not on how often something is done.
fn shorter(store: Store) -> Suite {
    Suite::new(store).effort(|effort| {
        effort.model_operations = 500;
        effort.commits = 300;
        effort.kills = 20;
        effort.rows = 1_000;
    })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn redis() {
    passes(Suite::new(Store::single(Kind::Redis).await)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn valkey() {
    passes(Suite::new(Store::single(Kind::Valkey).await)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn redis_cluster() {
    passes(shorter(Store::cluster(Kind::Redis).await)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn valkey_cluster() {
    passes(shorter(Store::cluster(Kind::Valkey).await)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn redis_sentinel() {
    passes(shorter(Store::sentinel(Kind::Redis).await)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn redis_tls() {
    passes(shorter(Store::encrypted(Kind::Redis).await)).await;
}

/// Does nothing unless it is the process that the suite kills.
#[tokio::test]
async fn crash_child() {
    if let (Some(cluster), Ok(url)) = (child::cluster(), std::env::var(URL)) {
        let deadline = Instant::now() + Duration::from_secs(60);
        let table = loop {
            match open(&url, &cluster).await {
                Ok(table) => break table,
                // Dialling has its time limit, and a busy machine may not keep it.
                Err(e) => assert!(
                    e.next_step() == NextStep::Retry && Instant::now() < deadline,
                    "{e}"
                ),
            }
        };
        child::run(&*table).await;
    }
}
