//! The suite that every provider runs: over a replica set of one member in full, and with shorter long cases over three members that clients
//! find through proxies, over TLS, and with majority reads; and the process that it kills.
#![allow(missing_docs, clippy::unwrap_used)]

mod support;

use conformance_tests::Clause::{T1, T3, T5, T6, T13, T15, T16};
use conformance_tests::{Suite, child};
use support::{Store, URL, open};

async fn passes(suite: Suite) {
    let report = suite.run().await;
    assert!(report.passed(), "{report}");
}

/// What depends on how the table is reached, and not on how often something is done.
fn shorter(store: Store) -> Suite {
    Suite::new(store).effort(support::shorter)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn mongodb() {
    passes(Suite::new(Store::single().await)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn majority_reads() {
    passes(shorter(Store::majority_reads().await).clauses([T1, T3, T5, T6, T13, T16])).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn three_members() {
    passes(shorter(Store::set().await)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn encrypted() {
    passes(shorter(Store::encrypted().await).clauses([T1, T3, T15])).await;
}

/// Does nothing unless it is the process that the suite kills.
#[tokio::test]
async fn crash_child() {
    if let (Some(cluster), Ok(url)) = (child::cluster(), std::env::var(URL)) {
        child::run(&*open(&url, &cluster).await.unwrap()).await;
    }
}
