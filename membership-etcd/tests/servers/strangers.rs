//! A server between client and etcd that answers instead of etcd, or that keeps requests and
//! delivers them late. Clauses T5 and T8.

use std::sync::{Arc, Mutex};

use membership_core::{
    CommitOutcome, HeartbeatWrite, MembershipTable, TableErrorKind, VersionToken,
};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

use crate::support::shell::Shell;
use crate::support::*;
use conformance_tests::helpers::*;

/// Answers the first requests of a client, which check that this is etcd, and gives one fixed
/// answer to everything else.
struct Stranger {
    at: String,
    /// The transactions that it received.
    asked: Arc<Mutex<Vec<String>>>,
}

impl Stranger {
    /// Without an answer it closes the connection.
    async fn saying(said: Option<&'static str>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let at = listener.local_addr().unwrap().to_string();
        let asked: Arc<Mutex<Vec<String>>> = Arc::default();
        let all = Arc::clone(&asked);
        tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                let (path, body) = request(&mut stream).await;
                let said = match path.as_str() {
                    "/v3/kv/range" => Some("{\"header\":{\"revision\":\"1\"}}"),
                    _ => {
                        all.lock().unwrap().push(body);
                        said
                    }
                };
                if let Some(said) = said {
                    let head = format!(
                        "HTTP/1.1 200 OK\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
                        said.len()
                    );
                    let _ = stream.write_all(format!("{head}{said}").as_bytes()).await;
                }
            }
        });
        Self { at, asked }
    }
}

/// Path and body of a request.
async fn request(stream: &mut TcpStream) -> (String, String) {
    let (mut text, mut piece) = (Vec::new(), [0; 4096]);
    loop {
        let read = stream.read(&mut piece).await.unwrap_or(0);
        text.extend_from_slice(&piece[..read]);
        let said = String::from_utf8_lossy(&text).into_owned();
        let path = said.split(' ').nth(1).unwrap_or_default().to_owned();
        let Some((head, body)) = said.split_once("\r\n\r\n") else {
            if read == 0 {
                return (path, String::new());
            }
            continue;
        };
        let length = head
            .to_lowercase()
            .split("content-length: ")
            .nth(1)
            .and_then(|rest| rest.lines().next()?.trim().parse().ok());
        if read == 0 || body.len() >= length.unwrap_or(0) {
            return (path, body.to_owned());
        }
    }
}

#[tokio::test]
async fn a_foreign_answer_is_no_empty_table_and_no_success() {
    for said in [
        "{}",
        "{\"status\":\"ok\"}",
        "{\"succeeded\":true}",
        "{\"header\":{},\"succeeded\":true}",
        "{\"header\":{\"revision\":\"7\"}}",
    ] {
        let stranger = Stranger::saying(Some(said)).await;
        let table = connect(&format!("etcd://{}", stranger.at)).await.unwrap();
        let token = unknown_token();
        for known in [None, Some(&token)] {
            assert_eq!(
                read_kind(&table, known).await,
                Err(TableErrorKind::Unavailable),
                "{said}"
            );
            assert_eq!(
                table.read_row(&silo(1), known).await.unwrap_err().kind(),
                TableErrorKind::Unavailable,
                "{said}"
            );
        }
        let unknown = TableErrorKind::OutcomeUnknown;
        assert_eq!(
            initialize(&table).await.unwrap_err().kind(),
            unknown,
            "{said}"
        );
        assert_eq!(
            table
                .update_i_am_alive(&heartbeat(1, 1))
                .await
                .unwrap_err()
                .kind(),
            unknown,
            "{said}"
        );
        let numbered = VersionToken::new(token.table_id(), 3, token.commit(), &2_u64.to_be_bytes());
        for request in [insert(&numbered, [7]), insert(&numbered, [7]).again()] {
            assert_eq!(commit_kind(&table, &request).await, unknown, "{said}");
        }
        assert_eq!(
            table.delete().await.unwrap_err().kind(),
            TableErrorKind::Unavailable,
            "it looks first: {said}"
        );
    }
}

/// What is missing in a damaged answer is not read as an empty range.
#[tokio::test]
async fn a_damaged_answer_is_no_empty_table() {
    for each in [
        "{}",
        r#"{"response_put":{}}"#,
        r#"{"response_range":{"header":{},"count":"4"}}"#,
        r#"{"response_range":{"kvs":[{"value":"YQ==","mod_revision":"3"}],"count":"1"}}"#,
        r#"{"response_range":{"kvs":[{"key":"YQ==","value":"YQ=="}],"count":"1"}}"#,
    ] {
        // A read asks for the version row, the rows and the heartbeats.
        let said = format!(
            r#"{{"header":{{"revision":"7"}},"succeeded":true,"responses":[{each},{each},{each}]}}"#
        );
        let stranger = Stranger::saying(Some(said.leak())).await;
        let table = connect(&format!("etcd://{}", stranger.at)).await.unwrap();
        let kind = read_kind(&table, None).await;
        assert_eq!(kind, Err(TableErrorKind::Unavailable), "{each}");
    }
}

#[tokio::test]
async fn a_late_heartbeat_does_not_replace_a_newer_one() {
    let server = server(&[]).await;
    let (other, shell) = (
        connect(server.url()).await.unwrap(),
        Shell::of(server.url()).await.unwrap(),
    );
    fill(&other, 3).await;
    let cell = |text: &str| HeartbeatWrite::Cluster {
        text: text.to_owned(),
    };
    // First for a heartbeat that was never written before, then for one that was.
    for (first, next) in [
        (heartbeat(1, 1), heartbeat(1, 2)),
        (heartbeat(1, 11), heartbeat(1, 12)),
        (cell("a"), cell("b")),
        (cell("c"), cell("d")),
    ] {
        // The first member keeps the request, and does not answer.
        let stranger = Stranger::saying(None).await;
        let table = connect(&format!("etcd://{},{}", stranger.at, server.address()))
            .await
            .unwrap();
        assert_eq!(
            table.update_i_am_alive(&first).await.unwrap_err().kind(),
            TableErrorKind::OutcomeUnknown
        );
        table.update_i_am_alive(&next).await.unwrap();
        let before = read(&other).await;
        let late = std::mem::take(&mut *stranger.asked.lock().unwrap());
        assert_eq!(late.len(), 1);
        shell
            .call("/v3/kv/txn", serde_json::from_str(&late[0]).unwrap())
            .await
            .unwrap();
        assert_eq!(
            read(&other).await,
            before,
            "{first:?} has arrived after {next:?}"
        );
        // The request was only late, and not wrong: in time it would have been applied.
        table.update_i_am_alive(&first).await.unwrap();
        assert_ne!(read(&other).await, before);
        table.update_i_am_alive(&next).await.unwrap();
    }
}

/// How a member behaves that runs out of space.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Room {
    /// It carries the write out, and answers that it did not.
    CarriesOut,
    /// It does not carry the write out.
    Refuses,
    /// It carries the write out, and then answers no requests any more.
    CarriesOutAndGoes,
}

/// A proxy between a client and etcd that answers writes like a member without space.
async fn without_room(etcd: &str, room: Room) -> String {
    const FULL: &str = "{\"error\":\"etcdserver: mvcc: database space exceeded\",\"code\":8}";
    let (shell, listener) = (
        Shell::of(etcd).await.unwrap(),
        TcpListener::bind("127.0.0.1:0").await.unwrap(),
    );
    let at = listener.local_addr().unwrap().to_string();
    tokio::spawn(async move {
        let mut gone = false;
        while let Ok((mut stream, _)) = listener.accept().await {
            let (path, body) = request(&mut stream).await;
            let writes = body.contains("request_put");
            if gone {
                continue;
            }
            let mut said = format!(
                "429 Too Many Requests\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{FULL}",
                FULL.len()
            );
            if !writes || room != Room::Refuses {
                let answer = shell
                    .call(&path, serde_json::from_str(&body).unwrap())
                    .await
                    .unwrap()
                    .to_string();
                if !writes {
                    said = format!(
                        "200 OK\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{answer}",
                        answer.len()
                    );
                }
            }
            gone = writes && room == Room::CarriesOutAndGoes;
            let _ = stream
                .write_all(format!("HTTP/1.1 {said}").as_bytes())
                .await;
        }
    });
    at
}

#[tokio::test]
async fn a_commit_without_space_is_looked_up() {
    let server = server(&[]).await;
    let judge = connect(server.url()).await.unwrap();
    let mut token = fill(&judge, 3).await;
    for (n, room) in [
        (11, Room::CarriesOut),
        (12, Room::Refuses),
        (13, Room::CarriesOutAndGoes),
    ] {
        let at = without_room(server.url(), room).await;
        let table = connect(&format!("etcd://{at}/?operation_timeout=5s"))
            .await
            .unwrap();
        let request = insert(&token, [n]);
        let answer = table.commit(&request).await;
        let landed = read(&judge).await.0.version() == request.next_version();
        assert_eq!(landed, room != Room::Refuses);
        match room {
            Room::CarriesOut => assert!(
                matches!(answer, Ok(CommitOutcome::Committed(_))),
                "{answer:?}"
            ),
            Room::Refuses => {
                let e = answer.unwrap_err();
                assert!(
                    e.kind() == TableErrorKind::Unavailable && e.to_string().contains("NOSPACE"),
                    "{e}"
                );
                // The first sending may still be applied late.
                assert_eq!(
                    commit_kind(&table, &request.again()).await,
                    TableErrorKind::OutcomeUnknown
                );
            }
            Room::CarriesOutAndGoes => {
                let e = answer.unwrap_err();
                assert!(
                    e.kind() == TableErrorKind::OutcomeUnknown && e.to_string().contains("NOSPACE"),
                    "{e}"
                );
            }
        }
        token = commit(&judge, &request.again()).await;
    }
}
