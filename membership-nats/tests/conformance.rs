//! The suite that every provider runs, over one server and over three; and the process that it
//! kills.
#![allow(missing_docs, clippy::unwrap_used)]

mod support;

use conformance_tests::Suite;
use conformance_tests::helpers::passes;
use conformance_tests::servers::crash_child as run_crash_child;

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn one_server() {
    passes(Suite::new(support::one().await)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn three_servers() {
    passes(Suite::new(support::three().await)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn encrypted() {
    passes(Suite::new(support::encrypted().await)).await;
}

/// Does nothing unless it is the process that the suite kills.
#[tokio::test]
async fn crash_child() {
    run_crash_child(&support::UnderTest).await;
}
