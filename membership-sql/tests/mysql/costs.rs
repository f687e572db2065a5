//! The costs: round trips of each operation, and the baseline.

use conformance_tests::helpers::{commit as committed, entry, heartbeat, update};
use conformance_tests::proxy::Proxy;
use membership_core::{CommitOutcome, MembershipTable, ReadRequest};
use membership_sql::{MysqlConfig, MysqlProcedure};

use crate::support::MariaDb;
use crate::{insert, made};

/// The figures of the README, counted through a proxy after the connections are open.
pub async fn round_trips(server: &MariaDb, of_a_commit: u64) {
    let proxy = Proxy::to(server.server.address()).unwrap();
    let url = server.server.url().replace(
        &server.server.address().to_string(),
        &proxy.address().to_string(),
    );
    let config = MysqlConfig::from_url(&url).unwrap();
    let config = if of_a_commit == 1 {
        server.make_procedure().await;
        config.procedure(MysqlProcedure::Require)
    } else {
        config.procedure(MysqlProcedure::Never)
    };
    let (table, token) = made(config, &format!("trips-{of_a_commit}")).await;
    let count = |since: u64| proxy.round_trips() - since;

    let start = proxy.round_trips();
    let token = committed(&table, &update(&token, 1, "x")).await;
    assert_eq!(count(start), of_a_commit, "commit");

    let start = proxy.round_trips();
    let CommitOutcome::Conflict(conflict) = table.commit(&insert(&token, 1)).await.unwrap() else {
        panic!("the row is there")
    };
    assert_eq!(count(start), of_a_commit, "conflict");
    assert_eq!(conflict.snapshot.unwrap().token, token);

    let start = proxy.round_trips();
    table
        .read(
            &ReadRequest::all()
                .with_known(token.clone())
                .with_heartbeats(false)
                .with_barrier(true),
        )
        .await
        .unwrap();
    table.read(&ReadRequest::all()).await.unwrap();
    assert_eq!(count(start), 2, "two reads");

    let start = proxy.round_trips();
    table
        .read_row(&entry(1).address, Some(&token))
        .await
        .unwrap();
    assert_eq!(count(start), 1, "read_row");

    let start = proxy.round_trips();
    table.update_i_am_alive(&heartbeat(1, 1)).await.unwrap();
    assert_eq!(count(start), 1, "update_i_am_alive");
}

pub async fn the_baseline_leaves_nothing(server: &MariaDb) {
    let (table, _) = made(server.config(), "baseline").await;
    let before = server
        .sql("SELECT cluster FROM membership_cell")
        .await
        .unwrap()
        .len();
    let baseline = table.baseline().unwrap();
    baseline.read().await.unwrap();
    baseline.write().await.unwrap();
    baseline.write().await.unwrap();
    baseline.read().await.unwrap();
    assert_eq!(
        server
            .sql("SELECT cluster FROM membership_cell")
            .await
            .unwrap()
            .len(),
        before + 1
    );
    baseline.remove().await.unwrap();
    assert_eq!(
        server
            .sql("SELECT cluster FROM membership_cell")
            .await
            .unwrap()
            .len(),
        before
    );
}
