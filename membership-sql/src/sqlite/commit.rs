//! `commit`. Everything that can be computed is computed before the lock is taken; under the lock
//! there is one look at the version row, one statement per changed row, and the flush. Clauses T1
//! to T5, T16.

use std::sync::Arc;

use membership_core::encoding::encode_version_row;
use membership_core::{
    CommitOutcome, CommitRequest, Conflict, Row, RowChange, Settled, Snapshot, TableError,
    VersionRow,
};
use rusqlite::{Transaction, params};

use super::STORE;
use super::client::LIMITS;
use super::codec::{StoredVersion, execute, no_tables, stored_version};
use super::read::{current, snapshot};
use super::session::{Gate, Session, reading, writing};
use crate::shared::{int, shown};

/// The version row that a commit makes.
struct Next {
    base: String,
    row: Arc<VersionRow>,
    text: String,
}

/// What the version row says of a commit.
enum Verdict {
    Apply(Next),
    Committed,
    Conflict(Arc<VersionRow>),
}

pub(super) fn commit(
    session: &mut Session,
    request: &CommitRequest,
    gate: &dyn Gate,
) -> Result<CommitOutcome, TableError> {
    let cluster = session.cluster.clone();
    let missing = || no_tables(Some(&request.expected));
    let (file, cache) = session.file()?.ok_or_else(missing)?;
    let committed = || Ok(CommitOutcome::Committed(request.next_token(&[])));

    // A stale token is refused without taking the lock.
    let tx = reading(&file.conn)?;
    if !file.tables.exist(&tx)? {
        return Err(missing());
    }
    let mut next = match judge(request, stored_version(&tx, &cluster, &cache.decoded)?)? {
        Verdict::Apply(next) => next,
        Verdict::Committed => return committed(),
        Verdict::Conflict(row) => {
            let newest = row.recent.last().cloned();
            let snapshot = snapshot(&tx, &cluster, cache, row).ok();
            return Ok(CommitOutcome::Conflict(Conflict::new(newest, snapshot)));
        }
    };
    drop(tx);

    let tx = writing(&file.conn)?;
    if !file.tables.exist(&tx)? {
        return Err(missing());
    }
    let now = stored_version(&tx, &cluster, &cache.decoded)?;
    let same = |now: &StoredVersion| !now.row.deleting && now.text == next.base;
    if !now.as_ref().is_some_and(same) {
        match judge(request, now)? {
            Verdict::Apply(again) => next = again,
            Verdict::Committed => return committed(),
            Verdict::Conflict(_) => {
                drop(tx);
                return Ok(conflict(current(file, &cluster, cache)));
            }
        }
    }
    for change in &request.changes {
        if !apply(&tx, &cluster, change)? {
            drop(tx);
            return Ok(conflict(current(file, &cluster, cache)));
        }
    }
    let update = "UPDATE membership_version SET version = ?2, body = ?3 WHERE cluster = ?1";
    let values = params![cluster, int(next.row.version), next.text];
    if execute(&tx, update, values)? != 1 {
        return Err(missing());
    }
    file.commit(tx, gate)?;
    cache.decoded.set_version(next.text, next.row);
    committed()
}

fn judge(request: &CommitRequest, stored: Option<StoredVersion>) -> Result<Verdict, TableError> {
    let stored = stored.ok_or_else(|| no_tables(Some(&request.expected)))?;
    Ok(match request.settle(&stored.row, STORE)? {
        Settled::Committed => Verdict::Committed,
        Settled::Conflict => Verdict::Conflict(stored.row),
        Settled::Apply => {
            request.check_room(stored.row.row_count, &LIMITS, STORE)?;
            let row = Arc::new(request.next_version_row(&stored.row));
            Verdict::Apply(Next {
                base: stored.text,
                text: encode_version_row(&row),
                row,
            })
        }
    })
}

/// Writes one row; false if an inserted row exists, or another one does not.
fn apply(tx: &Transaction<'_>, cluster: &str, change: &RowChange) -> Result<bool, TableError> {
    let write = |sql: &str, row: &Row| {
        let (status, written_at) = shown(row);
        let values = params![cluster, row.key(), status, int(written_at), row.body()];
        execute(tx, sql, values)
    };
    let changed = match change {
        RowChange::Insert(row) => write(
            "INSERT INTO membership_silo (cluster, silo, status, written_at, body) VALUES (?1, ?2, ?3, ?4, ?5) ON CONFLICT DO NOTHING",
            row,
        )?,
        RowChange::Update(row) => write(
            "UPDATE membership_silo SET status = ?3, written_at = ?4, body = ?5 WHERE cluster = ?1 AND silo = ?2",
            row,
        )?,
        RowChange::Remove(key) => {
            let delete = "DELETE FROM membership_heartbeat WHERE cluster = ?1 AND silo = ?2";
            execute(tx, delete, [cluster, key])?;
            let delete = "DELETE FROM membership_silo WHERE cluster = ?1 AND silo = ?2";
            execute(tx, delete, [cluster, key])?
        }
    };
    Ok(changed == 1)
}

fn conflict(snapshot: Option<Snapshot>) -> CommitOutcome {
    let row = snapshot.as_ref().map(|snapshot| &snapshot.version_row);
    let newest = row.and_then(|row| row.recent.last().cloned());
    CommitOutcome::Conflict(Conflict::new(newest, snapshot))
}
