//! What the file itself costs: one row in a table of its own, over the same connection and with the
//! same pragmas as the membership table.

use std::sync::Arc;
use std::time::UNIX_EPOCH;

use async_trait::async_trait;
use membership_core::{Baseline, Operation, TableError, TableErrorKind};

use super::client::Inner;
use super::codec::{execute, no_tables};
use super::error::{error, from_sqlite};
use super::session::{Gate, Session};

const CREATE: &str = "CREATE TABLE IF NOT EXISTS membership_baseline (name TEXT NOT NULL PRIMARY KEY, value TEXT NOT NULL) STRICT, WITHOUT ROWID";
const WRITE: &str = "INSERT INTO membership_baseline (name, value) VALUES ('baseline', ?1) ON CONFLICT DO UPDATE SET value = excluded.value";
const READ: &str = "SELECT value FROM membership_baseline WHERE name = 'baseline'";

pub(super) struct SqliteBaseline(pub(super) Arc<Inner>);

impl std::fmt::Debug for SqliteBaseline {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SqliteBaseline").finish_non_exhaustive()
    }
}

#[async_trait]
impl Baseline for SqliteBaseline {
    fn write_is(&self) -> &'static str {
        "upsert of one row by primary key"
    }

    fn read_is(&self) -> &'static str {
        "SELECT of one row by primary key"
    }

    async fn write(&self) -> Result<(), TableError> {
        // A new value each time: SQLite does not write an unchanged row.
        let value = UNIX_EPOCH.elapsed().map_or(0, |since| since.as_nanos());
        let value = format!("{value:0100}");
        let write = move |session: &mut Session, gate: &dyn Gate| {
            match alone(session, gate, WRITE, [&value]) {
                // The table does not exist yet.
                Err(e) if e.kind() == TableErrorKind::Damaged => {
                    alone(session, gate, CREATE, [])?;
                    alone(session, gate, WRITE, [&value])
                }
                done => done,
            }
        };
        self.0.run(Operation::Commit, write).await
    }

    async fn read(&self) -> Result<(), TableError> {
        let read = |session: &mut Session, _: &dyn Gate| {
            let (file, _) = session.file()?.ok_or_else(|| no_tables(None))?;
            // Without the table, preparing fails: nothing was written yet.
            let Ok(mut statement) = file.conn.prepare_cached(READ) else {
                return Ok(());
            };
            let mut rows = statement.query([]).map_err(from_sqlite)?;
            while rows.next().map_err(from_sqlite)?.is_some() {}
            Ok(())
        };
        self.0.run(Operation::Read, read).await
    }

    async fn remove(&self) -> Result<(), TableError> {
        let remove = |session: &mut Session, gate: &dyn Gate| {
            let drop = "DROP TABLE IF EXISTS membership_baseline";
            match alone(session, gate, drop, []) {
                // Without a file there is nothing to remove.
                Err(e) if e.kind() == TableErrorKind::NotInitialized => Ok(()),
                done => done,
            }
        };
        self.0.run(Operation::Delete, remove).await
    }
}

/// A statement that is a transaction of its own.
fn alone(
    session: &mut Session,
    gate: &dyn Gate,
    sql: &str,
    values: impl rusqlite::Params,
) -> Result<(), TableError> {
    let (file, _) = session.file()?.ok_or_else(|| no_tables(None))?;
    if !gate.may_commit() {
        return Err(error(
            TableErrorKind::Busy,
            "the time of the operation is over",
        ));
    }
    execute(&file.conn, sql, values).map(drop)
}
