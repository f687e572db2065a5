//! Answers that DynamoDB Local never gives: global tables, transactions that are still running, a
//! service that is slow page after page. A stand-in passes requests on and replaces some answers.
//! Clauses T5 and T13.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, SystemTime};

use aws_credential_types::provider::future;
use aws_sdk_dynamodb::Client;
use aws_sdk_dynamodb::config::{Credentials, ProvideCredentials};
use membership_core::{MembershipTable, ReadRequest, TableErrorKind};
use membership_dynamo::{DynamoConfig, DynamoTable};
use membership_testbed::Server;
use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

use crate::support::*;
use conformance_tests::helpers::*;

/// What the stand-in does with a request.
enum Turn {
    /// The server's own answer.
    Pass,
    /// This answer; the server never sees the request.
    Answer(u16, serde_json::Value),
    /// The server carries the request out, and this is the answer.
    PassBut(u16, serde_json::Value),
    /// The connection is closed instead.
    Close,
}

/// A refusal of DynamoDB.
fn refusal(code: &str) -> serde_json::Value {
    json!({ "__type": format!("com.amazonaws.dynamodb.v20120810#{code}"), "message": "as planned" })
}

/// The bytes of one HTTP message, with its `x-amz-target`, if it has one.
async fn message(from: &mut TcpStream) -> Option<(String, Vec<u8>)> {
    let (mut all, mut part) = (Vec::new(), [0; 16 << 10]);
    loop {
        let text = String::from_utf8_lossy(&all).into_owned();
        if let Some((head, _)) = text.split_once("\r\n\r\n") {
            let header = |name: &str| {
                let mut lines = head.lines().filter_map(|line| line.split_once(':'));
                let found = lines.find(|(own, _)| own.eq_ignore_ascii_case(name));
                found.map(|(_, value)| value.trim().to_owned())
            };
            let length: usize = header("content-length").map_or(0, |n| n.parse().unwrap());
            let begin = all.windows(4).position(|w| w == b"\r\n\r\n").unwrap() + 4;
            if all.len() >= begin + length {
                let target = header("x-amz-target").unwrap_or_default();
                let action = target.rsplit('.').next().unwrap_or_default();
                return Some((action.to_owned(), all));
            }
        }
        match from.read(&mut part).await.ok()? {
            0 => return None,
            n => all.extend(&part[..n]),
        }
    }
}

async fn serve<F, T>(mut client: TcpStream, server: std::net::SocketAddr, turn: F) -> Option<()>
where
    F: Fn(String) -> T,
    T: Future<Output = Turn>,
{
    loop {
        let (action, request) = message(&mut client).await?;
        let pass = async || {
            let mut to = TcpStream::connect(server).await.ok()?;
            to.write_all(&request).await.ok()?;
            Some(message(&mut to).await?.1)
        };
        let answer = |status: u16, body: serde_json::Value| {
            let body = body.to_string();
            let length = body.len();
            let head = "content-type: application/x-amz-json-1.0\r\ncontent-length";
            format!("HTTP/1.1 {status} .\r\n{head}: {length}\r\n\r\n{body}").into_bytes()
        };
        let answer = match turn(action).await {
            Turn::Pass => pass().await?,
            Turn::Answer(status, body) => answer(status, body),
            Turn::PassBut(status, body) => {
                pass().await?;
                answer(status, body)
            }
            Turn::Close => return None,
        };
        client.write_all(&answer).await.ok()?;
    }
}

/// The table `name` behind a stand-in, as a URL.
async fn behind<F, T>(server: &Server, name: &str, options: &str, turn: F) -> String
where
    F: Fn(String) -> T + Clone + Send + Sync + 'static,
    T: Future<Output = Turn> + Send + 'static,
{
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let (own, server_at) = (listener.local_addr().unwrap(), server.address());
    tokio::spawn(async move {
        while let Ok((client, _)) = listener.accept().await {
            tokio::spawn(serve(client, server_at, turn.clone()));
        }
    });
    at(server, name, options).replace(&server_at.to_string(), &own.to_string())
}

/// A table whose first commit after `fill` comes to this; whatever is read meanwhile comes to
/// `reads`.
async fn first_commit_is(server: &Server, name: &str, commit: Turns, reads: Turns) -> DynamoTable {
    let (filled, done) = (AtomicUsize::new(0), AtomicBool::new(false));
    let state = Arc::new((filled, done));
    let url = behind(server, name, "", move |action| {
        let (writes, done) = &*state;
        // Before it `fill` creates the cluster and inserts its rows.
        let turn = match action.as_str() {
            "TransactWriteItems" => match writes.fetch_add(1, Ordering::Relaxed) {
                2 => commit(),
                3.. => {
                    done.store(true, Ordering::Relaxed);
                    Turn::Pass
                }
                _ => Turn::Pass,
            },
            "GetItem" if writes.load(Ordering::Relaxed) > 2 && !done.load(Ordering::Relaxed) => {
                reads()
            }
            _ => Turn::Pass,
        };
        async { turn }
    });
    connect(&url.await).await.unwrap()
}

type Turns = fn() -> Turn;

/// No transaction runs on a table of several regions, whatever their consistency.
pub async fn a_table_with_replicas_is_refused(server: &Server) {
    let keys = json!([
        { "AttributeName": "cluster", "KeyType": "HASH" },
        { "AttributeName": "item", "KeyType": "RANGE" }
    ]);
    let types = json!([
        { "AttributeName": "cluster", "AttributeType": "S" },
        { "AttributeName": "item", "AttributeType": "S" }
    ]);
    for consistency in ["STRONG", "EVENTUAL"] {
        let described = json!({ "Table": {
            "TableName": "global", "TableStatus": "ACTIVE", "KeySchema": keys,
            "AttributeDefinitions": types, "MultiRegionConsistency": consistency,
            "Replicas": [{ "RegionName": "eu-central-1", "ReplicaStatus": "ACTIVE" }],
        }});
        let url = behind(server, "global", "", move |_| {
            let described = described.clone();
            async { Turn::Answer(200, described) }
        });
        let refused = connect(&url.await).await.unwrap_err();
        assert_eq!(refused.kind(), TableErrorKind::Configuration, "{refused}");
        let said = refused.to_string();
        assert!(
            said.contains("global table") && said.contains("use a table of one region"),
            "{said}"
        );
    }
}

/// One deadline for a whole read: each page comes in time, and there is always another one.
pub async fn a_read_of_many_pages_ends_in_time(server: &Server) {
    let pages = Arc::new(AtomicUsize::new(0));
    let seen = pages.clone();
    let url = behind(server, "pages", "operation_timeout=1s", move |action| {
        let pages = pages.clone();
        async move {
            if action != "Query" {
                return Turn::Pass;
            }
            tokio::time::sleep(Duration::from_millis(200)).await;
            let n = pages.fetch_add(1, Ordering::Relaxed);
            // What would be read if nobody stopped it takes two minutes.
            let key = json!({ "cluster": { "S": "blue" }, "item": { "S": format!("row/{n}") } });
            match n {
                600.. => Turn::Answer(200, json!({ "Items": [] })),
                _ => Turn::Answer(200, json!({ "Items": [], "LastEvaluatedKey": key })),
            }
        }
    });
    let table = connect(&url.await).await.unwrap();
    let error = table.read(&ReadRequest::all()).await.unwrap_err();
    assert_eq!(error.kind(), TableErrorKind::Unavailable, "{error}");
    assert!(error.to_string().contains("within 1s"), "{error}");
    let asked = seen.load(Ordering::Relaxed);
    assert!((1..=6).contains(&asked), "{asked} pages were asked for");
}

/// The transaction of a commit is still running when it is sent: what became of it is looked up.
pub async fn a_commit_that_still_runs_is_looked_up(server: &Server) {
    const RUNS: &str = "TransactionInProgressException";
    let done: Turns = || Turn::PassBut(400, refusal(RUNS));
    let table = first_commit_is(server, "ran", done, || Turn::Pass).await;
    let token = fill(&table, 1).await;
    let made = commit(&table, &insert(&token, [5])).await;
    assert_eq!(read(&table).await.0.token, made);

    // It came to nothing so far, and still may succeed.
    let not_done: Turns = || Turn::Answer(400, refusal(RUNS));
    for reads in [|| Turn::Pass, || Turn::Close] as [Turns; 2] {
        let table = first_commit_is(server, "runs", not_done, reads).await;
        let token = fill(&table, 1).await;
        let request = insert(&token, [5]);
        let kind = commit_kind(&table, &request).await;
        assert_eq!(kind, TableErrorKind::OutcomeUnknown);
        commit(&table, &request.again()).await;
        table.delete().await.unwrap();
    }
}

/// DynamoDB refused the commit, so it did not happen, whether its reason can be found or not.
pub async fn a_refused_commit_is_not_called_unknown(server: &Server) {
    let refused: Turns = || Turn::Answer(400, refusal("IdempotentParameterMismatchException"));
    let table = first_commit_is(server, "refused", refused, || Turn::Close).await;
    let token = fill(&table, 1).await;
    let request = insert(&token, [5]);
    let kind = commit_kind(&table, &request).await;
    assert_eq!(kind, TableErrorKind::Unavailable);
    assert_eq!(read(&table).await.0.token, token);
    // The first attempt of a repeated commit may have happened.
    let table = first_commit_is(server, "repeated", refused, || Turn::Close).await;
    let token = fill(&table, 1).await;
    let again = insert(&token, [6]).again();
    let kind = commit_kind(&table, &again).await;
    assert_eq!(kind, TableErrorKind::OutcomeUnknown);
}

/// Credentials from a service that can hang.
#[derive(Debug)]
struct Keys(Arc<AtomicBool>);

impl ProvideCredentials for Keys {
    fn provide_credentials<'a>(&'a self) -> future::ProvideCredentials<'a>
    where
        Self: 'a,
    {
        future::ProvideCredentials::new(async {
            if self.0.load(Ordering::Relaxed) {
                std::future::pending::<()>().await;
            }
            // They have expired, so that each request asks again.
            let expired = Some(SystemTime::now());
            Ok(Credentials::new("local", SECRET, None, expired, "test"))
        })
    }
}

/// A service that gives credentials hangs: nothing was sent to the table.
pub async fn a_write_without_credentials_is_not_sent(server: &Server) {
    let hangs = Arc::new(AtomicBool::new(false));
    let keys = Keys(hangs.clone());
    let (client, _) = shell(server.url());
    let config = client.config().to_builder().credentials_provider(keys);
    let config = DynamoConfig::from_client(Client::from_conf(config.build()), "unsigned");
    let config = config.operation_timeout(Duration::from_secs(2));
    let table = DynamoTable::connect(config, blue()).await.unwrap();
    let token = fill(&table, 2).await;
    hangs.store(true, Ordering::Relaxed);
    let error = table.commit(&insert(&token, [5])).await.unwrap_err();
    assert_eq!(error.kind(), TableErrorKind::Unavailable, "{error}");
    assert!(error.to_string().contains("credentials"), "{error}");
    let error = table.update_i_am_alive(&heartbeat(1, 1)).await.unwrap_err();
    assert_eq!(error.kind(), TableErrorKind::Unavailable, "{error}");
    hangs.store(false, Ordering::Relaxed);
    assert_eq!(read(&table).await.0.token, token);
}
