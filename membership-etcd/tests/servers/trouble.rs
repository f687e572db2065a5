//! A server of another kind, or one that is full, hangs, or has lower limits than others: clauses
//! T4, T5, T11, T13 and T15.

use std::time::{Duration, Instant};

use membership_core::{MembershipTable, TableErrorKind};
use membership_etcd::{EtcdConfig, EtcdTable};
use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use crate::support::shell::Shell;
use crate::support::*;
use conformance_tests::helpers::*;

/// A server that answers every request with these bytes.
async fn stranger(answer: &'static str) -> String {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let at = listener.local_addr().unwrap().to_string();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let _ = stream.read(&mut [0; 4096]).await;
            let _ = stream.write_all(answer.as_bytes()).await;
        }
    });
    at
}

#[tokio::test]
async fn connections_that_cannot_work_say_why() {
    let server = server(&[]).await;
    let no_etcd = stranger(
        "HTTP/1.1 404 Not Found\r\nContent-Length: 10\r\nConnection: close\r\n\r\nnot found\n",
    )
    .await;
    let web =
        stranger("HTTP/1.1 200 OK\r\nContent-Length: 6\r\nConnection: close\r\n\r\n<html>").await;
    let moved = stranger("HTTP/1.1 301 Moved\r\nLocation: http://h/\r\nContent-Length: 0\r\nConnection: close\r\n\r\n").await;
    let broken =
        stranger("HTTP/1.1 502 Bad Gateway\r\nContent-Length: 3\r\nConnection: close\r\n\r\nbad")
            .await;
    let no_http = stranger("-ERR unknown command\r\n").await;
    let at = server.address().to_string();
    for (scheme, place, kind, words) in [
        (
            "etcd",
            "127.0.0.1:1",
            TableErrorKind::Unavailable,
            "cannot be reached",
        ),
        (
            "etcd",
            "no-such-host.invalid:2379",
            TableErrorKind::Unavailable,
            "cannot be reached",
        ),
        (
            "etcd+https",
            at.as_str(),
            TableErrorKind::Unavailable,
            "does it accept TLS? if not, use etcd://",
        ),
        (
            "etcd",
            no_etcd.as_str(),
            TableErrorKind::Configuration,
            "no etcd 3.4",
        ),
        (
            "etcd",
            web.as_str(),
            TableErrorKind::Unavailable,
            "not one of etcd's",
        ),
        (
            "etcd",
            moved.as_str(),
            TableErrorKind::Configuration,
            "HTTP status 301",
        ),
        (
            "etcd",
            broken.as_str(),
            TableErrorKind::Unavailable,
            "HTTP status 502",
        ),
        (
            "etcd",
            no_http.as_str(),
            TableErrorKind::Unavailable,
            "connection broke",
        ),
    ] {
        let error = connect(&format!(
            "{scheme}://root:{SECRET}@{place}?connect_timeout=2s"
        ))
        .await
        .unwrap_err();
        assert_eq!(error.kind(), kind, "{error}");
        let shown = format!("{error} {error:?}");
        assert!(shown.contains(words) && !shown.contains(SECRET), "{error}");
        assert_eq!(error.place(), Some(place), "{error}");
    }
    // One available member of several is enough, whatever its place in the list.
    let table = connect(&format!("etcd://127.0.0.1:1,{no_http},{at}"))
        .await
        .unwrap();
    fill(&table, 1).await;
}

#[tokio::test]
async fn an_existing_client_is_used() {
    let server = locked_server().await;
    let client = reqwest::Client::builder()
        .retry(reqwest::retry::never())
        .no_proxy()
        .tls_certs_only([])
        .build()
        .unwrap();
    let address = server.address();
    let config = EtcdConfig::new([(address.ip().to_string(), address.port())])
        .credentials("root", SECRET)
        .prefix("ops/mine")
        .client(client);
    let table = EtcdTable::connect(config, blue()).await.unwrap();
    fill(&table, 2).await;
    assert!(!format!("{table:?} {:?}", table.config()).contains(SECRET));
    assert_eq!(
        read(
            &connect(&format!("{}/ops/mine", server.url()))
                .await
                .unwrap()
        )
        .await
        .0
        .rows
        .len(),
        2
    );
    assert_eq!(
        read_kind(&connect(server.url()).await.unwrap(), None).await,
        Err(TableErrorKind::NotInitialized)
    );
}

#[tokio::test]
async fn calls_to_a_frozen_server_time_out() {
    let server = server(&[]).await;
    let table = connect(&format!("{}/?operation_timeout=500ms", server.url()))
        .await
        .unwrap();
    let token = fill(&table, 3).await;
    let request = insert(&token, [7]);
    server.pause().await.unwrap();
    let began = Instant::now();
    assert_eq!(
        read_kind(&table, Some(&token)).await,
        Err(TableErrorKind::Unavailable)
    );
    assert_eq!(
        commit_kind(&table, &request).await,
        TableErrorKind::OutcomeUnknown
    );
    assert_eq!(
        table
            .update_i_am_alive(&heartbeat(1, 1))
            .await
            .unwrap_err()
            .kind(),
        TableErrorKind::OutcomeUnknown
    );
    assert!(began.elapsed() < Duration::from_secs(20));
    server.resume().await.unwrap();
    until("the server is back", async || {
        read_kind(&table, None).await.is_ok()
    })
    .await;
    let made = commit(&table, &request.again()).await;
    assert!(made.same_commit(&request.next_token(&[])), "{made:?}");
    assert_eq!(
        commit(&table, &request).await,
        made,
        "one's own success is never a conflict"
    );
    assert_eq!(read(&table).await.0.token, made);
}

#[tokio::test]
async fn a_full_server_writes_nothing_and_still_reads() {
    let server = server(&["--quota-backend-bytes=4194304"]).await;
    let table = connect(server.url()).await.unwrap();
    let token = fill(&table, 3).await;
    let before = read(&table).await;
    let shell = Shell::of(server.url()).await.unwrap();
    let mut written = 0;
    while shell
        .put("somebody/else", vec![b'x'; 1 << 20])
        .await
        .is_ok()
    {
        written += 1;
        assert!(written < 50, "the quota is no quota");
    }
    for request in [insert(&token, [7]), update(&token, 1, "x")] {
        let error = table.commit(&request).await.unwrap_err();
        assert!(
            error.kind() == TableErrorKind::Unavailable && error.to_string().contains("NOSPACE"),
            "{error}"
        );
    }
    assert_eq!(
        table
            .update_i_am_alive(&heartbeat(1, 1))
            .await
            .unwrap_err()
            .kind(),
        TableErrorKind::Unavailable
    );
    assert_eq!(read(&table).await, before);
    // The remedy that the error and the README name.
    let answer = shell
        .call("/v3/kv/range", json!({ "key": "AA==" }))
        .await
        .unwrap();
    let revision = answer["header"]["revision"].clone();
    shell
        .call(
            "/v3/kv/compaction",
            json!({ "revision": revision, "physical": true }),
        )
        .await
        .unwrap();
    shell
        .call("/v3/maintenance/defragment", json!({}))
        .await
        .unwrap();
    let alarms = shell
        .call("/v3/maintenance/alarm", json!({ "action": "GET" }))
        .await
        .unwrap();
    for alarm in alarms["alarms"].as_array().unwrap() {
        let off = json!({ "action": "DEACTIVATE", "memberID": alarm["memberID"], "alarm": alarm["alarm"] });
        shell.call("/v3/maintenance/alarm", off).await.unwrap();
    }
    commit(&table, &insert(&token, [7])).await;
}

#[tokio::test]
async fn lower_limits_of_a_server_are_reported() {
    let server = server(&["--max-txn-ops=16", "--max-request-bytes=20000"]).await;
    let table = connect(server.url()).await.unwrap();
    let token = fill(&table, 3).await;
    let before = read(&table).await;
    let error = table.commit(&insert(&token, 10..40)).await.unwrap_err();
    assert!(
        error.kind() == TableErrorKind::LimitExceeded
            && error.to_string().contains("--max-txn-ops"),
        "{error}"
    );
    let mut wide = entry(9);
    wide.info.silo_name = "x".repeat(30_000);
    let error = table.commit(&insert_entry(&token, wide)).await.unwrap_err();
    assert!(
        error.kind() == TableErrorKind::LimitExceeded
            && error.to_string().contains("--max-request-bytes"),
        "{error}"
    );
    let mut wider = entry(9);
    wider.info.silo_name = "x".repeat(1_000_000);
    assert_eq!(
        commit_kind(&table, &insert_entry(&token, wider)).await,
        TableErrorKind::LimitExceeded
    );
    assert_eq!(read(&table).await, before);
    commit(&table, &insert(&token, 10..20)).await;
}
