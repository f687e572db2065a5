//! Columns of SQLite as values of the contract, and short forms of statements.

use std::sync::Arc;

use membership_core::{
    Heartbeat, Operation, TableError, TableErrorKind, VersionRow, VersionToken,
    missing_version_row, stored_version_row,
};
use rusqlite::types::ValueRef;
use rusqlite::{Connection, OptionalExtension, Params, Row};

use super::STORE;
use super::error::{error, from_sqlite};
use crate::shared::{DecodeCache, heartbeat};

/// Executes a statement; the answer is the number of changed rows.
///
/// # Errors
/// The error of SQLite.
pub(super) fn execute(
    conn: &Connection,
    sql: &str,
    values: impl Params,
) -> Result<usize, TableError> {
    let statement = conn.prepare_cached(sql);
    let changed = statement.and_then(|mut statement| statement.execute(values));
    changed.map_err(from_sqlite)
}

/// The first row of an answer, if there is one.
///
/// # Errors
/// The error of SQLite.
pub(super) fn first<T>(
    conn: &Connection,
    sql: &str,
    values: impl Params,
    read: impl FnOnce(&Row<'_>) -> rusqlite::Result<T>,
) -> Result<Option<T>, TableError> {
    let statement = conn.prepare_cached(sql);
    let row = statement.and_then(|mut statement| statement.query_row(values, read).optional());
    row.map_err(from_sqlite)
}

/// Column `i` as text, whatever was put there by hand; bytes that are not UTF-8 are replaced.
pub(super) fn text(row: &Row<'_>, i: usize) -> rusqlite::Result<String> {
    Ok(match row.get_ref(i)? {
        ValueRef::Null => String::new(),
        ValueRef::Integer(n) => n.to_string(),
        ValueRef::Real(n) => n.to_string(),
        ValueRef::Text(bytes) | ValueRef::Blob(bytes) => {
            String::from_utf8_lossy(bytes).into_owned()
        }
    })
}

/// Columns `i` and `i + 1` as a heartbeat.
pub(super) fn heartbeat_at(row: &Row<'_>, i: usize) -> rusqlite::Result<Heartbeat> {
    let counter: i64 = row.get(i)?;
    let at = row.get_ref(i + 1)?;
    Ok(heartbeat(
        u64::try_from(counter).unwrap_or(0),
        at.as_str().ok(),
    ))
}

/// A stored version row, with the text that it was decoded from.
pub(super) struct StoredVersion {
    pub(super) row: Arc<VersionRow>,
    pub(super) text: String,
}

/// The version row of the cluster.
///
/// # Errors
/// `ForeignTable`, `NewerLayout`, `Damaged`, or the error of SQLite.
pub(super) fn stored_version(
    conn: &Connection,
    cluster: &str,
    cache: &DecodeCache,
) -> Result<Option<StoredVersion>, TableError> {
    let select = "SELECT body, deleting FROM membership_version WHERE cluster = ?1";
    let columns = |row: &Row<'_>| Ok((text(row, 0)?, row.get::<_, i64>(1)? != 0));
    let Some((text, deleting)) = first(conn, select, [cluster], columns)? else {
        return Ok(None);
    };
    let mut row = cache.version(&text, |text| {
        stored_version_row(text, Operation::Read, STORE)
    })?;
    if deleting && !row.deleting {
        Arc::make_mut(&mut row).deleting = true;
    }
    Ok(Some(StoredVersion { row, text }))
}

/// The error for a missing version row; looks for rows without one.
///
/// # Errors
/// The error of SQLite.
pub(super) fn no_version(
    conn: &Connection,
    cluster: &str,
    known: Option<&VersionToken>,
) -> Result<TableError, TableError> {
    let select = "SELECT silo FROM membership_silo WHERE cluster = ?1 LIMIT 1";
    let any_key = first(conn, select, [cluster], |row| text(row, 0))?;
    Ok(missing_version_row(
        any_key.as_deref(),
        known,
        Operation::Read,
        STORE,
    ))
}

/// The error for missing tables.
pub(super) fn no_tables(known: Option<&VersionToken>) -> TableError {
    missing_version_row(None, known, Operation::Read, STORE)
}

/// The error for a missing file.
pub(super) fn no_file(known: Option<&VersionToken>) -> TableError {
    match known {
        None => error(TableErrorKind::NotInitialized, "there is no such file"),
        known => no_tables(known),
    }
}
