//! `read` and `read_row`: one transaction that sees one moment.

use std::sync::Arc;

use membership_core::{
    Heartbeats, Operation, ReadAnswer, ReadRequest, Row, RowRead, Rows, SiloAddress, Snapshot,
    TableError, VersionRow, VersionToken, check_version_row,
};
use rusqlite::Transaction;

use super::STORE;
use super::codec::{
    StoredVersion, first, heartbeat_at, no_file, no_tables, no_version, stored_version, text,
};
use super::error::from_sqlite;
use super::session::{Cache, File, Session, reading};
use crate::shared::add;

pub(super) fn read(session: &mut Session, request: &ReadRequest) -> Result<ReadAnswer, TableError> {
    let (cluster, known) = (session.cluster.clone(), request.known.as_ref());
    if request.new_connection {
        session.close()?;
    }
    let Some((file, cache)) = session.file()? else {
        return Err(no_file(known));
    };
    let tx = reading(&file.conn)?;
    let row = usable(&tx, file, &cluster, cache, known)?.row;
    let heartbeats = request.heartbeats.then(|| heartbeats(&tx, &cluster));
    let heartbeats = heartbeats.transpose()?;
    if known.is_some_and(|known| known.same_commit(&row.token(&[]))) {
        return Ok(ReadAnswer::Unchanged { heartbeats });
    }
    let snapshot = snapshot(&tx, &cluster, cache, row)?;
    Ok(ReadAnswer::new(known, snapshot, heartbeats))
}

pub(super) fn read_row(
    session: &mut Session,
    silo: &SiloAddress,
    known: Option<&VersionToken>,
) -> Result<RowRead, TableError> {
    let (cluster, key) = (session.cluster.clone(), silo.row_key());
    let Some((file, cache)) = session.file()? else {
        return Err(no_file(known));
    };
    let tx = reading(&file.conn)?;
    let version = usable(&tx, file, &cluster, cache, known)?;
    let select = "SELECT body FROM membership_silo WHERE cluster = ?1 AND silo = ?2";
    let body = first(&tx, select, [&cluster, &key], |row| text(row, 0))?;
    let select = "SELECT counter, at FROM membership_heartbeat WHERE cluster = ?1 AND silo = ?2";
    let heartbeat = first(&tx, select, [&cluster, &key], |row| heartbeat_at(row, 0))?;
    Ok(RowRead::new(
        version.row.token(&[]),
        body.map(|body| cache.decoded.row(&key, &body)),
        heartbeat,
    )
    .with_version_row(version.row))
}

/// The whole table in this transaction.
///
/// # Errors
/// The error of SQLite.
pub(super) fn snapshot(
    tx: &Transaction<'_>,
    cluster: &str,
    cache: &mut Cache,
    row: Arc<VersionRow>,
) -> Result<Snapshot, TableError> {
    let rows = rows(tx, cluster, cache)?;
    Ok(cache.decoded.snapshot(row, rows))
}

/// The current table for the answer to a conflict; none if it cannot be read.
pub(super) fn current(file: &File, cluster: &str, cache: &mut Cache) -> Option<Snapshot> {
    let tx = reading(&file.conn).ok()?;
    let version = usable(&tx, file, cluster, cache, None).ok()?;
    snapshot(&tx, cluster, cache, version.row).ok()
}

/// The version row of a table that may be used and that `known` may be from. Clauses T12, T16.
///
/// # Errors
/// As [`usable_version_row`](membership_core::usable_version_row), or the error of SQLite.
pub(super) fn usable(
    tx: &Transaction<'_>,
    file: &File,
    cluster: &str,
    cache: &Cache,
    known: Option<&VersionToken>,
) -> Result<StoredVersion, TableError> {
    if !file.tables.exist(tx)? {
        return Err(no_tables(known));
    }
    let Some(version) = stored_version(tx, cluster, &cache.decoded)? else {
        return Err(no_version(tx, cluster, known)?);
    };
    check_version_row(&version.row, known, Operation::Read, STORE)?;
    Ok(version)
}

/// Walks through the stored rows and the last rows side by side, both in the order of their keys.
/// Rows with the same text are not copied and not decoded again.
fn rows(tx: &Transaction<'_>, cluster: &str, cache: &mut Cache) -> Result<Rows, TableError> {
    let mut all = cache.decoded.rows();
    let mut last = std::mem::take(&mut cache.list).into_iter().peekable();
    let mut list = Vec::with_capacity(last.len());
    let select = "SELECT silo, body FROM membership_silo WHERE cluster = ?1 ORDER BY silo";
    let mut statement = tx.prepare_cached(select).map_err(from_sqlite)?;
    let mut stored = statement.query([cluster]).map_err(from_sqlite)?;
    let mut is_text = true;
    while let Some(row) = stored.next().map_err(from_sqlite)? {
        let column = |i| row.get_ref(i).map_err(from_sqlite);
        let (Ok(key), Ok(body)) = (column(0)?.as_str(), column(1)?.as_str()) else {
            // Not UTF-8: an undecodable row, whose place in the order of the store is not ours.
            is_text = false;
            let column = |i| text(row, i).map_err(from_sqlite);
            list.push(Row::decode(column(0)?, column(1)?));
            continue;
        };
        while let Some(gone) = last.next_if(|row| row.key() < key) {
            all.remove(gone.key());
        }
        list.push(match last.next_if(|row| row.key() == key) {
            Some(same) if same.body() == body => same,
            _ => {
                let new = Row::decode(key, body);
                all.insert(new.clone());
                new
            }
        });
    }
    if !is_text {
        cache.decoded.forget_rows();
        return Ok(list.into_iter().collect());
    }
    for gone in last {
        all.remove(gone.key());
    }
    cache.list = list;
    Ok(all)
}

fn heartbeats(tx: &Transaction<'_>, cluster: &str) -> Result<Heartbeats, TableError> {
    let mut all = Heartbeats::default();
    let select = "SELECT h.silo, h.counter, h.at,
         EXISTS (SELECT 1 FROM membership_silo s WHERE s.cluster = h.cluster AND s.silo = h.silo)
         FROM membership_heartbeat h WHERE h.cluster = ?1";
    let mut statement = tx.prepare_cached(select).map_err(from_sqlite)?;
    let mut stored = statement.query([cluster]).map_err(from_sqlite)?;
    while let Some(row) = stored.next().map_err(from_sqlite)? {
        let heartbeat = heartbeat_at(row, 1).map_err(from_sqlite)?;
        let key = row.get_ref(0).map_err(from_sqlite)?.as_str();
        let has_row = row.get(3).map_err(from_sqlite)?;
        add(&mut all, key.unwrap_or_default(), heartbeat, has_row);
    }
    let select = "SELECT text FROM membership_cell WHERE cluster = ?1";
    all.cluster = first(tx, select, [cluster], |row| text(row, 0))?;
    Ok(all)
}

/// The version, for hints; none if there is none.
pub(super) fn version_number(session: &mut Session) -> Option<u64> {
    let cluster = session.cluster.clone();
    let (file, _) = session.file().ok()??;
    let select = "SELECT version FROM membership_version WHERE cluster = ?1";
    let number: i64 = first(&file.conn, select, [cluster], |row| row.get(0)).ok()??;
    u64::try_from(number).ok()
}
