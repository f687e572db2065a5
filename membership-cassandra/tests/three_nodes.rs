//! Three nodes of one cluster, each with a copy of every row: the suite, nodes that fall silent, and a
//! contact point that dies for good.
#![allow(missing_docs, clippy::unwrap_used, clippy::print_stdout)]

mod support;

use std::time::Instant;

use conformance_tests::helpers::*;
use conformance_tests::proxy::{Away, Proxy};
use conformance_tests::servers::ServerBackend;
use conformance_tests::silent::{
    FIRST, a_host_that_falls_silent_costs_little, in_front_of, silent_hosts_cost_little,
};
use conformance_tests::{Effort, Suite};
use membership_core::MembershipTable;
use membership_testbed::{Kind, ServerSet};
use support::{Cassandra, connect};

/// How often the other nodes lose their connections at the same moment.
const REDIALS: u64 = 5;

/// Every write is three flushes on one disk here.
fn shorter(effort: &mut Effort) {
    effort.model_operations = 300;
    effort.commits = 300;
    effort.kills = 10;
}

fn backend(set: &ServerSet) -> ServerBackend<Cassandra> {
    ServerBackend::new("cassandra (three nodes)", Cassandra, set.clone())
}

/// One test for everything that other set-ups do not show: three nodes start for half a minute.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn three_nodes() {
    let set = ServerSet::start(Kind::Cassandra, 3, None).await.unwrap();
    silent_hosts_cost_little(&backend(&set), FIRST).await;
    a_host_that_falls_silent_costs_little(&backend(&set)).await;
    passes(Suite::new(backend(&set)).named("a_deposed_leader")).await;
    a_contact_point_dies_for_good(&set).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
#[ignore = "ten minutes: .ci/run nightly runs it, and cargo xtask soak"]
async fn three_nodes_take_every_case() {
    let set = ServerSet::start(Kind::Cassandra, 3, None).await.unwrap();
    passes(Suite::new(backend(&set)).effort_unless_soak(shorter)).await;
}

/// The URL names one node, which is killed and never comes back. Each time the session loses the
/// other nodes, too, it is opened again with those that it knew.
async fn a_contact_point_dies_for_good(set: &ServerSet) {
    let servers: Vec<_> = set.servers().iter().map(|it| it.address()).collect();
    let proxies = in_front_of(&servers);
    let named = proxies[0].address();
    let url = format!("cassandra://{named}/membership");
    let table = connect(&url).await.unwrap();
    let mut token = fill(&table, 1).await;
    set.servers()[0].kill().await.unwrap();
    proxies[0].set_away(Away::Refused);
    for silo in 0..REDIALS {
        let lost: usize = proxies.iter().map(Proxy::cut_connections).sum();
        assert!(lost > 0, "redial {silo}: the session has no connection");
        let began = Instant::now();
        until("another node is used", async || {
            read_kind(&table, Some(&token)).await.is_ok()
        })
        .await;
        let first = began.elapsed();
        println!("redial {silo}: a read after {first:?}");
        assert!(first < FIRST, "redial {silo} takes {first:?}");
        token = commit(&table, &insert(&token, [10 + silo])).await;
    }
    // Nobody can start with that URL any more.
    assert!(connect(&url).await.is_err());
    table.delete().await.unwrap();
}

/// Does nothing unless this process is the one that the suite kills.
#[tokio::test]
async fn crash_child() {
    conformance_tests::servers::crash_child(&Cassandra).await;
}
