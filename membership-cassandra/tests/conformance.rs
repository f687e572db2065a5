//! The suite that every provider runs, over Cassandra; and the process that it kills.
#![allow(missing_docs, clippy::unwrap_used)]

mod support;

use conformance_tests::helpers::passes;
use conformance_tests::silent::{FIRST, silent_hosts_cost_little};
use conformance_tests::{Effort, Suite};
use membership_testbed::{Kind, suite};
use support::{Cassandra, SECRET};

/// Fewer rounds: a transaction of Cassandra is several writes that are flushed.
fn shorter(effort: &mut Effort) {
    effort.model_operations = 1_000;
    effort.commits = 600;
    effort.kills = 40;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn cassandra() {
    let backend = suite::single(Cassandra, Kind::Cassandra, SECRET);
    passes(Suite::new(backend.await.unwrap()).effort_unless_soak(shorter)).await;
}

/// Behind two addresses there would be the same node, which does not fall silent at one of them.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn silent_hosts() {
    let backend = suite::single(Cassandra, Kind::Cassandra, SECRET);
    silent_hosts_cost_little(&backend.await.unwrap(), FIRST).await;
}

/// Does nothing unless this process is the one that the suite kills.
#[tokio::test]
async fn crash_child() {
    conformance_tests::servers::crash_child(&Cassandra).await;
}
