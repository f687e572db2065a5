//! The suite that every provider runs, over Azurite; and the process that it kills.
#![allow(missing_docs, clippy::unwrap_used)]

mod support;

use conformance_tests::{Suite, child};
use support::{Store, URL, open};

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn azure_table() {
    // The histories are shorter, but for `cargo xtask soak`: see there.
    let report = Suite::new(Store::start().await)
        .effort(support::shorter)
        .run()
        .await;
    assert!(report.passed(), "{report}");
}

/// Does nothing unless it is the process that the suite kills.
#[tokio::test]
async fn crash_child() {
    if let (Some(cluster), Ok(url)) = (child::cluster(), std::env::var(URL)) {
        child::run(&*open(&url, &cluster).unwrap()).await;
    }
}
