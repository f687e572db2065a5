//! What the tests of this crate share: tables in a directory of their own, entries, commits.
#![allow(dead_code, missing_docs, clippy::unwrap_used, clippy::panic)]

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use membership_core::{
    CommitId, CommitOutcome, CommitRequest, Heartbeat, HeartbeatWrite, Heartbeats, InitializeRequest, InstanceId, MembershipEntry,
    MembershipTable, ReadAnswer, ReadRequest, SharedSettings, SiloAddress, Snapshot, TableError, TableErrorKind, TableId, VersionToken,
    WallTime,
};
use membership_sql::{SqliteConfig, SqliteTable};

pub struct Place {
    dir: tempfile::TempDir,
}

impl Place {
    pub fn new() -> Self {
        Self { dir: tempfile::tempdir().unwrap() }
    }

    pub fn path(&self) -> PathBuf {
        self.dir.path().join("members.db")
    }

    pub fn beside(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    pub async fn open(&self) -> SqliteTable {
        self.open_as("blue").await.unwrap()
    }

    pub async fn open_as(&self, cluster: &str) -> Result<SqliteTable, TableError> {
        SqliteTable::open(SqliteConfig::new(self.path()), cluster.parse().unwrap()).await
    }

    pub async fn impatient(&self, timeout: Duration) -> SqliteTable {
        SqliteTable::open(SqliteConfig::new(self.path()).operation_timeout(timeout), "blue".parse().unwrap()).await.unwrap()
    }

    /// Another program with the file open.
    pub fn shell(&self) -> rusqlite::Connection {
        shell(&self.path())
    }

    pub fn remove_file(&self) {
        for end in ["", "-wal", "-shm"] {
            let path = self.beside(&format!("members.db{end}"));
            if path.exists() {
                std::fs::remove_file(path).unwrap();
            }
        }
    }
}

pub fn shell(path: &Path) -> rusqlite::Connection {
    let conn = rusqlite::Connection::open(path).unwrap();
    conn.busy_timeout(Duration::from_secs(10)).unwrap();
    conn
}

/// A number that was not given out before, in any process.
pub fn unique() -> u128 {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    let nanos = std::time::UNIX_EPOCH.elapsed().unwrap().subsec_nanos();
    (u128::from(NEXT.fetch_add(1, Ordering::Relaxed)) << 64) | (u128::from(std::process::id()) << 32) | u128::from(nanos)
}

pub fn silo(n: u64) -> SiloAddress {
    SiloAddress::new([10, 0, 0, 1].into(), u16::try_from(n % 50_000).unwrap(), n + 1)
}

pub fn entry(n: u64) -> MembershipEntry {
    MembershipEntry::new(silo(n), InstanceId::new(u128::from(n)), WallTime::from_millis(1_763_000_000_000 + n))
}

pub fn insert(on: &VersionToken, numbers: impl IntoIterator<Item = u64>) -> CommitRequest {
    CommitRequest::new(on.clone(), CommitId::new(unique()), None, numbers.into_iter().map(entry), [], [])
}

pub fn update(on: &VersionToken, n: u64, name: &str) -> CommitRequest {
    let mut e = entry(n);
    e.silo_name = name.to_owned();
    CommitRequest::new(on.clone(), CommitId::new(unique()), None, [], [e], [])
}

pub fn remove(on: &VersionToken, n: u64) -> CommitRequest {
    CommitRequest::new(on.clone(), CommitId::new(unique()), None, [], [], [silo(n).row_key()])
}

pub async fn initialize(table: &SqliteTable) -> Result<(), TableError> {
    table.initialize(&InitializeRequest { table_id: TableId::new(unique()), settings: SharedSettings::default() }).await
}

pub async fn read(table: &SqliteTable) -> (Snapshot, Heartbeats) {
    match table.read(&ReadRequest::all()).await.unwrap() {
        ReadAnswer::Snapshot { snapshot, heartbeats } => (snapshot, heartbeats.unwrap()),
        other => panic!("{other:?}"),
    }
}

pub async fn read_with(table: &SqliteTable, known: &VersionToken) -> Result<ReadAnswer, TableErrorKind> {
    let request = ReadRequest { known: Some(known.clone()), heartbeats: false, barrier: false };
    table.read(&request).await.map_err(|e| e.kind())
}

pub async fn commit(table: &SqliteTable, request: &CommitRequest) -> VersionToken {
    match table.commit(request).await.unwrap() {
        CommitOutcome::Committed(token) => token,
        CommitOutcome::Conflict(c) => panic!("{c:?}"),
    }
}

pub async fn conflicts(table: &SqliteTable, request: &CommitRequest) -> Snapshot {
    match table.commit(request).await.unwrap() {
        CommitOutcome::Conflict(c) => {
            let snapshot = c.snapshot.unwrap();
            assert_eq!(c.newest.as_ref(), snapshot.version_row.recent.last());
            snapshot
        }
        CommitOutcome::Committed(t) => panic!("{t:?}"),
    }
}

pub fn beat(n: u64, counter: u64) -> HeartbeatWrite {
    HeartbeatWrite::Silo { silo: silo(n), heartbeat: Heartbeat { counter, at: WallTime::from_millis(counter) } }
}

pub async fn table_with(place: &Place, rows: u64) -> (SqliteTable, VersionToken) {
    let table = place.open().await;
    initialize(&table).await.unwrap();
    let (start, _) = read(&table).await;
    let token = if rows == 0 { start.token } else { commit(&table, &insert(&start.token, 0..rows)).await };
    (table, token)
}
