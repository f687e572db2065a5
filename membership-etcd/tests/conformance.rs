//! The suite that every provider runs, over one member of etcd, over three, and over TLS; and the
//! process that the suite kills.
#![allow(missing_docs, clippy::unwrap_used)]

mod support;

use conformance_tests::Clause::{T5, T6, T13, T14, T15, T16};
use conformance_tests::Suite;
use conformance_tests::helpers::passes;
use conformance_tests::silent::{
    FIRST, a_host_that_falls_silent_costs_little, silent_hosts_cost_little,
};
use membership_testbed::{Kind, Options, suite};
use support::{Etcd, SECRET, shorter};

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn one_member() {
    let backend = suite::single(Etcd, Kind::Etcd, SECRET).await.unwrap();
    passes(Suite::new(backend)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn three_members() {
    let backend = suite::several(Etcd, Kind::Etcd, SECRET, "members");
    let suite = Suite::new(backend.await.unwrap()).effort_unless_soak(shorter);
    passes(suite.repeats([T5, T6, T13, T14, T16])).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn encrypted() {
    let trust = |tls: &membership_testbed::Tls| format!("tls_ca={}", tls.ca.display());
    let backend = suite::encrypted(Etcd, Kind::Etcd, SECRET, Options::default(), trust);
    let suite = Suite::new(backend.await.unwrap()).effort_unless_soak(shorter);
    passes(suite.repeats([T13, T14, T15])).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn silent_hosts() {
    let backend = suite::single(Etcd, Kind::Etcd, SECRET).await.unwrap();
    silent_hosts_cost_little(&backend, FIRST).await;
    a_host_that_falls_silent_costs_little(&backend).await;
}

/// Does nothing unless this process is the one that the suite kills.
#[tokio::test]
async fn crash_child() {
    conformance_tests::servers::crash_child(&Etcd).await;
}
