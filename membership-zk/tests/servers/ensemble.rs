//! Three servers: one is frozen, the leader is killed. T2, T6, T13.

use std::time::Duration;

use membership_core::{MembershipTable, ReadAnswer, ReadRequest};
use membership_testbed::{Kind, Server, ServerSet};
use membership_zk::{ZkConfig, ZkTable};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use crate::{blue, insert, is_committed, made, read};

/// The state that a server reports about itself.
async fn srvr(server: &Server) -> String {
    let mut stream = TcpStream::connect(server.address()).await.unwrap();
    stream.write_all(b"srvr").await.unwrap();
    let mut said = String::new();
    stream.read_to_string(&mut said).await.unwrap();
    said
}

fn zxid(said: &str) -> u64 {
    let text = said
        .lines()
        .find_map(|line| line.strip_prefix("Zxid: 0x"))
        .unwrap_or_default();
    u64::from_str_radix(text.trim(), 16).unwrap_or_default()
}

async fn at(url: &str) -> ZkTable {
    ZkTable::connect(
        ZkConfig::from_url(url)
            .unwrap()
            .operation_timeout(Duration::from_secs(10)),
        blue(),
    )
    .await
    .unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_leaves_a_frozen_follower_and_sees_no_older_table() {
    let ensemble = ServerSet::start(Kind::ZooKeeper, 3, None).await.unwrap();
    let leader = ensemble.leader_but(None).await.unwrap();
    let follower = &ensemble.servers()[(leader + 1) % 3];
    let table = at(&ensemble.url()).await;
    made(&table).await;
    // A client of only that follower, which has read version 0. The session must outlive the pause:
    // a new session begins with a read with a barrier, and shows no lag.
    let config = ZkConfig::from_url(follower.url())
        .unwrap()
        .operation_timeout(Duration::from_secs(2));
    let config = config.session_timeout(Duration::from_secs(10));
    let behind = ZkTable::connect(config, blue()).await.unwrap();
    assert_eq!(read(&behind).await.version(), 0);
    follower.pause().await.unwrap();
    for port in 1..=5 {
        // The first attempts may reach the paused server, and leave it.
        crate::support::until("a commit lands", async || {
            is_committed(&table.commit(&insert_some(&table, port).await).await)
        })
        .await;
    }
    let known = read(&table).await;
    assert!(known.version() >= 5);
    assert!(
        behind.read(&ReadRequest::all()).await.is_err(),
        "a server that stands still has answered"
    );
    follower.resume().await.unwrap();
    // Whatever the follower shows first: a client that knows a newer version does not get the error
    // that the table went back in time.
    let request = ReadRequest::all()
        .with_known(known.token.clone())
        .with_heartbeats(false);
    crate::support::until("the follower serves again", async || {
        match behind.read(&request).await {
            Ok(ReadAnswer::Snapshot { snapshot, .. }) => {
                assert_eq!(snapshot, known);
                true
            }
            Ok(ReadAnswer::Unchanged { .. }) => true,
            Err(e) => {
                assert_eq!(e.next_step(), membership_core::NextStep::Retry, "{e}");
                false
            }
            Ok(other) => panic!("{other:?}"),
        }
    })
    .await;
}

/// Reads may fail while the client changes to another server.
async fn insert_some(table: &ZkTable, port: u16) -> membership_core::CommitRequest {
    crate::support::until("the table can be read", async || {
        table.read(&ReadRequest::all()).await.is_ok()
    })
    .await;
    let mut request = insert(table, port).await;
    request.id = membership_core::CommitId::new(
        u128::from(port) << 64 | u128::from(request.expected.version()),
    );
    request
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_barrier_goes_through_the_ensemble_and_a_plain_read_does_not() {
    let ensemble = ServerSet::start(Kind::ZooKeeper, 3, None).await.unwrap();
    let table = at(&ensemble.url()).await;
    made(&table).await;
    read(&table).await;
    let leader = &ensemble.servers()[ensemble.leader_but(None).await.unwrap()];
    let before = zxid(&srvr(leader).await);
    assert!(before > 0);
    for _ in 0..3 {
        table.read(&ReadRequest::all()).await.unwrap();
    }
    assert_eq!(
        zxid(&srvr(leader).await),
        before,
        "plain reads write nothing"
    );
    for _ in 0..3 {
        read(&table).await;
    }
    assert_eq!(
        zxid(&srvr(leader).await),
        before + 3,
        "each barrier is agreed upon like a write"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn another_leader_takes_over_with_all_acknowledged_commits() {
    let ensemble = ServerSet::start(Kind::ZooKeeper, 3, None).await.unwrap();
    let table = at(&ensemble.url()).await;
    made(&table).await;
    let request = insert(&table, 1).await;
    assert!(is_committed(&table.commit(&request).await));
    let killed = ensemble.kill_leader().await.unwrap();
    crate::support::until("another one serves", async || {
        table
            .read(&ReadRequest::all().with_barrier(true))
            .await
            .is_ok()
    })
    .await;
    assert_eq!(read(&table).await.version(), 1);
    assert!(is_committed(&table.commit(&insert(&table, 2).await).await));
    ensemble.start_again(killed).await.unwrap();
}
