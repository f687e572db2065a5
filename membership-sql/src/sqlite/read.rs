//! Reads: one transaction that sees one moment, and nothing decoded twice.

use std::sync::Arc;

use membership_core::{
    Discontinuity, Heartbeat, Heartbeats, ReadAnswer, ReadRequest, Row, RowRead, Rows, SiloAddress,
    Snapshot, TableError, TableErrorKind, VersionRow, VersionToken, WallTime, check_token,
    encoding::{VersionRowError, decode_version_row},
};
use rusqlite::{OptionalExtension, Transaction};

use super::error::{error, from_sqlite};
use super::schema::{self, text};
use super::session::{File, Session, reading};

/// What was read last. Texts are always read and compared, so that a row changed by hand is noticed; only decoding is spared.
#[derive(Default)]
pub(super) struct Cache {
    version: Option<(String, Arc<VersionRow>)>,
    /// In the order of their keys, as the store has them.
    list: Vec<Row>,
    rows: Rows,
}

impl Cache {
    /// What this handle wrote itself.
    pub(super) fn set_version(&mut self, text: String, row: Arc<VersionRow>) {
        self.version = Some((text, row));
    }
}

/// A stored version row.
pub(super) struct StoredVersion {
    pub(super) row: Arc<VersionRow>,
    pub(super) text: String,
    pub(super) deleting: bool,
}

/// `read`
pub(super) fn read(session: &mut Session, request: &ReadRequest) -> Result<ReadAnswer, TableError> {
    let cluster = session.cluster.clone();
    let known = request.known.as_ref();
    let Some((file, cache)) = session.file()? else {
        return Err(absent(known));
    };
    let tx = reading(&file.conn)?;
    let version = current(&tx, &mut file.checked, &cluster, cache, known)?;
    let token = version.row.token(&[]);
    let heartbeats = if request.heartbeats {
        Some(heartbeats(&tx, &cluster)?)
    } else {
        None
    };
    if known.is_some_and(|k| k.same_commit(&token)) {
        return Ok(ReadAnswer::Unchanged { heartbeats });
    }
    let rows = rows(&tx, &cluster, cache)?;
    Ok(ReadAnswer::Snapshot {
        snapshot: Snapshot {
            version_row: version.row,
            token,
            rows,
        },
        heartbeats,
    })
}

/// `read_row`
pub(super) fn read_row(
    session: &mut Session,
    silo: &SiloAddress,
    known: Option<&VersionToken>,
) -> Result<RowRead, TableError> {
    let cluster = session.cluster.clone();
    let Some((file, cache)) = session.file()? else {
        return Err(absent(known));
    };
    let tx = reading(&file.conn)?;
    let version = current(&tx, &mut file.checked, &cluster, cache, known)?;
    let token = version.row.token(&[]);
    let key = silo.row_key();
    let body = tx
        .prepare_cached("SELECT body FROM membership_silo WHERE cluster = ?1 AND silo = ?2")
        .and_then(|mut s| s.query_row([&cluster, &key], |r| Ok(text(r, 0))).optional())
        .map_err(from_sqlite)?
        .transpose()?;
    let Some(body) = body else {
        return Ok(RowRead {
            token,
            row: None,
            heartbeat: None,
        });
    };
    let row = match cache.rows.by_key(&key) {
        Some(row) if row.body() == body => row.clone(),
        _ => Row::decode(key.clone(), body),
    };
    let heartbeat = tx
        .prepare_cached(
            "SELECT counter, at FROM membership_heartbeat WHERE cluster = ?1 AND silo = ?2",
        )
        .and_then(|mut s| s.query_row([&cluster, &key], |r| Ok(beat(r, 0))).optional())
        .map_err(from_sqlite)?
        .transpose()?;
    Ok(RowRead {
        token,
        row: Some(row),
        heartbeat,
    })
}

/// The whole table as it is in this transaction.
pub(super) fn snapshot(
    tx: &Transaction<'_>,
    cluster: &str,
    cache: &mut Cache,
    row: Arc<VersionRow>,
) -> Result<Snapshot, TableError> {
    Ok(Snapshot {
        token: row.token(&[]),
        version_row: row,
        rows: rows(tx, cluster, cache)?,
    })
}

/// The table as it is now, for the answer to a conflict: as good as it can be had, and none when it cannot.
pub(super) fn fresh(file: &mut File, cluster: &str, cache: &mut Cache) -> Option<Snapshot> {
    let tx = reading(&file.conn).ok()?;
    let version = current(&tx, &mut file.checked, cluster, cache, None).ok()?;
    snapshot(&tx, cluster, cache, version.row).ok()
}

/// The version row of a table that may be used, and that `known` can be of.
///
/// # Errors
/// Every way of not being usable: clauses T12 and T16.
pub(super) fn current(
    tx: &Transaction<'_>,
    checked: &mut Option<i64>,
    cluster: &str,
    cache: &mut Cache,
    known: Option<&VersionToken>,
) -> Result<StoredVersion, TableError> {
    if !schema::present(tx, checked)? {
        return Err(absent(known));
    }
    let Some(version) = stored_version(tx, cluster, cache)? else {
        return Err(match (known, orphan(tx, cluster)?) {
            (None, Some(key)) => rows_without_version(&key),
            _ => absent(known),
        });
    };
    let continuity = known.map_or(Ok(()), |known| check_token(known, &version.row));
    if continuity == Err(Discontinuity::Replaced) {
        return Err(error(
            TableErrorKind::TableReplaced,
            "the table has another id than the one that was known",
        ));
    }
    if version.deleting {
        return Err(error(
            TableErrorKind::BeingDeleted,
            "the cluster is being deleted",
        ));
    }
    if continuity.is_err() {
        return Err(error(
            TableErrorKind::TableRolledBack,
            format!("the table is at version {}", version.row.version),
        ));
    }
    Ok(version)
}

/// The version row of the cluster, decoded unless it is the one that was read last.
///
/// # Errors
/// What [`VersionRowError`] says, or SQLite.
pub(super) fn stored_version(
    tx: &Transaction<'_>,
    cluster: &str,
    cache: &mut Cache,
) -> Result<Option<StoredVersion>, TableError> {
    let stored = tx
        .prepare_cached("SELECT body, deleting FROM membership_version WHERE cluster = ?1")
        .and_then(|mut s| {
            s.query_row([cluster], |r| Ok((text(r, 0), r.get::<_, i64>(1)?)))
                .optional()
        })
        .map_err(from_sqlite)?;
    let Some((text, deleting)) = stored else {
        return Ok(None);
    };
    let text = text?;
    let row = match &cache.version {
        Some((known, row)) if *known == text => Arc::clone(row),
        _ => {
            let row = Arc::new(decode_version_row(&text).map_err(|e| {
                let kind = match e {
                    VersionRowError::Foreign(_) => TableErrorKind::ForeignTable,
                    VersionRowError::NewerLayout { .. } => TableErrorKind::NewerLayout,
                    _ => TableErrorKind::Damaged,
                };
                error(kind, e.to_string())
            })?);
            cache.version = Some((text.clone(), Arc::clone(&row)));
            row
        }
    };
    let deleting = deleting != 0 || row.deleting;
    Ok(Some(StoredVersion {
        row,
        text,
        deleting,
    }))
}

/// Some row of the cluster, to be named in an error.
pub(super) fn orphan(tx: &Transaction<'_>, cluster: &str) -> Result<Option<String>, TableError> {
    tx.prepare_cached("SELECT silo FROM membership_silo WHERE cluster = ?1 LIMIT 1")
        .and_then(|mut s| s.query_row([cluster], |r| Ok(text(r, 0))).optional())
        .map_err(from_sqlite)?
        .transpose()
}

/// The error for rows that stand without a version row.
pub(super) fn rows_without_version(key: &str) -> TableError {
    error(
        TableErrorKind::Damaged,
        "the cluster has rows but no version row",
    )
    .with_key(key)
}

/// The error for no version row.
pub(super) fn absent(known: Option<&VersionToken>) -> TableError {
    match known {
        None => error(
            TableErrorKind::NotInitialized,
            "the file has no such cluster",
        ),
        Some(_) => error(
            TableErrorKind::TableReplaced,
            "the table that was known is gone",
        ),
    }
}

/// Walks through what is stored and what was read last side by side, both in the order of their keys: rows with the same text are the
/// same object again, and the set changes by what changed.
fn rows(tx: &Transaction<'_>, cluster: &str, cache: &mut Cache) -> Result<Rows, TableError> {
    let mut set = std::mem::take(&mut cache.rows);
    let mut old = std::mem::take(&mut cache.list).into_iter().peekable();
    let mut list = Vec::with_capacity(old.len());
    let mut statement = tx
        .prepare_cached("SELECT silo, body FROM membership_silo WHERE cluster = ?1 ORDER BY silo")
        .map_err(from_sqlite)?;
    let mut stored = statement.query([cluster]).map_err(from_sqlite)?;
    let mut plain = true;
    while let Some(row) = stored.next().map_err(from_sqlite)? {
        let borrowed = (
            row.get_ref(0).map_err(from_sqlite)?.as_str(),
            row.get_ref(1).map_err(from_sqlite)?.as_str(),
        );
        let (Ok(key), Ok(body)) = borrowed else {
            // Not UTF-8: still a row, undecodable; but its place in the order of the store is not its place in ours.
            plain = false;
            list.push(Row::decode(text(row, 0)?, text(row, 1)?));
            continue;
        };
        while let Some(gone) = old.next_if(|o| o.key() < key) {
            set.remove(gone.key());
        }
        list.push(match old.next_if(|o| o.key() == key) {
            Some(same) if same.body() == body => same,
            _ => {
                let new = Row::decode(key, body);
                set.insert(new.clone());
                new
            }
        });
    }
    if !plain {
        return Ok(list.into_iter().collect());
    }
    for gone in old {
        set.remove(gone.key());
    }
    cache.list = list;
    cache.rows = set.clone();
    Ok(set)
}

fn heartbeats(tx: &Transaction<'_>, cluster: &str) -> Result<Heartbeats, TableError> {
    let mut all = Heartbeats::default();
    {
        // A heartbeat without a row is an orphan, and is not shown (clause T8).
        let mut statement = tx
            .prepare_cached(
                "SELECT h.silo, h.counter, h.at FROM membership_heartbeat h
                 WHERE h.cluster = ?1 AND EXISTS (SELECT 1 FROM membership_silo s WHERE s.cluster = h.cluster AND s.silo = h.silo)",
            )
            .map_err(from_sqlite)?;
        let mut stored = statement.query([cluster]).map_err(from_sqlite)?;
        while let Some(row) = stored.next().map_err(from_sqlite)? {
            if let Some(silo) = row
                .get_ref(0)
                .map_err(from_sqlite)?
                .as_str()
                .ok()
                .and_then(|s| s.parse().ok())
            {
                all.silos.insert(silo, beat(row, 1)?);
            }
        }
    }
    all.cluster = tx
        .prepare_cached("SELECT text FROM membership_cell WHERE cluster = ?1")
        .and_then(|mut s| s.query_row([cluster], |r| Ok(text(r, 0))).optional())
        .map_err(from_sqlite)?
        .transpose()?;
    Ok(all)
}

/// Only the counter decides anything; a time that somebody made unreadable is shown as 1970.
fn beat(row: &rusqlite::Row<'_>, first: usize) -> Result<Heartbeat, TableError> {
    let counter: i64 = row.get(first).map_err(from_sqlite)?;
    let at = row
        .get_ref(first + 1)
        .map_err(from_sqlite)?
        .as_str()
        .ok()
        .and_then(|t| t.parse().ok());
    Ok(Heartbeat {
        counter: u64::try_from(counter).unwrap_or(0),
        at: at.unwrap_or(WallTime::from_millis(0)),
    })
}

/// The version, for hints: none when there is none.
pub(super) fn version_number(session: &mut Session) -> Option<u64> {
    let cluster = session.cluster.clone();
    let (file, _) = session.file().ok()??;
    let number: i64 = file
        .conn
        .prepare_cached("SELECT version FROM membership_version WHERE cluster = ?1")
        .and_then(|mut s| s.query_row([cluster], |r| r.get(0)))
        .ok()?;
    u64::try_from(number).ok()
}
