//! What a SQL Server can answer, played by a stub of its protocol. The statements themselves run in
//! `mssql_conformance.rs`, over a real server.
#![cfg(feature = "mssql")]
#![allow(missing_docs, clippy::unwrap_used, clippy::panic)]

#[path = "../support/tds.rs"]
mod tds;

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use conformance_tests::helpers::{heartbeat, insert, silo};
use membership_core::{
    CommitOutcome, CommitRequest, MembershipTable, ReadAnswer, ReadRequest, SharedSettings,
    TableError, TableErrorKind as Kind, TableId, VersionRow, VersionToken,
};
use membership_sql::{MssqlConfig, MssqlEncryption, MssqlTable};
use tds::{Cell, NULL, Refusal, Reply, Stub, at, line};

/// A table without rows, at version 0.
const ID: u128 = 7;
const COMMIT: &str = "UPDATE membership_version";

fn token() -> VersionToken {
    VersionRow::initial(TableId::new(ID), SharedSettings::default()).token(&[])
}

fn version_row(version: u64, commit: &str, record: Option<String>) -> Vec<Cell> {
    let settings = serde_json::to_string(&SharedSettings::default()).unwrap();
    let mut columns = serde_json::json!({
        "table_id": TableId::new(ID).to_string(), "version": version, "commit_id": commit, "deleting": false, "row_count": version,
        "layout": 1, "min_layout": 1, "settings": settings, "core": "\"\"", "extra": "{}",
    });
    if let Some(record) = record {
        columns["recent_1"] = record.into();
    }
    line(0, None, Some(&columns.to_string()), None)
}

fn unchanged() -> Vec<Vec<Cell>> {
    vec![version_row(0, &format!("{:032x}", 0), None)]
}

/// The table after another client's commit.
fn moved_on(other: &CommitRequest) -> Vec<Vec<Cell>> {
    let record = serde_json::to_string(&other.record()).unwrap();
    let mut rows = vec![version_row(1, &other.id.to_string(), Some(record))];
    for change in &other.changes {
        let membership_core::RowChange::Insert(row) = change else {
            continue;
        };
        rows.push(line(1, Some(row.key()), Some(row.body()), None));
    }
    rows
}

/// What the checks of a connection find.
fn found(statement: &str, group: bool) -> Option<Reply> {
    if statement.contains("SET XACT_ABORT") {
        return Some(Reply::Sets(Vec::new(), None));
    }
    if statement.contains("EngineEdition") {
        let facts = [
            ("edition", 3),
            ("version", 16),
            ("level", 160),
            ("delayed", 0),
            ("group", i64::from(group)),
            ("read only", 0),
        ];
        let facts = facts.map(|(name, value)| line(7, Some(name), None, Some(value)));
        return Some(Reply::rows(facts.to_vec()));
    }
    if statement.contains("sys.columns") {
        let script = MssqlConfig::schema_sql();
        let mut columns = Vec::new();
        for part in script.split("CREATE TABLE ").skip(1) {
            let (table, rest) = part.split_once(" (\n").unwrap();
            let names = rest.split(");").next().unwrap().lines().map(str::trim);
            for name in names.filter_map(|column| column.split(' ').next()) {
                columns.push(at(
                    7,
                    Some(table),
                    Some(name),
                    Some(1),
                    Some("Latin1_General_100_BIN2"),
                ));
            }
        }
        let marks = [
            ("product", "silo-membership"),
            ("layout", "1"),
            ("min_layout", "1"),
        ];
        let marks = marks.map(|(name, value)| at(7, Some("mark"), Some(value), None, Some(name)));
        return Some(Reply::Sets(vec![columns, marks.to_vec()], None));
    }
    None
}

fn config(stub: &Stub) -> MssqlConfig {
    MssqlConfig::new("127.0.0.1", "app")
        .port(stub.address.port())
        .user("silo")
        .password("hunter2")
        .encrypt(MssqlEncryption::Never)
        .operation_timeout(Duration::from_secs(2))
}

async fn connect(config: MssqlConfig) -> Result<MssqlTable, TableError> {
    MssqlTable::connect(config, "billing/blue".parse().unwrap()).await
}

/// A server that accepts every login and gives this answer to what is no check.
async fn answering(answer: impl Fn(&str) -> Reply + Send + Sync + 'static) -> (Stub, MssqlTable) {
    let answer =
        move |statement: &str| found(statement, false).unwrap_or_else(|| answer(statement));
    let stub = Stub::start(|_| None, answer).await;
    let table = connect(config(&stub)).await.unwrap();
    stub.requests();
    (stub, table)
}

async fn refused(refusal: Refusal) -> TableError {
    let answer = |statement: &str| found(statement, false).unwrap();
    let stub = Stub::start(move |_| Some(refusal), answer).await;
    let e = connect(config(&stub)).await.unwrap_err();
    assert!(!format!("{e} {e:?}").contains("hunter2"), "{e:?}");
    e
}

#[tokio::test]
async fn a_quiet_read_is_one_round_trip() {
    let (stub, table) = answering(|_| Reply::rows(unchanged())).await;
    let ReadAnswer::Snapshot { snapshot, .. } = table.read(&ReadRequest::all()).await.unwrap()
    else {
        panic!("no snapshot");
    };
    assert_eq!((snapshot.token, snapshot.rows.len()), (token(), 0));
    let mut request = ReadRequest::all();
    request.known = Some(token());
    let answer = table.read(&request).await.unwrap();
    assert!(matches!(answer, ReadAnswer::Unchanged { .. }), "{answer:?}");
    let requests = stub.requests();
    assert_eq!((requests.len(), stub.logins()), (2, 1), "{requests:?}");
    assert!(
        requests.iter().all(|it| it.contains("HOLDLOCK")),
        "{requests:?}"
    );
    assert!(!requests.iter().any(|it| it.contains(NULL)), "{requests:?}");
}

/// Takes everything that is logged.
struct Log(Arc<Mutex<String>>);

impl tracing::Subscriber for Log {
    fn enabled(&self, _: &tracing::Metadata<'_>) -> bool {
        true
    }

    fn new_span(&self, _: &tracing::span::Attributes<'_>) -> tracing::span::Id {
        tracing::span::Id::from_u64(1)
    }

    fn record(&self, _: &tracing::span::Id, _: &tracing::span::Record<'_>) {}

    fn record_follows_from(&self, _: &tracing::span::Id, _: &tracing::span::Id) {}

    fn event(&self, event: &tracing::Event<'_>) {
        event.record(
            &mut |field: &tracing::field::Field, value: &dyn std::fmt::Debug| {
                *self.0.lock().unwrap() += &format!("{field}={value:?} ");
            },
        );
    }

    fn enter(&self, _: &tracing::span::Id) {}

    fn exit(&self, _: &tracing::span::Id) {}
}

#[tokio::test]
async fn the_driver_logs_no_row_and_no_password() {
    let log = Arc::<Mutex<String>>::default();
    let _logged = tracing::subscriber::set_default(Log(Arc::clone(&log)));
    let answer = |_: &str| Reply::rows(vec![line(0, None, Some("planted-word"), None)]);
    let (_stub, table) = answering(answer).await;
    table.read(&ReadRequest::all()).await.unwrap_err();
    tracing::info!("the end");
    let log = log.lock().unwrap();
    assert!(log.contains("the end"), "{log}");
    for secret in ["planted-word", "hunter2"] {
        assert!(!log.contains(secret), "{log}");
    }
}

#[tokio::test]
async fn a_won_commit_is_one_round_trip() {
    let answer = |_: &str| Reply::Sets(vec![Reply::number(4), Reply::number(5)], None);
    let (stub, table) = answering(answer).await;
    let won = table.commit(&insert(&token(), [1])).await.unwrap();
    assert!(
        matches!(&won, CommitOutcome::Committed(next) if next.version() == 1),
        "{won:?}"
    );
    let requests = stub.requests();
    assert!(!requests.iter().any(|it| it.contains(NULL)), "{requests:?}");
    assert!(requests.len() > 1 && requests.last().unwrap().contains(COMMIT));
    assert_eq!(requests.iter().filter(|it| it.contains(COMMIT)).count(), 1);
    assert_eq!(stub.logins(), 2, "commits have a connection of their own");
}

#[tokio::test]
async fn a_lost_commit_is_a_conflict_with_the_table() {
    let other = insert(&token(), [2]);
    let table_now = moved_on(&other);
    let (stub, table) = answering(move |_| Reply::rows(table_now.clone())).await;
    let CommitOutcome::Conflict(conflict) = table.commit(&insert(&token(), [1])).await.unwrap()
    else {
        panic!("it was committed");
    };
    assert_eq!(conflict.newest.map(|newest| newest.id), Some(other.id));
    let snapshot = conflict.snapshot.unwrap();
    assert_eq!((snapshot.version(), snapshot.rows.len()), (1, 1));
    assert!(snapshot.rows.by_key(&silo(2).row_key()).is_some());
    // The same sent again finds its own commit.
    let again = table.commit(&other.clone().again()).await.unwrap();
    assert!(matches!(again, CommitOutcome::Committed(_)), "{again:?}");
    assert!(stub.requests().len() >= 2);
}

#[tokio::test]
async fn errors_before_commit_are_certain_and_keep_the_connection() {
    let next = Arc::new(Mutex::new((0, 0)));
    let now = Arc::clone(&next);
    let (stub, table) = answering(move |_| {
        let (number, class) = *now.lock().unwrap();
        Reply::error(number, class)
    })
    .await;
    for (number, class, kind) in [
        (1205, 13, Kind::Busy),
        (1222, 16, Kind::Busy),
        (3960, 16, Kind::Busy),
        (10928, 16, Kind::Busy),
        (10929, 16, Kind::Busy),
        (49918, 16, Kind::Busy),
        (229, 14, Kind::PermissionDenied),
        (515, 16, Kind::Damaged),
        (2628, 16, Kind::LimitExceeded),
    ] {
        *next.lock().unwrap() = (number, class);
        let e = table.commit(&insert(&token(), [1])).await.unwrap_err();
        assert_eq!(e.kind(), kind, "{number}: {e}");
        assert!(e.to_string().contains(&number.to_string()), "{e}");
        let e = table.update_i_am_alive(&heartbeat(1, 5)).await.unwrap_err();
        assert_eq!(e.kind(), kind, "{number}: {e}");
    }
    assert_eq!(stub.logins(), 2);
}

#[tokio::test]
async fn a_commit_whose_end_is_not_seen_may_have_happened() {
    let lost = [
        // The server ends the connection, or does not answer.
        Reply::Close,
        Reply::Silence,
        Reply::error(40501, 20),
        Reply::error(596, 21),
        Reply::error(6005, 14),
        Reply::error(9001, 21),
        // Everything was written, and COMMIT failed.
        Reply::Sets(vec![Reply::number(4)], Some((3314, 17))),
        Reply::Sets(vec![Reply::number(4)], Some((1205, 13))),
    ];
    for (n, reply) in lost.into_iter().enumerate() {
        let (stub, table) = answering(move |_| reply.clone()).await;
        let began = Instant::now();
        let e = table.commit(&insert(&token(), [1])).await.unwrap_err();
        assert_eq!(e.kind(), Kind::OutcomeUnknown, "{n}: {e}");
        let sent = stub.requests();
        let sent = sent.iter().filter(|it| it.contains(COMMIT)).count();
        assert_eq!(sent, 1, "{n}: it is not sent twice");
        assert!(began.elapsed() < Duration::from_secs(30));
    }
}

#[tokio::test]
async fn a_read_without_an_answer_is_asked_again_and_certainly_did_nothing() {
    let asked = Arc::new(AtomicUsize::new(0));
    let counts = Arc::clone(&asked);
    let (stub, table) = answering(move |_| match counts.fetch_add(1, Ordering::SeqCst) {
        1 => Reply::Close,
        _ => Reply::rows(unchanged()),
    })
    .await;
    table.read(&ReadRequest::all()).await.unwrap();
    table.read(&ReadRequest::all()).await.unwrap();
    assert_eq!((asked.load(Ordering::SeqCst), stub.logins()), (3, 2));
    let (_stub, table) = answering(|_| Reply::Silence).await;
    let e = table.read(&ReadRequest::all()).await.unwrap_err();
    assert_eq!(e.kind(), Kind::Unavailable, "{e}");
}

#[tokio::test]
async fn a_commit_that_is_dropped_closes_its_connection() {
    let asked = Arc::new(AtomicUsize::new(0));
    let counts = Arc::clone(&asked);
    let (stub, table) = answering(move |_| match counts.fetch_add(1, Ordering::SeqCst) {
        0 => Reply::Silence,
        _ => Reply::Sets(vec![Reply::number(4), Reply::number(5)], None),
    })
    .await;
    let request = insert(&token(), [1]);
    let dropped = tokio::time::timeout(Duration::from_millis(300), table.commit(&request)).await;
    assert!(dropped.is_err());
    let won = table.commit(&request).await.unwrap();
    assert!(matches!(won, CommitOutcome::Committed(_)), "{won:?}");
    assert_eq!(stub.logins(), 3);
}

#[tokio::test]
async fn logins_are_refused_for_now_or_for_good() {
    for (number, class, kind) in [
        (18456, 14, Kind::PermissionDenied),
        (18488, 14, Kind::PermissionDenied),
        (40615, 14, Kind::PermissionDenied),
        (4060, 11, Kind::Configuration),
        (40501, 20, Kind::Busy),
        (49918, 16, Kind::Busy),
        (10928, 20, Kind::Busy),
        (40613, 17, Kind::Unavailable),
        (40197, 17, Kind::Unavailable),
        (18401, 14, Kind::Unavailable),
        (976, 14, Kind::Unavailable),
        (978, 14, Kind::Unavailable),
    ] {
        let e = refused((number, class)).await;
        assert_eq!(e.kind(), kind, "{number}: {e}");
    }
}

#[tokio::test]
async fn a_database_that_was_open_once_may_be_open_again() {
    let answer = |statement: &str| found(statement, false).unwrap_or(Reply::Close);
    let stub = Stub::start(|n| (n > 0).then_some((4060, 11)), answer).await;
    let table = connect(config(&stub)).await.unwrap();
    let e = table.read(&ReadRequest::all()).await.unwrap_err();
    assert_eq!(e.kind(), Kind::Unavailable, "{e}");
}

#[tokio::test]
async fn a_secondary_is_left() {
    let asked = Arc::new(AtomicUsize::new(0));
    let counts = Arc::clone(&asked);
    let (stub, table) = answering(move |_| {
        let mut rows = unchanged();
        if counts.fetch_add(1, Ordering::SeqCst) == 0 {
            rows.push(line(6, None, None, None));
        }
        Reply::rows(rows)
    })
    .await;
    table.read(&ReadRequest::all()).await.unwrap();
    assert_eq!(stub.logins(), 2);
}

#[tokio::test]
async fn an_availability_group_promises_only_what_it_is_told() {
    use membership_core::{Durability, Recency};
    let answer =
        |statement: &str| found(statement, true).unwrap_or_else(|| Reply::rows(unchanged()));
    let stub = Stub::start(|_| None, answer).await;
    for (promise, reads, kept) in [
        (None, Recency::MonotonicPerClient, Durability::MayBeLost),
        (Some(true), Recency::Linearizable, Durability::MayBeLost),
        (Some(false), Recency::Linearizable, Durability::Kept),
    ] {
        let mut config = config(&stub);
        if let Some(promise) = promise {
            config = config.failover_may_lose(promise);
        }
        let table = connect(config).await.unwrap();
        let guarantees = table.guarantees();
        assert_eq!(
            (guarantees.reads, guarantees.durability),
            (reads, kept),
            "{promise:?}"
        );
        let mut request = ReadRequest::all();
        request.barrier = true;
        let barrier = table.read(&request).await;
        assert_eq!(
            barrier.map_err(|e| e.kind()).err(),
            promise.is_none().then_some(Kind::Unavailable)
        );
    }
}

#[tokio::test]
async fn every_address_of_a_name_is_tried() {
    // `localhost` has an IPv4 and an IPv6 address on most machines; the server has only one.
    let answer = |statement: &str| found(statement, false).unwrap();
    let stub = Stub::start(|_| None, answer).await;
    let config = MssqlConfig::new("localhost", "app").port(stub.address.port());
    let config = config
        .user("silo")
        .password("p")
        .encrypt(MssqlEncryption::Never);
    connect(config).await.unwrap();
}

#[tokio::test]
async fn a_heartbeat_says_why_it_was_not_written() {
    let done = |rows: Vec<Vec<Cell>>, n| {
        let mut rows = rows;
        rows.push(line(5, None, None, Some(n)));
        Reply::rows(rows)
    };
    for (reply, kind) in [
        (done(Vec::new(), 1), None),
        (done(unchanged(), 0), Some(Kind::NoSuchRow)),
        (done(Vec::new(), 0), Some(Kind::NotInitialized)),
        (Reply::rows(unchanged()), Some(Kind::OutcomeUnknown)),
    ] {
        let (_stub, table) = answering(move |statement| {
            assert!(!statement.contains(COMMIT));
            reply.clone()
        })
        .await;
        let written = table.update_i_am_alive(&heartbeat(1, 5)).await;
        assert_eq!(written.map_err(|e| e.kind()).err(), kind);
    }
}
