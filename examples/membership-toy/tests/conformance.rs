//! The suite that every provider runs; and the process that it kills.
#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used)]

mod support;

use conformance_tests::{Suite, child};

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn conformance() {
    let report = Suite::new(support::Toy::start().await).run().await;
    assert!(report.passed(), "{report}");
}

/// Does nothing unless it is the process that the suite kills.
#[tokio::test]
async fn crash_child() {
    if let (Some(cluster), Ok(url)) = (child::cluster(), std::env::var(support::CHILD)) {
        child::run(&*membership_toy::open(url, cluster).await.unwrap()).await;
    }
}
