//! The suite that every provider runs, over DynamoDB; and the process that it kills.
#![allow(missing_docs, clippy::unwrap_used)]

mod support;

use conformance_tests::helpers::passes;
use conformance_tests::{Effort, Suite};
use membership_testbed::{Kind, suite};
use support::{DynamoDb, SECRET};

/// Fewer rounds: DynamoDB Local is a Java program that signs, parses and keeps every request by
/// itself.
fn shorter(effort: &mut Effort) {
    effort.model_operations = 1_000;
    effort.commits = 400;
    effort.kills = 40;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn dynamodb() {
    let backend = suite::single(DynamoDb, Kind::DynamoDb, SECRET);
    passes(Suite::new(backend.await.unwrap()).effort_unless_soak(shorter)).await;
}

/// Does nothing unless this process is the one that the suite kills.
#[tokio::test]
async fn crash_child() {
    conformance_tests::servers::crash_child(&DynamoDb).await;
}
