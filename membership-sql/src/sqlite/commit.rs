//! Writes of a running cluster: commits and heartbeats.
//!
//! Everything that can be computed is computed before the lock is taken; while it is held there is one look at the version row, one
//! statement per changed row, and the flush. Rules: clauses T1 to T5, T7, T8 and T16.

use std::sync::Arc;

use membership_core::{
    CommitOutcome, CommitRequest, Conflict, HeartbeatWrite, Judgement, MAX_CLUSTER_CELL_BYTES,
    RowChange, TableError, TableErrorKind, TableLimits, VersionRow, encoding::encode_version_row,
};
use rusqlite::{Transaction, params};

use super::error::{error, from_sqlite};
use super::read::{Cache, StoredVersion, absent, current, fresh, snapshot, stored_version};
use super::schema::{self, int};
use super::session::{File, Gate, Session, reading, writing};

/// The version row that a commit makes, ready to be written.
struct Next {
    base: String,
    row: Arc<VersionRow>,
    text: String,
}

/// What a look at the version row came to.
enum Verdict {
    Apply(Next),
    Answer(CommitOutcome),
    Conflict(Arc<VersionRow>),
}

/// `commit`
pub(super) fn commit(
    session: &mut Session,
    request: &CommitRequest,
    limits: &TableLimits,
    gate: &dyn Gate,
) -> Result<CommitOutcome, TableError> {
    let cluster = session.cluster.clone();
    let Some((file, cache)) = session.file()? else {
        return Err(absent(Some(&request.expected)));
    };

    // A stale token is told without taking the lock.
    let looking = reading(&file.conn)?;
    if !schema::present(&looking, &mut file.checked)? {
        return Err(absent(Some(&request.expected)));
    }
    let mut next = match judge(request, stored_version(&looking, &cluster, cache)?, limits)? {
        Verdict::Apply(next) => next,
        Verdict::Answer(outcome) => return Ok(outcome),
        Verdict::Conflict(row) => {
            let newest = row.recent.last().cloned();
            let snapshot = snapshot(&looking, &cluster, cache, row).ok();
            return Ok(CommitOutcome::Conflict(Conflict { newest, snapshot }));
        }
    };
    drop(looking);

    let tx = writing(&file.conn)?;
    if !schema::present(&tx, &mut file.checked)? {
        return Err(absent(Some(&request.expected)));
    }
    let now = stored_version(&tx, &cluster, cache)?;
    if now
        .as_ref()
        .is_none_or(|now| now.deleting || now.text != next.base)
    {
        match judge(request, now, limits)? {
            Verdict::Apply(again) => next = again,
            Verdict::Answer(outcome) => return Ok(outcome),
            Verdict::Conflict(_) => {
                drop(tx);
                return Ok(conflict(file, &cluster, cache));
            }
        }
    }
    for change in &request.changes {
        if !apply(&tx, &cluster, change)? {
            drop(tx);
            return Ok(conflict(file, &cluster, cache));
        }
    }
    let changed = tx
        .prepare_cached("UPDATE membership_version SET version = ?2, body = ?3 WHERE cluster = ?1")
        .and_then(|mut s| s.execute(params![cluster, int(next.row.version), next.text]))
        .map_err(from_sqlite)?;
    if changed != 1 {
        return Err(absent(Some(&request.expected)));
    }
    file.commit(tx, gate)?;
    cache.set_version(next.text, next.row);
    Ok(CommitOutcome::Committed(request.next_token(&[])))
}

fn judge(
    request: &CommitRequest,
    stored: Option<StoredVersion>,
    limits: &TableLimits,
) -> Result<Verdict, TableError> {
    let Some(stored) = stored else {
        return Err(absent(Some(&request.expected)));
    };
    match request.judge(&stored.row) {
        Judgement::Refused(TableErrorKind::TableReplaced) => Err(error(
            TableErrorKind::TableReplaced,
            "the table has another id than the one the commit is for",
        )),
        _ if stored.deleting => Err(error(
            TableErrorKind::BeingDeleted,
            "the cluster is being deleted",
        )),
        Judgement::Refused(kind) => Err(error(
            kind,
            format!(
                "the table is at version {}, which is not what the commit's token leads to",
                stored.row.version
            ),
        )),
        Judgement::OutcomeUnknown => Err(error(
            TableErrorKind::OutcomeUnknown,
            format!(
                "the table has moved from version {} to {} since",
                request.expected.version(),
                stored.row.version
            ),
        )),
        Judgement::AlreadyCommitted => Ok(Verdict::Answer(CommitOutcome::Committed(
            request.next_token(&[]),
        ))),
        Judgement::Conflict => Ok(Verdict::Conflict(stored.row)),
        Judgement::Apply => {
            let row = request.next_version_row(&stored.row);
            let rows = usize::try_from(row.row_count).unwrap_or(usize::MAX);
            if rows > limits.rows && row.row_count > stored.row.row_count {
                return Err(error(
                    TableErrorKind::LimitExceeded,
                    format!(
                        "the table would have {rows} rows, and takes {}",
                        limits.rows
                    ),
                ));
            }
            let text = encode_version_row(&row);
            Ok(Verdict::Apply(Next {
                base: stored.text,
                row: Arc::new(row),
                text,
            }))
        }
    }
}

/// One row; false when it is there already or is not there.
fn apply(tx: &Transaction<'_>, cluster: &str, change: &RowChange) -> Result<bool, TableError> {
    let write = |sql: &str, row: &membership_core::Row| {
        let (status, written_at) = row
            .entry()
            .map_or(("", 0), |e| (e.status.as_str(), e.written_at));
        tx.prepare_cached(sql)
            .and_then(|mut s| {
                s.execute(params![
                    cluster,
                    row.key(),
                    status,
                    int(written_at),
                    row.body()
                ])
            })
            .map_err(from_sqlite)
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
            let run = |sql: &str| {
                tx.prepare_cached(sql)
                    .and_then(|mut s| s.execute([cluster, key]))
                    .map_err(from_sqlite)
            };
            run("DELETE FROM membership_heartbeat WHERE cluster = ?1 AND silo = ?2")?;
            run("DELETE FROM membership_silo WHERE cluster = ?1 AND silo = ?2")?
        }
    };
    Ok(changed == 1)
}

fn conflict(file: &mut File, cluster: &str, cache: &mut Cache) -> CommitOutcome {
    let snapshot = fresh(file, cluster, cache);
    let newest = snapshot
        .as_ref()
        .and_then(|s| s.version_row.recent.last().cloned());
    CommitOutcome::Conflict(Conflict { newest, snapshot })
}

/// `update_i_am_alive`: one statement writes, and sees to it that there is a row and that the counter does not fall.
pub(super) fn update_i_am_alive(
    session: &mut Session,
    write: &HeartbeatWrite,
    gate: &dyn Gate,
) -> Result<(), TableError> {
    if let HeartbeatWrite::Cluster { text } = write
        && text.len() > MAX_CLUSTER_CELL_BYTES
    {
        return Err(error(
            TableErrorKind::LimitExceeded,
            format!("the cluster's cell takes {MAX_CLUSTER_CELL_BYTES} bytes"),
        ));
    }
    let cluster = session.cluster.clone();
    let Some((file, cache)) = session.file()? else {
        return Err(absent(None));
    };
    let tx = writing(&file.conn)?;
    current(&tx, &mut file.checked, &cluster, cache, None)?;
    match write {
        HeartbeatWrite::Cluster { text } => {
            tx.prepare_cached("INSERT INTO membership_cell (cluster, text) VALUES (?1, ?2) ON CONFLICT DO UPDATE SET text = excluded.text")
                .and_then(|mut s| s.execute([&cluster, text]))
                .map_err(from_sqlite)?;
        }
        HeartbeatWrite::Silo { silo, heartbeat } => {
            let key = silo.row_key();
            let changed = tx
                .prepare_cached(
                    "INSERT INTO membership_heartbeat (cluster, silo, counter, at)
                     SELECT cluster, silo, ?3, ?4 FROM membership_silo WHERE cluster = ?1 AND silo = ?2
                     ON CONFLICT DO UPDATE SET counter = excluded.counter, at = excluded.at WHERE excluded.counter >= counter",
                )
                .and_then(|mut s| s.execute(params![cluster, key, int(heartbeat.counter), heartbeat.at.to_string()]))
                .map_err(from_sqlite)?;
            if changed == 0 {
                // There is no row, or a newer heartbeat is there already.
                let row: bool = tx
                    .prepare_cached("SELECT EXISTS (SELECT 1 FROM membership_silo WHERE cluster = ?1 AND silo = ?2)")
                    .and_then(|mut s| s.query_row([&cluster, &key], |r| r.get(0)))
                    .map_err(from_sqlite)?;
                let missing = || {
                    error(
                        TableErrorKind::NoSuchRow,
                        "there is no row for this heartbeat",
                    )
                    .with_key(key)
                };
                return if row { Ok(()) } else { Err(missing()) };
            }
        }
    }
    file.commit(tx, gate)
}
