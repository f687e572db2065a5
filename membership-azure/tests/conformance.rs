//! The suite that every provider runs, over Azurite; and the process that it kills.
#![allow(missing_docs, clippy::unwrap_used)]

mod support;

use conformance_tests::Suite;
use conformance_tests::helpers::passes;
use support::{AzureStore, backend, server};

/// With fewer rounds: Azurite is one thread of JavaScript that scans every entity of a table for
/// each query.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn azure_table() {
    passes(Suite::new(backend(server().await)).effort_unless_soak(|effort| effort.commits = 600))
        .await;
}

/// Does nothing unless it is the process that the suite kills.
#[tokio::test]
async fn crash_child() {
    conformance_tests::servers::crash_child(&AzureStore).await;
}
