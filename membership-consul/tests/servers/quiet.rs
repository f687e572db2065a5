//! What a read of a quiet cluster brings.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use membership_core::{MembershipTable, ReadAnswer, ReadRequest};
use tokio::io::AsyncWriteExt as _;
use tokio::net::{TcpListener, TcpStream};

use crate::support::*;
use conformance_tests::helpers::*;

/// Counts the bytes that a server answers, on the way to its clients.
async fn counted(server: std::net::SocketAddr) -> (std::net::SocketAddr, Arc<AtomicU64>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let (at, bytes) = (listener.local_addr().unwrap(), Arc::new(AtomicU64::new(0)));
    let counter = bytes.clone();
    tokio::spawn(async move {
        while let Ok((client, _)) = listener.accept().await {
            let server = TcpStream::connect(server).await.unwrap();
            let (mut asks, mut hears) = client.into_split();
            let (answers, mut asked) = server.into_split();
            tokio::spawn(async move { tokio::io::copy(&mut asks, &mut asked).await });
            let counter = counter.clone();
            tokio::spawn(async move {
                let mut part = vec![0; 64 << 10];
                while answers.readable().await.is_ok() {
                    match answers.try_read(&mut part) {
                        Ok(0) => break,
                        Ok(n) => {
                            counter.fetch_add(n as u64, Ordering::SeqCst);
                            hears.write_all(&part[..n]).await.unwrap();
                        }
                        Err(e) if e.kind() == std::io::ErrorKind::WouldBlock => {}
                        Err(_) => break,
                    }
                }
            });
        }
    });
    (at, bytes)
}

/// Who asks for no heartbeats gets the version alone, and the rest when it has changed.
#[tokio::test]
async fn a_quiet_read_without_heartbeats_brings_no_rows() {
    let server = server().await;
    let (relay, bytes) = counted(server.address()).await;
    let url = server
        .url()
        .replace(&server.address().to_string(), &relay.to_string());
    let table = connect(&url).await.unwrap();
    let mut token = fill(&table, 0).await;
    for first in (0..100).step_by(25) {
        token = commit(&table, &insert(&token, first..first + 25)).await;
    }
    for handle in [&table, &connect(&url).await.unwrap()] {
        let before = bytes.load(Ordering::SeqCst);
        let known = ReadRequest::all().with_known(token.clone());
        let answer = handle.read(&known.with_heartbeats(false)).await.unwrap();
        assert!(
            matches!(answer, ReadAnswer::Unchanged { heartbeats: None }),
            "{answer:?}"
        );
        let brought = bytes.load(Ordering::SeqCst) - before;
        assert!(brought < 2_000, "{brought} bytes of a hundred rows");
    }
    let next = commit(&table, &update(&token, 1, "x")).await;
    let known = ReadRequest::all().with_known(token);
    match table.read(&known.with_heartbeats(false)).await.unwrap() {
        ReadAnswer::Snapshot {
            snapshot,
            heartbeats: None,
        } => assert_eq!(snapshot.token, next),
        other => panic!("{other:?}"),
    }
}
