//! The suite that every provider runs: in full over a replica set of one member and over three
//! members behind proxies, in part over TLS and with majority reads; and the process that the suite
//! kills.
#![allow(missing_docs, clippy::unwrap_used)]

mod support;

use conformance_tests::Clause::{T1, T3, T5, T6, T13, T14, T15, T16};
use conformance_tests::helpers::passes;
use conformance_tests::servers::ServerBackend;
use conformance_tests::silent::{
    FIRST, a_host_that_falls_silent_costs_little, silent_hosts_cost_little,
};
use conformance_tests::{Effort, Suite};
use membership_core::{Durability, Guarantees, Recency};
use membership_testbed::{Kind, Options, Server, Tls, suite};
use support::set::Set;
use support::{MongoDb, SECRET};

/// Fewer rounds: after each connection that is cut on purpose the client waits half a second until
/// it checks the server again.
fn shorter(effort: &mut Effort) {
    effort.model_operations = 600;
    effort.commits = 400;
    effort.kills = 30;
}

/// Even fewer, for set-ups where only the way to the table differs, and not the number of
/// operations.
fn shortest(effort: &mut Effort) {
    effort.model_operations = 300;
    effort.commits = 200;
    effort.kills = 10;
    effort.rows = 1_000;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn mongodb() {
    let backend = suite::single(MongoDb, Kind::MongoDb, SECRET).await.unwrap();
    passes(Suite::new(backend).effort_unless_soak(shorter)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn majority_reads() {
    let server = Server::start_or_external(Kind::MongoDb, suite::durable(SECRET));
    let backend = ServerBackend::new("mongodb (majority reads)", MongoDb, server.await.unwrap())
        .options("reads=majority")
        .requires(Guarantees::new(
            Recency::MonotonicPerClient,
            Durability::Kept,
        ))
        .secret(SECRET);
    let suite = Suite::new(backend).effort_unless_soak(shortest);
    passes(suite.clauses([T1, T3, T5, T6, T13, T16])).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn three_members() {
    let backend = ServerBackend::new("mongodb (three members)", MongoDb, Set::start().await);
    let suite = Suite::new(backend.secret(SECRET));
    // A primary is also frozen here, until another one leads.
    let suite = suite.effort_unless_soak(|effort| {
        shortest(effort);
        effort.kills = 5;
    });
    passes(suite.repeats([T5, T6, T13, T14, T16])).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn encrypted() {
    let trust = |tls: &Tls| format!("tls=true&tlsCAFile={}", tls.ca.display());
    let backend = suite::encrypted(MongoDb, Kind::MongoDb, SECRET, Options::default(), trust);
    let suite = Suite::new(backend.await.unwrap()).effort_unless_soak(shortest);
    passes(suite.clauses([T1, T3, T15])).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn silent_hosts_beside_others() {
    let backend = ServerBackend::new("mongodb (three members)", MongoDb, Set::start().await);
    silent_hosts_cost_little(&backend, FIRST).await;
    a_host_that_falls_silent_costs_little(&backend).await;
}

/// Does nothing unless this process is the one that the suite kills.
#[tokio::test]
async fn crash_child() {
    conformance_tests::servers::crash_child(&MongoDb).await;
}
