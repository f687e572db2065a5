//! The suite that every provider runs: over one server, over three of which the leader is killed,
//! and over TLS; and the process that the suite kills.
#![allow(missing_docs, clippy::unwrap_used)]

mod support;

use conformance_tests::Clause::{T5, T6, T13, T14, T15, T16};
use conformance_tests::helpers::passes;
use conformance_tests::silent::{
    FIRST, a_host_that_falls_silent_costs_little, silent_hosts_cost_little,
};
use conformance_tests::{Effort, Suite};
use membership_testbed::{Kind, Options, Tls, suite};
use support::{Consul, SECRET};

/// Fewer rounds: each commit waits for a disk.
fn shorter(effort: &mut Effort) {
    effort.commits = 1_000;
}

/// Even fewer, for set-ups where only the way to the servers differs, and not the number of
/// operations.
fn shortest(effort: &mut Effort) {
    effort.model_operations = 300;
    effort.commits = 300;
    effort.kills = 10;
    effort.rows = 500;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn consul() {
    let backend = suite::single(Consul, Kind::Consul, SECRET).await.unwrap();
    passes(Suite::new(backend).effort_unless_soak(shorter)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn three_servers() {
    let backend = suite::several(Consul, Kind::Consul, SECRET, "servers");
    let suite = Suite::new(backend.await.unwrap()).effort_unless_soak(shortest);
    passes(suite.repeats([T5, T6, T13, T14, T16])).await;
}

/// Both sides show certificates.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn encrypted() {
    let options = Options {
        args: vec!["-hcl=verify_incoming = true".to_owned()],
        ..Options::default()
    };
    let trust = |tls: &Tls| {
        format!(
            "tls_ca={}&tls_cert={}&tls_key={}",
            tls.ca.display(),
            tls.client_certificate.display(),
            tls.client_key.display()
        )
    };
    let backend = suite::encrypted(Consul, Kind::Consul, SECRET, options, trust);
    let suite = Suite::new(backend.await.unwrap()).effort_unless_soak(shortest);
    passes(suite.repeats([T13, T14, T15])).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn silent_hosts() {
    let backend = suite::single(Consul, Kind::Consul, SECRET).await.unwrap();
    silent_hosts_cost_little(&backend, FIRST).await;
    a_host_that_falls_silent_costs_little(&backend).await;
}

/// Does nothing unless this process is the one that the suite kills.
#[tokio::test]
async fn crash_child() {
    conformance_tests::servers::crash_child(&Consul).await;
}
