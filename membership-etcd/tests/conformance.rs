//! The suite that every provider runs, over one member of etcd, over three, and over TLS; and the process that it kills.
#![allow(missing_docs, clippy::unwrap_used)]

mod support;

use conformance_tests::{Suite, child};
use support::{Store, URL, open};

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn one_member() {
    let report = Suite::new(Store::single().await).run().await;
    assert!(report.passed(), "{report}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn three_members() {
    // The long cases do less: see there.
    let report = Suite::new(Store::three().await)
        .effort(support::shorter)
        .run()
        .await;
    assert!(report.passed(), "{report}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn encrypted() {
    let report = Suite::new(Store::encrypted().await)
        .effort(support::shorter)
        .run()
        .await;
    assert!(report.passed(), "{report}");
}

/// Does nothing unless it is the process that the suite kills.
#[tokio::test]
async fn crash_child() {
    if let (Some(cluster), Ok(url)) = (child::cluster(), std::env::var(URL)) {
        child::run(&*open(&url, &cluster).await.unwrap()).await;
    }
}
