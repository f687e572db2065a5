//! The HTTP router within an application, and a client that reads too slowly.
#![cfg(feature = "http")]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs)]

mod common;

use std::sync::atomic::Ordering;
use std::time::Duration;

use common::{FaultyTable, PATIENCE, builder, silos, table};
use membership::http::{Dashboard, Options, Server, Token};
use membership::{
    CauseOfDeath, ClusterKey, CommitId, CommitOutcome, CommitRequest, Death, InitializeRequest,
    InstanceId, MembershipEntry, MembershipTable, MemoryTable, SharedSettings, Silo, SiloAddress,
    SiloStatus, TableExt, TableId, WallTime,
};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpStream;

async fn open(server: &Server, last: Option<&str>) -> BufReader<TcpStream> {
    let mut stream = TcpStream::connect(server.address()).await.unwrap();
    let last = last.map_or_else(String::new, |id| format!("Last-Event-ID: {id}\r\n"));
    let request = format!("GET /api/v1/events HTTP/1.0\r\nHost: localhost\r\n{last}\r\n");
    stream.write_all(request.as_bytes()).await.unwrap();
    BufReader::new(stream)
}

async fn line(stream: &mut BufReader<TcpStream>) -> Option<String> {
    let mut line = String::new();
    let read = tokio::time::timeout(PATIENCE, stream.read_line(&mut line));
    (read.await.unwrap().unwrap() > 0).then_some(line)
}

/// A dead silo with a row of 8 KiB.
fn large(port: u16) -> MembershipEntry {
    let silo = SiloAddress::new([127, 9, 9, 9].into(), port, 1);
    let mut entry = MembershipEntry::new(silo, InstanceId::new(port.into()), WallTime::default());
    entry.status = SiloStatus::Dead;
    let at = WallTime::from_millis(4_000_000_000_000);
    entry.death = Some(Death::new(CauseOfDeath::Left, at, None, 1));
    entry
        .info
        .metadata
        .insert("text".to_owned(), "x".repeat(8 << 10));
    entry
}

/// Makes so many views that a client which does not read is left behind.
async fn flood(table: &MemoryTable, silo: &Silo, commits: u16) {
    for port in 1..=commits {
        let (now, _) = table.read_all().await.unwrap();
        let entry = large(1 + port % 2);
        let silo_of = entry.address;
        let exists = now.rows.get(&silo_of).is_some();
        let (insert, remove) = match exists {
            true => (vec![], vec![silo_of.row_key()]),
            false => (vec![entry], vec![]),
        };
        let id = CommitId::new(u128::from(port) << 64);
        let request = CommitRequest::new(now.token, id, None, insert, [], remove);
        let committed = table.commit(&request).await.unwrap();
        if matches!(committed, CommitOutcome::Committed(_)) {
            silo.refresh(Some(now.version_row.version + 1))
                .await
                .unwrap();
        }
        // The journal's task runs in another thread.
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

#[tokio::test]
async fn a_client_that_reads_too_slowly_is_cut_told_so_and_resumes() {
    let table = table();
    let silo = builder(table.clone()).start().await.unwrap();
    let server = Server::start("127.0.0.1:0".parse().unwrap(), Options::new(), None).unwrap();
    server.show(&silo);
    let mut slow = open(&server, None).await;
    let mut id = String::new();
    while id.is_empty() {
        let line = line(&mut slow).await.unwrap();
        id = line
            .strip_prefix("id: ")
            .unwrap_or_default()
            .trim()
            .to_owned();
    }
    // It does not read while this happens.
    flood(&table, &silo, 2_200).await;
    let (mut events, mut lines) = (Vec::new(), 0);
    while let Some(line) = line(&mut slow).await {
        lines += 1;
        if let Some(name) = line.strip_prefix("event: ") {
            events.push(name.trim().to_owned());
        }
        if let Some(new) = line.strip_prefix("id: ") {
            new.trim().clone_into(&mut id);
        }
    }
    assert_eq!(
        events.last().map(String::as_str),
        Some("missed"),
        "{lines} lines"
    );
    assert!(events.len() < 2_200, "{} events came", events.len());
    // With what it got last it is too far behind, and begins with the whole view.
    let mut again = open(&server, Some(&id)).await;
    let first = loop {
        let line = line(&mut again).await.unwrap();
        if let Some(name) = line.strip_prefix("event: ") {
            break name.trim().to_owned();
        }
    };
    assert_eq!(first, "view");
}

#[tokio::test]
async fn neither_router_nor_server_keeps_the_silo_running() {
    let table = table();
    let [silo, other] = silos::<2>(&table).await;
    let server = Server::start("127.0.0.1:0".parse().unwrap(), Options::new(), None).unwrap();
    server.show(&silo);
    let app = membership::http::router(&silo);
    let app = axum::Router::new()
        .merge(app)
        .route("/", axum::routing::get(|| async { "mine" }));
    let me = silo.me();
    drop(silo);
    other
        .wait_for(|view| common::is_dead(view, &me), PATIENCE)
        .await
        .expect("the silo stops with its last handle");
    drop(app);
    let mut stream = TcpStream::connect(server.address()).await.unwrap();
    let request = "GET /livez HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).await.unwrap();
    assert!(
        text.starts_with("HTTP/1.1 503 ") && text.contains("the silo has stopped: left"),
        "{text}"
    );
    let address = server.address();
    drop(server);
    let refused = async {
        while TcpStream::connect(address).await.is_ok() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(PATIENCE, refused)
        .await
        .expect("the server ends when it is dropped");
}

/// A request, and the answer to it as text.
async fn asked(server: &Server, head: &str, body: &str) -> String {
    let mut stream = TcpStream::connect(server.address()).await.unwrap();
    let at = server.address();
    let length = body.len();
    let request =
        format!("{head}Host: {at}\r\nConnection: close\r\nContent-Length: {length}\r\n\r\n{body}");
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).await.unwrap();
    text
}

#[tokio::test]
async fn an_eviction_of_which_the_answer_was_cut_may_have_happened() {
    let inner = table();
    let request = InitializeRequest::new(
        TableId::new(7),
        SharedSettings::default(),
        ClusterKey::new([7; 32]),
    );
    inner.initialize(&request).await.unwrap();
    let mut entry = large(1);
    (entry.status, entry.death) = (SiloStatus::Active, None);
    let silo = entry.address;
    let (now, _) = inner.read_all().await.unwrap();
    let request = CommitRequest::new(now.token, CommitId::new(9), None, vec![entry], [], []);
    inner.commit(&request).await.unwrap();

    let faulty = FaultyTable::new(inner.clone());
    let server = Server::start("127.0.0.1:0".parse().unwrap(), Options::new(), None).unwrap();
    server.show_dashboard(Dashboard::new(faulty.clone()).allow_changes("ops@host"));
    let page = asked(&server, "GET / HTTP/1.1\r\n", "").await;
    let (_, cookie) = page.split_once("set-cookie: ").unwrap();
    let (cookie, _) = cookie.split_once(';').unwrap();
    let head = format!("GET /api/v1/status?wait=0 HTTP/1.1\r\nCookie: {cookie}\r\n");
    let state = asked(&server, &head, "").await;
    let (_, token) = state.split_once("\"change_token\":\"").unwrap();
    let (token, _) = token.split_once('"').unwrap();
    let at = server.address();
    let head = format!(
        "POST /act/evict HTTP/1.1\r\nOrigin: http://{at}\r\nContent-Type: application/json\r\nCookie: {cookie}\r\nMembership-Token: {token}\r\n"
    );
    let cluster = common::cluster();
    let body = format!("{{\"cluster\":\"{cluster}\",\"silo\":\"{silo}\",\"reason\":\"its disk\"}}");

    faulty.cuts.store(true, Ordering::SeqCst);
    let said = asked(&server, &head, &body).await;
    assert!(said.starts_with("HTTP/1.1 504 "), "{said}");
    assert!(said.contains("\"outcome\":\"may_have_happened\""), "{said}");
    assert!(
        said.contains("look at the table before you try again"),
        "{said}"
    );
    let (rows, _) = inner.read_all().await.unwrap();
    assert_eq!(rows.rows.get(&silo).unwrap().status, SiloStatus::Dead);

    faulty.down.store(false, Ordering::SeqCst);
    let said = asked(&server, &head, &body).await;
    assert!(said.contains("\"outcome\":\"nothing_to_do\""), "{said}");
}

#[tokio::test]
async fn a_supervisor_without_a_token_is_not_told_who_voted() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("tokens");
    std::fs::write(&file, "abcdefgh-ijklmnop-1").unwrap();
    let token = Token::file(file).unwrap();
    let table = table();
    let silo = builder(table.clone()).start().await.unwrap();
    let options = Options::new().token(token);
    let server = Server::start("127.0.0.1:0".parse().unwrap(), options, None).unwrap();
    server.show(&silo);
    let me = silo.me();
    let (now, _) = table.read_all().await.unwrap();
    let mut entry = now.rows.get(&me).unwrap().clone();
    entry.status = SiloStatus::Dead;
    let by = SiloAddress::new([10, 1, 2, 3].into(), 7100, 5);
    let at = WallTime::from_millis(4_000_000_000_000);
    entry.death = Some(Death::new(CauseOfDeath::Voted, at, Some(by), 3));
    let request = CommitRequest::new(now.token, CommitId::new(77), None, [], [entry], []);
    table.commit(&request).await.unwrap();
    let _ = silo.refresh(Some(now.version_row.version + 1)).await;
    tokio::time::timeout(PATIENCE, silo.terminated())
        .await
        .unwrap();
    for path in ["/livez", "/readyz"] {
        let said = asked(&server, &format!("GET {path} HTTP/1.1\r\n"), "").await;
        assert!(said.starts_with("HTTP/1.1 503 "), "{said}");
        assert!(said.ends_with("the silo has stopped\n"), "{said}");
    }
    let status = asked(&server, "GET /api/v1/view HTTP/1.1\r\n", "").await;
    assert!(status.starts_with("HTTP/1.1 401 "), "{status}");
}
