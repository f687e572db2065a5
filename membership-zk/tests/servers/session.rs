//! A session that ends while the table is in use is replaced, and nothing in the table depends on
//! it. T13.

use std::time::Duration;

use futures_util::StreamExt as _;
use membership_core::MembershipTable;
use membership_zk::{ZkConfig, ZkTable};

use crate::{blue, connect, insert, is_committed, made, read, server};

/// The number of sessions on the server, without those of these queries.
async fn sessions(server: &membership_testbed::Server) -> usize {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    let mut stream = tokio::net::TcpStream::connect(server.address())
        .await
        .unwrap();
    stream.write_all(b"dump").await.unwrap();
    let mut said = String::new();
    stream.read_to_string(&mut said).await.unwrap();
    // "Session Sets (2)/(1):" and then lines of expiry times, each with its sessions below: "0x…".
    said.lines()
        .take_while(|line| !line.starts_with("ephemeral"))
        .filter(|line| line.trim_start().starts_with("0x"))
        .count()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_session_that_expired_is_replaced() {
    let server = server(&[]).await;
    let config = ZkConfig::from_url(server.url())
        .unwrap()
        .session_timeout(Duration::from_secs(1));
    let table = ZkTable::connect(config.operation_timeout(Duration::from_secs(20)), blue())
        .await
        .unwrap();
    made(&table).await;
    assert!(is_committed(&table.commit(&insert(&table, 1).await).await));
    let mut hints = table.hints().unwrap();
    hints.next().await.unwrap();
    // The server does not answer for longer than the client keeps a session.
    server.pause().await.unwrap();
    let everything = membership_core::ReadRequest::all();
    let early = tokio::time::timeout(Duration::from_secs(4), table.read(&everything)).await;
    assert!(
        !matches!(early, Ok(Ok(_))),
        "a server that is paused has answered: {early:?}"
    );
    server.resume().await.unwrap();
    let row = insert(&table, 2).await;
    assert!(is_committed(&table.commit(&row).await));
    assert_eq!(read(&table).await.rows.len(), 2);
    // The watch is set again, over the new session.
    let other = connect(server.url()).await.unwrap();
    let heard = tokio::spawn(async move {
        for _ in 0..2 {
            hints.next().await.unwrap();
        }
    });
    for port in 3..100 {
        assert!(is_committed(
            &other.commit(&insert(&other, port).await).await
        ));
        if heard.is_finished() {
            break;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    assert!(
        heard.is_finished(),
        "no hints after the session was replaced"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_session_whose_runtime_is_gone_is_replaced() {
    let server = server(&[]).await;
    let url = server.url().to_owned();
    let made_elsewhere = std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        runtime.block_on(async {
            let table = connect(&url).await.unwrap();
            made(&table).await;
            table
        })
    });
    let table = tokio::task::spawn_blocking(|| made_elsewhere.join().unwrap())
        .await
        .unwrap();
    let mut hints = table.hints().unwrap();
    let everything = membership_core::ReadRequest::all();
    crate::support::until("its session is replaced", async || {
        table.read(&everything).await.is_ok()
    })
    .await;
    let other = connect(server.url()).await.unwrap();
    tokio::time::timeout(Duration::from_secs(30), hints.next())
        .await
        .unwrap()
        .unwrap();
    assert!(is_committed(&other.commit(&insert(&other, 1).await).await));
    assert!(is_committed(&table.commit(&insert(&table, 2).await).await));
    assert_eq!(read(&table).await.rows.len(), 2);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn all_operations_of_a_table_use_one_session() {
    let server = server(&[]).await;
    let before = sessions(&server).await;
    let table = connect(server.url()).await.unwrap();
    made(&table).await;
    let hints = table.hints();
    for port in 1..20 {
        assert!(is_committed(
            &table.commit(&insert(&table, port).await).await
        ));
    }
    assert_eq!(sessions(&server).await, before + 1);
    drop((table, hints));
    crate::support::until("its session is closed", async || {
        sessions(&server).await == before
    })
    .await;
}
