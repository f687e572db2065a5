//! Replicas: never read, asked to confirm, and taking over without all writes. Clauses T5, T6, T16.

use std::net::SocketAddr;

use conformance_tests::proxy::Proxy;
use membership_core::{MembershipTable, ReadRequest, Recency, TableErrorKind};
use membership_testbed::Kind;

use crate::support::nodes::{in_step, replica_of};
use crate::support::*;
use conformance_tests::helpers::*;

#[tokio::test]
async fn a_replica_is_refused_even_for_reading() {
    let master = own_server().await;
    let at_master = table_on(&master, "").await;
    let start = fill(&at_master, 0).await;
    let token = commit(&at_master, &insert(&start, 0..3)).await;
    let replica = replica_of(&master, &[]).await;
    let table = connect(replica.url()).await.unwrap();
    let error = table.read(&ReadRequest::all()).await.unwrap_err();
    assert_eq!(error.kind(), TableErrorKind::Unavailable);
    assert!(error.to_string().contains("is a replica"), "{error}");
    let stale = insert(&start, [8]);
    assert_eq!(
        commit_kind(&table, &insert(&token, [7]).again()).await,
        TableErrorKind::OutcomeUnknown
    );
    for kind in [
        commit_kind(&table, &stale).await,
        table
            .update_i_am_alive(&heartbeat(77, 1))
            .await
            .unwrap_err()
            .kind(),
        read_kind(&table, Some(&token)).await.unwrap_err(),
        table
            .read_row(&silo(1), Some(&token))
            .await
            .unwrap_err()
            .kind(),
        commit_kind(&table, &insert(&token, [7])).await,
        table
            .update_i_am_alive(&heartbeat(1, 1))
            .await
            .unwrap_err()
            .kind(),
        initialize(&table).await.unwrap_err().kind(),
        table.delete().await.unwrap_err().kind(),
    ] {
        assert_eq!(kind, TableErrorKind::Unavailable);
    }
}

#[tokio::test]
async fn a_master_that_becomes_a_replica_is_refused() {
    let (one, two) = (own_server().await, own_server().await);
    let table = table_on(&one, "").await;
    let token = fill(&table, 3).await;
    shell::<()>(
        &one,
        &["REPLICAOF", "127.0.0.1", &two.address().port().to_string()],
    )
    .await;
    assert_eq!(
        read_kind(&table, Some(&token)).await,
        Err(TableErrorKind::Unavailable)
    );
    assert_eq!(
        commit_kind(&table, &insert(&token, [7])).await,
        TableErrorKind::Unavailable
    );
    // The server is back, but the synchronisation emptied it: a known table is missing, and not
    // merely empty.
    in_step(&one).await;
    shell::<()>(&one, &["REPLICAOF", "NO", "ONE"]).await;
    assert_eq!(
        read_kind(&table, Some(&token)).await,
        Err(TableErrorKind::TableReplaced)
    );
}

/// What a server with replicas says may be outdated: one of them may have taken over.
#[tokio::test]
async fn a_server_that_has_replicas_is_not_promised_to_be_the_newest() {
    let master = own_server().await;
    let table = table_on(&master, "").await;
    fill(&table, 3).await;
    let barrier = ReadRequest::all().with_barrier(true);
    assert_eq!(table.guarantees().reads, Recency::Linearizable);
    table.read(&barrier).await.unwrap();

    let replica = replica_of(&master, &[]).await;
    let error = table.read(&barrier).await.unwrap_err();
    assert_eq!(error.kind(), TableErrorKind::Unavailable);
    assert!(error.to_string().contains("min_replicas"), "{error}");
    assert_eq!(read_kind(&table, None).await, Ok(()));
    for table in [&table, &table_on(&master, "").await] {
        assert_eq!(table.guarantees().reads, Recency::MonotonicPerClient);
    }
    // The operator's promise, and a check.
    let promised = table_on(&master, "failover=never").await;
    assert_eq!(promised.guarantees().reads, Recency::Linearizable);
    for table in [promised, table_on(&master, "min_replicas=1").await] {
        until("the replica confirms", async || {
            table.read(&barrier).await.is_ok()
        })
        .await;
    }
    // The replica has taken over, and its former master still answers.
    shell::<()>(&replica, &["REPLICAOF", "NO", "ONE"]).await;
    let late = table_on(&master, "").await;
    assert_eq!(late.guarantees().reads, Recency::MonotonicPerClient);
    assert!(late.read(&barrier).await.is_err());
}

#[tokio::test]
async fn too_few_replicas_leave_the_outcome_unknown() {
    let master = own_server().await;
    let table = table_on(&master, "min_replicas=1&replica_timeout=200ms").await;
    assert_eq!(
        initialize(&table).await.unwrap_err().kind(),
        TableErrorKind::OutcomeUnknown
    );
    initialize(&table).await.unwrap();
    let (start, _) = read(&table).await;
    let request = insert(&start.token, [1]);
    let error = table.commit(&request).await.unwrap_err();
    assert_eq!(error.kind(), TableErrorKind::OutcomeUnknown);
    assert!(
        error.to_string().contains("0 replicas have confirmed"),
        "{error}"
    );
    // The master has the commit; sent again it is recognised, and still not confirmed.
    assert_eq!(read(&table).await.0.version(), 1);
    assert_eq!(
        commit_kind(&table, &request.again()).await,
        TableErrorKind::OutcomeUnknown
    );
    let barrier = ReadRequest::all().with_heartbeats(false).with_barrier(true);
    assert_eq!(
        table.read(&barrier).await.unwrap_err().kind(),
        TableErrorKind::Unavailable
    );
    // Replicas do not confirm heartbeats.
    table.update_i_am_alive(&heartbeat(1, 1)).await.unwrap();

    let replica = replica_of(&master, &[]).await;
    // On a busy machine a replica may be late once more.
    until("the replica confirms", async || {
        table.commit(&request.again()).await.is_ok()
    })
    .await;
    assert_eq!(read(&table).await.0.token, request.next_token(&[]));
    until("the replica confirms", async || {
        table.read(&barrier).await.is_ok()
    })
    .await;
    let next = insert(&request.next_token(&[]), [2]);
    until("the replica confirms", async || {
        table.commit(&next.again()).await.is_ok()
    })
    .await;
    let token = next.next_token(&[]);
    replica.pause().await.unwrap();
    let lost = insert(&token, [3]);
    assert_eq!(
        commit_kind(&table, &lost).await,
        TableErrorKind::OutcomeUnknown
    );
    assert_eq!(
        table.read(&barrier).await.unwrap_err().kind(),
        TableErrorKind::Unavailable
    );
    replica.resume().await.unwrap();
    until("the replica confirms", async || {
        table.commit(&lost.again()).await.is_ok()
    })
    .await;
    // The confirmed commit is on the replica.
    shell::<()>(&replica, &["REPLICAOF", "NO", "ONE"]).await;
    assert_eq!(
        read(&connect(replica.url()).await.unwrap())
            .await
            .0
            .version(),
        3
    );
}

/// A client of one address at which the server changes.
async fn behind(proxy: &Proxy) -> membership_redis::RedisTable {
    connect(&format!(
        "redis://{}/?operation_timeout=2s",
        proxy.address()
    ))
    .await
    .unwrap()
}

async fn move_to(proxy: &Proxy, server: SocketAddr) {
    proxy.set_target(server);
    proxy.cut_connections();
}

#[tokio::test]
async fn a_failover_to_an_older_replica_is_reported_and_no_commit_applies() {
    let master = server(Kind::Valkey, &["--loglevel", "notice"]).await;
    let proxy = Proxy::to(master.address()).unwrap();
    let table = behind(&proxy).await;
    let old = fill(&table, 3).await;
    let replica = replica_of(&master, &[]).await;
    // From here on the replica receives no more writes.
    shell::<()>(&replica, &["REPLICAOF", "NO", "ONE"]).await;
    let lost = commit(&table, &insert(&old, [7])).await;
    move_to(&proxy, replica.address()).await;
    until("the client is connected again", async || {
        read_kind(&table, Some(&lost)).await != Err(TableErrorKind::Unavailable)
    })
    .await;
    assert_eq!(
        read_kind(&table, Some(&lost)).await,
        Err(TableErrorKind::TableRolledBack)
    );
    assert_eq!(
        table
            .read_row(&silo(1), Some(&lost))
            .await
            .unwrap_err()
            .kind(),
        TableErrorKind::TableRolledBack
    );
    for request in [insert(&lost, [8]), update(&lost, 1, "x"), remove(&lost, 1)] {
        assert_eq!(
            commit_kind(&table, &request).await,
            TableErrorKind::TableRolledBack
        );
        assert_eq!(
            commit_kind(&table, &request.again()).await,
            TableErrorKind::TableRolledBack
        );
    }
    // The replica continues with other commits.
    let other = connect(replica.url()).await.unwrap();
    let mut token = commit(&other, &insert(&old, [50])).await;
    for n in 51..60 {
        assert_eq!(
            read_kind(&table, Some(&lost)).await,
            Err(TableErrorKind::TableRolledBack)
        );
        assert_eq!(
            commit_kind(&table, &insert(&lost, [8])).await,
            TableErrorKind::TableRolledBack
        );
        token = commit(&other, &insert(&token, [n])).await;
    }
    assert!(read(&other).await.0.rows.get(&silo(8)).is_none());
    // A client that knew nothing newer continues.
    assert_eq!(read_kind(&table, Some(&old)).await, Ok(()));
}

#[tokio::test]
async fn a_failover_to_an_empty_server_is_reported_and_nothing_is_written() {
    let (master, empty) = (own_server().await, own_server().await);
    let proxy = Proxy::to(master.address()).unwrap();
    let table = behind(&proxy).await;
    let token = fill(&table, 3).await;
    move_to(&proxy, empty.address()).await;
    until("the client is connected again", async || {
        read_kind(&table, Some(&token)).await != Err(TableErrorKind::Unavailable)
    })
    .await;
    assert_eq!(
        read_kind(&table, Some(&token)).await,
        Err(TableErrorKind::TableReplaced)
    );
    assert_eq!(
        commit_kind(&table, &insert(&token, [8])).await,
        TableErrorKind::TableReplaced
    );
    assert_eq!(
        table
            .update_i_am_alive(&heartbeat(1, 1))
            .await
            .unwrap_err()
            .kind(),
        TableErrorKind::NotInitialized
    );
    assert_eq!(shell::<u64>(&empty, &["DBSIZE"]).await, 0);
}
