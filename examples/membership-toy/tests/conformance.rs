//! The suite that every provider runs; and the process that it kills.
#![allow(missing_docs, clippy::unwrap_used)]

mod support;

use conformance_tests::Suite;
use conformance_tests::helpers::passes;
use conformance_tests::servers::crash_child as run_crash_child;

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn conformance() {
    passes(Suite::new(support::backend().await)).await;
}

/// Does nothing unless it is the process that the suite kills.
#[tokio::test]
async fn crash_child() {
    run_crash_child(&support::UnderTest).await;
}
