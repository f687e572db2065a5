//! The suite that every provider runs, over MariaDB, with and without the stored procedure; and the
//! process that the suite kills.
#![cfg(feature = "mysql")]
#![allow(missing_docs, clippy::unwrap_used)]

#[path = "support/mysql.rs"]
mod support;

use conformance_tests::Clause::{T1, T2, T3, T4, T5, T8, T9, T10, T11, T12, T14, T16};
use conformance_tests::helpers::passes;
use conformance_tests::silent::{
    FIRST, a_host_that_falls_silent_costs_little, silent_hosts_cost_little,
};
use conformance_tests::{Capability, Reason, Suite};
use support::{MariaDb, Mysql};

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn mariadb() {
    let server = MariaDb::start("procedure=never").await;
    passes(Suite::new(server.into_backend())).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn mariadb_with_the_procedure() {
    let server = MariaDb::start("procedure=require").await;
    server.make_procedure().await;
    // The procedure is another way to commit; everything else is the same. An emptied server would
    // have lost it, and who only reads may not call it, as this option demands.
    let backend = server
        .into_backend()
        .without(Capability::Recreate, Reason::NotMadeAnew)
        .without(Capability::Reader, Reason::NoReader);
    let suite = Suite::new(backend);
    passes(suite.repeats([T1, T2, T3, T4, T5, T8, T9, T10, T11, T12, T14, T16])).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn silent_hosts() {
    let backend = MariaDb::start("").await.into_backend();
    silent_hosts_cost_little(&backend, FIRST).await;
    a_host_that_falls_silent_costs_little(&backend).await;
}

/// Does nothing unless this process is the one that the suite kills.
#[tokio::test]
async fn crash_child() {
    conformance_tests::servers::crash_child(&Mysql).await;
}
