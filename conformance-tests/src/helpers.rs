//! Helpers for a provider's own tests. They panic on anything unexpected.
#![allow(clippy::unwrap_used, clippy::panic, reason = "helpers of tests")]

use std::fmt::Debug;
use std::future::Future;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use membership_core::{
    ClusterKey, ClusterName, CommitId, CommitOutcome, CommitRequest, Heartbeat, HeartbeatWrite,
    Heartbeats, InitializeRequest, InstanceId, MembershipEntry, MembershipTable, ReadAnswer,
    ReadRequest, SharedSettings, SiloAddress, Snapshot, TableError, TableErrorKind, TableExt as _,
    TableId, VersionToken, WallTime,
};
use tokio::time::timeout;

use crate::suite::Suite;

/// Runs the suite, and fails the test unless every case passes. The sum is printed in both cases.
#[allow(clippy::print_stdout, reason = "the last line of the report")]
pub async fn passes(suite: Suite) {
    let report = suite.run().await;
    assert!(report.passed(), "{report}");
    println!("{}", report.summary());
}

/// A number that is unique across processes.
pub fn unique() -> u128 {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    let nanos = std::time::UNIX_EPOCH.elapsed().unwrap().subsec_nanos();
    (u128::from(NEXT.fetch_add(1, Ordering::Relaxed)) << 64)
        | (u128::from(std::process::id()) << 32)
        | u128::from(nanos)
}

/// A name that no other user of the servers has.
pub fn new_user() -> String {
    let [.., a, b, c, d, e, f] = unique().to_be_bytes().map(|byte| format!("{byte:02x}"));
    format!("reader{a}{b}{c}{d}{e}{f}")
}

/// The address of the silo with this number.
pub fn silo(n: u64) -> SiloAddress {
    SiloAddress::new(
        [10, 0, 0, 1].into(),
        u16::try_from(n % 50_000).unwrap(),
        n + 1,
    )
}

/// The row of the silo with this number.
pub fn entry(n: u64) -> MembershipEntry {
    MembershipEntry::new(
        silo(n),
        InstanceId::new(u128::from(n)),
        WallTime::from_millis(1_763_000_000_000 + n),
    )
}

/// A commit that inserts the rows of these silos.
pub fn insert(on: &VersionToken, numbers: impl IntoIterator<Item = u64>) -> CommitRequest {
    CommitRequest::new(
        on.clone(),
        CommitId::new(unique()),
        None,
        numbers.into_iter().map(entry),
        [],
        [],
    )
}

/// A commit that gives this silo another name.
pub fn update(on: &VersionToken, n: u64, name: &str) -> CommitRequest {
    let mut e = entry(n);
    e.info.silo_name = name.to_owned();
    CommitRequest::new(on.clone(), CommitId::new(unique()), None, [], [e], [])
}

/// A commit that removes this silo's row.
pub fn remove(on: &VersionToken, n: u64) -> CommitRequest {
    CommitRequest::new(
        on.clone(),
        CommitId::new(unique()),
        None,
        [],
        [],
        [silo(n).row_key()],
    )
}

/// Initializes a table with a unique table id.
///
/// # Errors
/// The table's.
pub async fn initialize(table: &dyn MembershipTable) -> Result<(), TableError> {
    table
        .initialize(&InitializeRequest::new(
            TableId::new(unique()),
            SharedSettings::default(),
            ClusterKey::new([7; 32]),
        ))
        .await
}

/// Reads everything.
pub async fn read(table: &dyn MembershipTable) -> (Snapshot, Heartbeats) {
    match table.read(&ReadRequest::all()).await.unwrap() {
        ReadAnswer::Snapshot {
            snapshot,
            heartbeats,
        } => (snapshot, heartbeats.unwrap()),
        other => panic!("{other:?}"),
    }
}

/// The kind of error with which a read ends.
///
/// # Errors
/// That kind.
pub async fn read_kind(
    table: &dyn MembershipTable,
    known: Option<&VersionToken>,
) -> Result<(), TableErrorKind> {
    let request = ReadRequest::all().with_known(known.cloned());
    table.read(&request).await.map(drop).map_err(|e| e.kind())
}

/// A commit that must succeed; the token after it.
pub async fn commit(table: &dyn MembershipTable, request: &CommitRequest) -> VersionToken {
    match table.commit(request).await.unwrap() {
        CommitOutcome::Committed(token) => token,
        other => panic!("{other:?}"),
    }
}

/// The kind of error with which a commit ends.
pub async fn commit_kind(table: &dyn MembershipTable, request: &CommitRequest) -> TableErrorKind {
    table
        .commit(request)
        .await
        .map(|outcome| panic!("{outcome:?}"))
        .unwrap_err()
        .kind()
}

/// A heartbeat of this silo.
pub fn heartbeat(n: u64, counter: u64) -> HeartbeatWrite {
    HeartbeatWrite::Silo {
        silo: silo(n),
        heartbeat: Heartbeat {
            counter,
            at: WallTime::from_millis(counter),
        },
    }
}

/// Initializes a table and inserts this many rows.
pub async fn fill(table: &dyn MembershipTable, rows: u64) -> VersionToken {
    initialize(table).await.unwrap();
    let (start, _) = read(table).await;
    if rows == 0 {
        start.token
    } else {
        commit(table, &insert(&start.token, 0..rows)).await
    }
}

/// A token of a table that does not exist.
pub fn unknown_token() -> VersionToken {
    VersionToken::new(TableId::new(1), 5, CommitId::new(1), &[])
}

/// A commit that inserts this row.
pub fn insert_entry(on: &VersionToken, entry: MembershipEntry) -> CommitRequest {
    CommitRequest::new(on.clone(), CommitId::new(unique()), None, [entry], [], [])
}

/// A cluster for tests that need only one.
pub fn blue() -> ClusterName {
    "blue".parse().unwrap()
}

/// Reads all that clients read which are no silos (`GatewayList`, `membership status`). The table has
/// the row of silo 1.
pub async fn read_like_a_client(client: &dyn MembershipTable) -> (Snapshot, Heartbeats) {
    let all = client.read_all().await.unwrap();
    let known = &all.0.token;
    for request in [
        ReadRequest::default(),
        ReadRequest::all(),
        ReadRequest::default().with_new_connection(true),
    ] {
        client.read(&request).await.unwrap();
        let again = request.with_known(known.clone());
        client.read(&again).await.unwrap();
    }
    for known in [None, Some(known)] {
        assert!(
            client
                .read_row(&silo(1), known)
                .await
                .unwrap()
                .row
                .is_some()
        );
    }
    client.gateways().await.unwrap();
    all
}

/// Tries all writes on an existing table: each must be refused for a missing permission.
pub async fn writes_are_denied(client: &dyn MembershipTable) {
    let token = &read(client).await.0.token;
    for request in [insert(token, [77]), update(token, 1, "x"), remove(token, 1)] {
        let kind = commit_kind(client, &request).await;
        assert_eq!(kind, TableErrorKind::PermissionDenied, "{request:?}");
    }
    let cell = HeartbeatWrite::Cluster {
        text: "x".to_owned(),
    };
    for write in [heartbeat(1, 99), cell] {
        let error = client.update_i_am_alive(&write).await.unwrap_err();
        assert_eq!(error.kind(), TableErrorKind::PermissionDenied, "{error}");
    }
    // It may find that the table exists, and write nothing.
    if let Err(error) = initialize(client).await {
        assert_eq!(error.kind(), TableErrorKind::PermissionDenied, "{error}");
    }
    let error = client.delete().await.unwrap_err();
    assert_eq!(error.kind(), TableErrorKind::PermissionDenied, "{error}");
}

/// Requires that the user of `client` may do all that clients do, and write nothing. `owner` may do
/// everything, and its cluster has no table yet.
pub async fn may_only_read(client: &dyn MembershipTable, owner: &dyn MembershipTable) {
    let token = fill(owner, 3).await;
    owner.update_i_am_alive(&heartbeat(1, 1)).await.unwrap();
    let before = read(owner).await;
    assert_eq!(read_like_a_client(client).await, before);
    writes_are_denied(client).await;
    assert_eq!(read(owner).await, before);
    let hints = client.hints();
    let next = commit(owner, &insert(&token, [4])).await;
    if let Some(mut hints) = hints {
        let hint = std::future::poll_fn(|cx| hints.as_mut().poll_next(cx));
        let hint = timeout(Duration::from_secs(30), hint).await;
        assert_eq!(hint, Ok(Some(())), "no hints");
    }
    let since = ReadRequest::default().with_known(token);
    match client.read(&since).await.unwrap() {
        ReadAnswer::Snapshot { snapshot, .. } => {
            assert!(snapshot.token.same_commit(&next) && snapshot.rows.len() == 4);
        }
        other => panic!("{other:?}"),
    }
    owner.delete().await.unwrap();
    let error = initialize(client).await.unwrap_err();
    assert_eq!(error.kind(), TableErrorKind::PermissionDenied, "{error}");
    let gone = read_kind(owner, None).await;
    assert_eq!(gone, Err(TableErrorKind::NotInitialized));
}

/// Waits until a condition holds, for as long as a busy machine may need.
pub async fn until<F: Future<Output = bool>>(what: &str, mut holds: impl FnMut() -> F) {
    let deadline = Instant::now() + Duration::from_secs(120);
    while !holds().await {
        assert!(Instant::now() < deadline, "timeout of two minutes: {what}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// Requires that each of these URLs is refused with a reason, as in `mystore://h:x => port`, and
/// that no error shows `secret`.
pub fn urls_are_refused<C: Debug>(
    read: impl Fn(&str) -> Result<C, TableError>,
    secret: &str,
    cases: &[&str],
) {
    for case in cases {
        let (url, why) = case.split_once(" => ").unwrap();
        let error = read(url).map(|it| panic!("{url}: {it:?}")).unwrap_err();
        assert_eq!(error.kind(), TableErrorKind::Configuration, "{url}");
        let said = format!("{error} {error:?}");
        let shows = said.contains(secret);
        assert!(error.to_string().contains(why) && !shows, "{url}: {error}");
    }
}
