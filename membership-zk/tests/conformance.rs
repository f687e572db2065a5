//! The suite that every provider runs: over one server, over an ensemble of three, and over TLS; and the process that it kills.
#![allow(missing_docs, clippy::unwrap_used)]

mod support;

use conformance_tests::{Suite, child};
use support::{Store, URL, open, shorter, shortest};

async fn passes(suite: Suite) {
    let report = suite.run().await;
    assert!(report.passed(), "{report}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn zookeeper() {
    passes(Suite::new(Store::single().await).effort(shorter)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn three_servers() {
    passes(Suite::new(Store::ensemble().await).effort(shortest)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn encrypted() {
    passes(Suite::new(Store::encrypted().await).effort(shortest)).await;
}

/// Does nothing unless it is the process that the suite kills.
#[tokio::test]
async fn crash_child() {
    if let (Some(cluster), Ok(url)) = (child::cluster(), std::env::var(URL)) {
        child::run(&*open(&url, &cluster).await.unwrap()).await;
    }
}
