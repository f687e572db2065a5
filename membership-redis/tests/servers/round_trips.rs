//! One round trip for each operation, counted by a proxy: also for a client that did not read
//! before, and for a conflict.

use conformance_tests::proxy::Proxy;
use membership_core::{CommitOutcome, MembershipTable, ReadRequest};
use membership_testbed::Kind;

use crate::support::nodes::replica_of;
use crate::support::*;
use conformance_tests::helpers::*;

async fn counted(kind: Kind, options: &str) {
    let server = server(kind, &["--loglevel", "notice"]).await;
    let replica = replica_of(&server, &[]).await;
    let proxy = Proxy::to(server.address()).unwrap();
    let token = fill(&table_on(&server, "").await, 3).await;
    // The client has a token from another silo, and has read nothing.
    let table = connect(&format!("redis://{}/?{options}", proxy.address()))
        .await
        .unwrap();
    let mut seen = proxy.round_trips();
    let mut one = |what: &str| {
        let now = proxy.round_trips();
        assert_eq!(
            now - seen,
            1,
            "{what} takes {} round trips ({options})",
            now - seen
        );
        seen = now;
    };
    let next = commit(&table, &update(&token, 1, "new")).await;
    one("a commit");
    assert!(
        matches!(table.commit(&insert(&token, [9])).await.unwrap(), CommitOutcome::Conflict(c) if c.snapshot.is_some())
    );
    one("a conflict with its snapshot");
    table.read(&ReadRequest::all()).await.unwrap();
    one("a read");
    table
        .read(
            &ReadRequest::all()
                .with_known(next.clone())
                .with_barrier(true),
        )
        .await
        .unwrap();
    one("a read of what is known");
    table.read_row(&silo(1), None).await.unwrap();
    one("read_row");
    table.update_i_am_alive(&heartbeat(1, 1)).await.unwrap();
    one("a heartbeat");
    drop(replica);
}

#[tokio::test]
async fn every_operation_takes_one() {
    counted(Kind::Redis, "failover=never").await;
    counted(Kind::Valkey, "failover=never").await;
}

#[tokio::test]
async fn asking_replicas_takes_no_more() {
    counted(Kind::Redis, "min_replicas=1").await;
}

/// A server without replicas is asked for them in the same round trip.
#[tokio::test]
async fn a_barrier_takes_no_more() {
    let server = own_server().await;
    let proxy = Proxy::to(server.address()).unwrap();
    fill(&table_on(&server, "").await, 3).await;
    let table = connect(&format!("redis://{}", proxy.address()))
        .await
        .unwrap();
    let before = proxy.round_trips();
    let barrier = ReadRequest::all().with_barrier(true);
    table.read(&barrier).await.unwrap();
    assert_eq!(proxy.round_trips(), before + 1);
}
