//! The suite that every provider runs, over a real PostgreSQL; and the process that the suite
//! kills.
#![cfg(feature = "postgres")]
#![allow(missing_docs, clippy::unwrap_used)]

#[path = "support/postgres/mod.rs"]
mod postgres;

use conformance_tests::Clause::{T1, T2, T5, T6, T7, T8, T10, T13, T14};
use conformance_tests::helpers::passes;
use conformance_tests::servers::ServerBackend;
use conformance_tests::silent::{
    FIRST, a_host_that_falls_silent_costs_little, silent_hosts_cost_little,
};
use conformance_tests::{Capability, Reason, Suite};
use membership_core::{Durability, Guarantees, Recency};
use membership_testbed::suite::postgres::Pair;
use membership_testbed::{Kind, suite};
use postgres::{Postgres, SECRET};

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn conformance() {
    let backend = suite::single(Postgres, Kind::Postgres, SECRET)
        .await
        .unwrap();
    // It has no standby, and gets none: nothing that it acknowledged is lost.
    let backend = match backend.servers().is_external() {
        true => backend.requires(Guarantees::new(
            Recency::MonotonicPerClient,
            Durability::MayBeLost,
        )),
        false => backend.options("failover=safe"),
    };
    passes(Suite::new(backend)).await;
}

/// A primary whose commits wait for its standby, which takes over. What one of both alone can
/// confirm is less than what both can.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn primary_and_standby() {
    let pair = Pair::start(SECRET).await.unwrap();
    let backend = ServerBackend::new("postgres (primary and standby)", Postgres, pair)
        .requires(Guarantees::new(
            Recency::MonotonicPerClient,
            Durability::Kept,
        ))
        .secret(SECRET);
    let suite = Suite::new(backend).effort_unless_soak(|e| {
        (e.model_operations, e.commits, e.kills, e.rows) = (300, 200, 20, 500)
    });
    passes(
        suite
            .named("guarantees")
            .named("deposed_leader")
            .named("frozen_leaders"),
    )
    .await;
}

/// The same in pooler mode, which keeps nothing in the session.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn conformance_as_behind_a_pooler() {
    let backend = suite::single(Postgres, Kind::Postgres, SECRET)
        .await
        .unwrap()
        .named("postgres, as behind a pooler")
        .options("pooler=true")
        // A standby may come, and be promoted.
        .requires(Guarantees::new(
            Recency::Linearizable,
            Durability::MayBeLost,
        ))
        .without(Capability::Hints, Reason::StoreForbids);
    // Every case, but the long ones a tenth as long, because the server and its clients are the
    // same as above.
    let suite = Suite::new(backend)
        .effort(|e| (e.model_operations, e.commits, e.kills, e.rows) = (300, 200, 20, 500));
    passes(suite.repeats([T1, T2, T5, T6, T7, T8, T10, T13, T14])).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn silent_hosts() {
    let backend = suite::single(Postgres, Kind::Postgres, SECRET);
    let backend = backend.await.unwrap();
    silent_hosts_cost_little(&backend, FIRST).await;
    a_host_that_falls_silent_costs_little(&backend).await;
}

/// Does nothing unless this process is the one that the suite kills.
#[tokio::test]
async fn crash_child() {
    conformance_tests::servers::crash_child(&Postgres).await;
}
