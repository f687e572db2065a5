//! The suite that every provider runs: over one server, over an ensemble of three, and over TLS;
//! and the process that the suite kills.
#![allow(missing_docs, clippy::unwrap_used)]

mod support;

use conformance_tests::Clause::{T5, T6, T13, T14, T15, T16};
use conformance_tests::helpers::passes;
use conformance_tests::silent::{
    FIRST, a_host_that_falls_silent_costs_little, silent_hosts_cost_little,
};
use conformance_tests::{Effort, Suite};
use membership_testbed::suite::SECRET;
use membership_testbed::{Kind, Options, Tls, suite};
use support::ZooKeeper;

/// Fewer rounds: each connection that is cut on purpose costs the client's pauses before it
/// connects again.
fn shorter(effort: &mut Effort) {
    effort.model_operations = 1_000;
    effort.commits = 600;
    effort.kills = 40;
}

/// Even fewer, for set-ups where only the way to the table differs, and not the number of
/// operations.
fn shortest(effort: &mut Effort) {
    effort.model_operations = 500;
    effort.commits = 300;
    effort.kills = 20;
    effort.rows = 1_000;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn zookeeper() {
    let backend = suite::single(ZooKeeper, Kind::ZooKeeper, SECRET);
    passes(Suite::new(backend.await.unwrap()).effort_unless_soak(shorter)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn three_servers() {
    let backend = suite::several(ZooKeeper, Kind::ZooKeeper, SECRET, "servers");
    let suite = Suite::new(backend.await.unwrap()).effort_unless_soak(shortest);
    passes(suite.repeats([T5, T6, T13, T14, T16])).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn encrypted() {
    let trust = |tls: &Tls| format!("tls=true&tls_ca={}", tls.ca.display());
    let backend = suite::encrypted(
        ZooKeeper,
        Kind::ZooKeeper,
        SECRET,
        Options::default(),
        trust,
    );
    let suite = Suite::new(backend.await.unwrap()).effort_unless_soak(shortest);
    passes(suite.repeats([T13, T14, T15])).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn silent_hosts() {
    let backend = suite::single(ZooKeeper, Kind::ZooKeeper, SECRET);
    let backend = backend.await.unwrap();
    silent_hosts_cost_little(&backend, FIRST).await;
    a_host_that_falls_silent_costs_little(&backend).await;
}

/// Does nothing unless this process is the one that the suite kills.
#[tokio::test]
async fn crash_child() {
    conformance_tests::servers::crash_child(&ZooKeeper).await;
}
