//! What the tests of this crate share: tables in a directory of their own, entries, commits.
#![allow(dead_code, missing_docs, clippy::unwrap_used, clippy::panic)]

use std::path::{Path, PathBuf};
use std::time::Duration;

pub use conformance_tests::helpers::*;
use membership_core::{
    CommitOutcome, CommitRequest, MembershipTable, ReadAnswer, ReadRequest, Snapshot, TableError,
    TableErrorKind, VersionToken,
};
use membership_sql::{SqliteConfig, SqliteTable};

pub struct Place {
    dir: tempfile::TempDir,
}

impl Place {
    pub fn new() -> Self {
        Self {
            dir: tempfile::tempdir().unwrap(),
        }
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
        SqliteTable::connect(SqliteConfig::new(self.path()), cluster.parse().unwrap()).await
    }

    pub async fn impatient(&self, timeout: Duration) -> SqliteTable {
        SqliteTable::connect(
            SqliteConfig::new(self.path()).operation_timeout(timeout),
            "blue".parse().unwrap(),
        )
        .await
        .unwrap()
    }

    /// Another program that has the file open.
    pub fn shell(&self) -> rusqlite::Connection {
        shell(&self.path())
    }

    pub fn remove_file(&self) {
        std::fs::remove_file(self.path()).unwrap();
        self.remove_log();
    }

    pub fn remove_log(&self) {
        for end in ["-wal", "-shm"] {
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

pub async fn read_with(
    table: &SqliteTable,
    known: &VersionToken,
) -> Result<ReadAnswer, TableErrorKind> {
    let request = ReadRequest::all()
        .with_known(known.clone())
        .with_heartbeats(false);
    table.read(&request).await.map_err(|e| e.kind())
}

pub async fn conflicts(table: &SqliteTable, request: &CommitRequest) -> Snapshot {
    match table.commit(request).await.unwrap() {
        CommitOutcome::Conflict(c) => {
            let snapshot = c.snapshot.unwrap();
            assert_eq!(c.newest.as_ref(), snapshot.version_row.recent.last());
            snapshot
        }
        CommitOutcome::Committed(t) => panic!("{t:?}"),
        other => panic!("{other:?}"),
    }
}

pub async fn table_with(place: &Place, rows: u64) -> (SqliteTable, VersionToken) {
    let table = place.open().await;
    let token = fill(&table, rows).await;
    (table, token)
}
