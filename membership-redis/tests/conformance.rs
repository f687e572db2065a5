//! The suite that every provider runs: over Redis and Valkey in full, and with shorter long cases
//! over Cluster, Sentinel and TLS; and the process that the suite kills.
#![allow(missing_docs, clippy::unwrap_used)]

mod support;

use std::sync::atomic::Ordering;
use std::time::Duration;

use conformance_tests::Clause::{T5, T6, T9, T13, T14, T15, T16};
use conformance_tests::Suite;
use conformance_tests::helpers::passes;
use conformance_tests::servers::{ServerBackend, Servers};
use conformance_tests::silent::{a_host_that_falls_silent_costs_little, silent_hosts_cost_little};
use membership_core::{Durability, Guarantees, Recency};
use membership_testbed::{Kind, Options, Tls, suite};
use support::nodes::{Cluster, Watched};
use support::{Redis, SECRET};

/// The longest search for the master while nodes or sentinels are silent.
const PROMPT: Duration = Duration::from_millis(1_500);

/// A server that keeps acknowledged writes; an external one is used as it is.
async fn single(kind: Kind) -> ServerBackend<Redis> {
    let backend = suite::single(Redis, kind, SECRET).await.unwrap();
    match backend.servers().is_external() {
        true => backend.requires(WEAKEST),
        false => backend.options("durability=kept"),
    }
}

/// Of a master that has replicas: reads may be old, and a failover may lose commits.
const WEAKEST: Guarantees = Guarantees::new(Recency::MonotonicPerClient, Durability::MayBeLost);

/// Several servers without a password.
fn several(kind: Kind, how: &str, servers: impl Servers) -> ServerBackend<Redis> {
    ServerBackend::new(format!("{kind} ({how})"), Redis, servers).requires(WEAKEST)
}

/// For set-ups where only the way to the table differs, and not the number of operations.
fn shorter(backend: ServerBackend<Redis>) -> Suite {
    Suite::new(backend).effort(|effort| {
        effort.model_operations = 500;
        effort.commits = 300;
        effort.kills = 20;
        effort.rows = 1_000;
    })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn redis() {
    passes(Suite::new(single(Kind::Redis).await)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn valkey() {
    passes(Suite::new(single(Kind::Valkey).await)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn redis_cluster() {
    let cluster = Cluster::start(Kind::Redis).await;
    let suite = shorter(several(Kind::Redis, "Cluster", cluster));
    passes(suite.repeats([T5, T6, T9, T13, T14, T16])).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn valkey_cluster() {
    let cluster = Cluster::start(Kind::Valkey).await;
    let suite = shorter(several(Kind::Valkey, "Cluster", cluster));
    passes(suite.repeats([T5, T6, T9, T13, T14, T16])).await;
}

/// The sentinel waits for long: a restart must not cause a failover.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn redis_sentinel() {
    let watched = Watched::start(Kind::Redis, Duration::from_secs(60)).await;
    let suite = shorter(several(Kind::Redis, "Sentinel", watched));
    passes(suite.repeats([T5, T6, T13, T14, T16])).await;
}

/// Longer than a busy machine keeps a server from running: another failover in between would let
/// the former master lead again, with what the other one does not have.
const PATIENCE: Duration = Duration::from_secs(5);

/// The sentinel has the replica take over from a frozen master.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn redis_failover() {
    let watched = Watched::start(Kind::Redis, PATIENCE).await;
    let suite = shorter(several(Kind::Redis, "failover", watched));
    passes(suite.named("deposed_leader").named("frozen_leaders")).await;
}

/// The same where no failover keeps the last commits.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn redis_failover_that_loses() {
    let watched = Watched::start(Kind::Redis, PATIENCE).await;
    watched.loses.store(true, Ordering::SeqCst);
    let suite = shorter(several(Kind::Redis, "failover, losing", watched));
    passes(suite.named("frozen_leaders")).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn redis_tls() {
    let trust = |tls: &Tls| format!("durability=kept&tls_ca={}", tls.ca.display());
    let backend = suite::encrypted(Redis, Kind::Redis, SECRET, Options::default(), trust);
    let suite = shorter(backend.await.unwrap());
    passes(suite.repeats([T13, T14, T15])).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn silent_nodes_of_a_cluster() {
    let cluster = Cluster::start(Kind::Redis).await;
    let backend = several(Kind::Redis, "Cluster", cluster);
    silent_hosts_cost_little(&backend, PROMPT).await;
    a_host_that_falls_silent_costs_little(&backend).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn silent_sentinels() {
    let watched = Watched::start(Kind::Redis, Duration::from_secs(60)).await;
    let backend = several(Kind::Redis, "Sentinel", watched);
    silent_hosts_cost_little(&backend, PROMPT).await;
    a_host_that_falls_silent_costs_little(&backend).await;
}

/// Does nothing unless this process is the one that the suite kills.
#[tokio::test]
async fn crash_child() {
    conformance_tests::servers::crash_child(&Redis).await;
}
