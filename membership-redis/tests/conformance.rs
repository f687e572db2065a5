//! The suite that every provider runs, over Redis and Valkey; and the process that it kills.
#![allow(missing_docs, clippy::unwrap_used)]

mod support;

use conformance_tests::launch::Kind;
use conformance_tests::{Suite, child};
use support::{Single, URL, open};

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn redis() {
    let report = Suite::new(Single::start(Kind::Redis).await).run().await;
    assert!(report.passed(), "{report}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn valkey() {
    let report = Suite::new(Single::start(Kind::Valkey).await).run().await;
    assert!(report.passed(), "{report}");
}

/// Does nothing unless it is the process that the suite kills.
#[tokio::test]
async fn crash_child() {
    if let (Some(cluster), Ok(url)) = (child::cluster(), std::env::var(URL)) {
        child::run(&*open(&url, &cluster).await.unwrap()).await;
    }
}
