//! The suite that every provider runs: over a replica set of one member and over three members that clients find through proxies in full, and
//! some of it over TLS and with majority reads; and the process that it kills.
#![allow(missing_docs, clippy::unwrap_used)]

mod support;

use conformance_tests::Clause::{T1, T3, T5, T6, T13, T15, T16};
use conformance_tests::{Suite, child};
use support::{Store, URL, open, shorter, shortest};

async fn passes(suite: Suite) {
    let report = suite.run().await;
    assert!(report.passed(), "{report}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn mongodb() {
    passes(Suite::new(Store::single().await).effort(shorter)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn majority_reads() {
    passes(
        Suite::new(Store::majority_reads().await)
            .effort(shortest)
            .clauses([T1, T3, T5, T6, T13, T16]),
    )
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn three_members() {
    passes(Suite::new(Store::set().await).effort(shortest)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn encrypted() {
    passes(
        Suite::new(Store::encrypted().await)
            .effort(shortest)
            .clauses([T1, T3, T15]),
    )
    .await;
}

/// Does nothing unless it is the process that the suite kills.
#[tokio::test]
async fn crash_child() {
    if let (Some(cluster), Ok(url)) = (child::cluster(), std::env::var(URL)) {
        child::run(&*open(&url, &cluster).await.unwrap()).await;
    }
}
