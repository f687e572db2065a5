//! What the file itself costs: one row in a table apart, over the same connection and with the same pragmas as the membership table.

use std::sync::Arc;
use std::time::UNIX_EPOCH;

use async_trait::async_trait;
use membership_core::{Operation, TableError, TableErrorKind, Yardstick};

use super::error::{error, from_sqlite};
use super::read::absent;
use super::session::Gate;
use super::session::Session;
use super::table::Inner;

const CREATE: &str = "CREATE TABLE IF NOT EXISTS membership_yardstick (name TEXT NOT NULL PRIMARY KEY, value TEXT NOT NULL) STRICT, WITHOUT ROWID";
const WRITE: &str = "INSERT INTO membership_yardstick (name, value) VALUES ('yardstick', ?1) ON CONFLICT DO UPDATE SET value = excluded.value";
const READ: &str = "SELECT value FROM membership_yardstick WHERE name = 'yardstick'";

/// One row, written and read by its primary key.
pub(super) struct SqliteYardstick(pub(super) Arc<Inner>);

impl std::fmt::Debug for SqliteYardstick {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SqliteYardstick").finish_non_exhaustive()
    }
}

#[async_trait]
impl Yardstick for SqliteYardstick {
    fn write_is(&self) -> &'static str {
        "upsert of one row by primary key"
    }

    fn read_is(&self) -> &'static str {
        "SELECT of one row by primary key"
    }

    async fn write(&self) -> Result<(), TableError> {
        // Another value each time: SQLite does not write what is there already.
        let value = format!(
            "{:0100}",
            UNIX_EPOCH.elapsed().map_or(0, |since| since.as_nanos())
        );
        self.0
            .worker
            .call(Operation::Commit, move |session, gate| {
                write(session, &value, gate)
            })
            .await
    }

    async fn read(&self) -> Result<(), TableError> {
        self.0
            .worker
            .call(Operation::Read, |session, _| read(session))
            .await
    }

    async fn remove(&self) -> Result<(), TableError> {
        self.0.worker.call(Operation::Delete, remove).await
    }
}

/// A single statement is a transaction of its own.
fn alone(
    session: &mut Session,
    gate: &dyn Gate,
    sql: &str,
    values: impl rusqlite::Params,
) -> Result<(), TableError> {
    let Some((file, _)) = session.file()? else {
        return Err(absent(None));
    };
    if !gate.may_commit() {
        return Err(error(
            TableErrorKind::Busy,
            "the time of the operation is over",
        ));
    }
    file.conn
        .prepare_cached(sql)
        .and_then(|mut s| s.execute(values))
        .map(|_| ())
        .map_err(from_sqlite)
}

fn write(session: &mut Session, value: &str, gate: &dyn Gate) -> Result<(), TableError> {
    match alone(session, gate, WRITE, [value]) {
        // There is no such table yet.
        Err(e) if e.kind() == TableErrorKind::Damaged => {
            alone(session, gate, CREATE, [])?;
            alone(session, gate, WRITE, [value])
        }
        done => done,
    }
}

fn read(session: &mut Session) -> Result<(), TableError> {
    let Some((file, _)) = session.file()? else {
        return Err(absent(None));
    };
    // Without the table, preparing fails: nothing was written yet.
    let Ok(mut statement) = file.conn.prepare_cached(READ) else {
        return Ok(());
    };
    let mut rows = statement.query([]).map_err(from_sqlite)?;
    while rows.next().map_err(from_sqlite)?.is_some() {}
    Ok(())
}

fn remove(session: &mut Session, gate: &dyn Gate) -> Result<(), TableError> {
    match alone(
        session,
        gate,
        "DROP TABLE IF EXISTS membership_yardstick",
        [],
    ) {
        // Where there is no file, nothing is left in it.
        Err(e) if e.kind() == TableErrorKind::NotInitialized => Ok(()),
        done => done,
    }
}
