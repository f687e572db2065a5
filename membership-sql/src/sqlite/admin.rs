//! `initialize` and `delete`.

use membership_core::encoding::encode_version_row;
use membership_core::{InitializeRequest, TableError, TableErrorKind};
use rusqlite::{Transaction, params};

use super::codec::{execute, first, no_tables, stored_version};
use super::read::usable;
use super::schema;
use super::session::{Cache, File, Gate, Session, reading, writing};

/// How many rows `delete` removes while it holds the lock.
const BATCH: i64 = 1000;

const REMOVE_HEARTBEATS: &str = "DELETE FROM membership_heartbeat WHERE cluster = ?1";
const REMOVE_CELL: &str = "DELETE FROM membership_cell WHERE cluster = ?1";

/// Looks first: if the cluster exists, nothing is written and nothing waits.
pub(super) fn initialize(
    session: &mut Session,
    request: &InitializeRequest,
    gate: &dyn Gate,
) -> Result<(), TableError> {
    let (cluster, name) = (session.cluster.clone(), session.name.clone());
    let deadline = session.deadline();
    let (file, cache) = session.file_or_new()?;
    let tx = reading(&file.conn)?;
    if exists(&tx, file, &cluster, cache)? {
        return Ok(());
    }
    drop(tx);

    let row = request.version_row();
    let body = encode_version_row(&row);
    file.use_log(deadline)?;
    let tx = writing(&file.conn)?;
    if exists(&tx, file, &cluster, cache)? {
        return Ok(());
    }
    if file.tables.exist(&tx)? {
        // Orphans of an earlier cluster, left by hand.
        execute(&tx, REMOVE_HEARTBEATS, [&cluster])?;
        execute(&tx, REMOVE_CELL, [&cluster])?;
    } else {
        schema::create(&tx)?;
    }
    let insert = "INSERT INTO membership_version (cluster, name, version, deleting, body) VALUES (?1, ?2, 0, 0, ?3)";
    execute(&tx, insert, params![cluster, name, body])?;
    file.commit(tx, gate)?;
    tracing::info!(cluster = name, table_id = %request.table_id, "membership table created");
    Ok(())
}

/// Whether the cluster exists.
fn exists(
    tx: &Transaction<'_>,
    file: &File,
    cluster: &str,
    cache: &Cache,
) -> Result<bool, TableError> {
    match usable(tx, file, cluster, cache, None) {
        Ok(_) => Ok(true),
        Err(e) if e.kind() == TableErrorKind::NotInitialized => Ok(false),
        Err(e) => Err(e),
    }
}

/// Each step is a transaction of its own. If `delete` dies between two steps, the next `delete`
/// continues, and other clients see that the cluster is being deleted.
pub(super) fn delete(session: &mut Session, gate: &dyn Gate) -> Result<(), TableError> {
    let (cluster, name) = (session.cluster.clone(), session.name.clone());
    let Some((file, cache)) = session.file()? else {
        return Ok(());
    };

    let tx = writing(&file.conn)?;
    if !file.tables.exist(&tx)? {
        return Ok(());
    }
    match stored_version(&tx, &cluster, &cache.decoded) {
        Ok(None) => {}
        Ok(Some(version)) if !version.row.deleting => {
            let mut marked = (*version.row).clone();
            marked.deleting = true;
            let update = "UPDATE membership_version SET deleting = 1, body = ?2 WHERE cluster = ?1";
            execute(&tx, update, params![cluster, encode_version_row(&marked)])?;
        }
        Err(e) if e.kind() != TableErrorKind::Damaged => return Err(e),
        // Marked already, maybe only in the body; or unreadable, where the column is enough.
        Ok(Some(_)) | Err(_) => {
            let update = "UPDATE membership_version SET deleting = 1 WHERE cluster = ?1";
            execute(&tx, update, [&cluster])?;
        }
    }
    file.commit(tx, gate)?;

    loop {
        let tx = writing(&file.conn)?;
        if !file.tables.exist(&tx)? {
            return Err(no_tables(None));
        }
        let select = "SELECT deleting <> 0 FROM membership_version WHERE cluster = ?1";
        let marked: Option<bool> = first(&tx, select, [&cluster], |row| row.get(0))?;
        if marked == Some(false) {
            // Another `delete` has finished, and the cluster was created again: that one must stay.
            return Ok(());
        }
        let remove = "DELETE FROM membership_silo WHERE cluster = ?1
             AND silo IN (SELECT silo FROM membership_silo WHERE cluster = ?1 LIMIT ?2)";
        let removed = execute(&tx, remove, params![cluster, BATCH])?;
        let last = i64::try_from(removed).unwrap_or(0) < BATCH;
        if last {
            let remove_version = "DELETE FROM membership_version WHERE cluster = ?1";
            for sql in [REMOVE_HEARTBEATS, REMOVE_CELL, remove_version] {
                execute(&tx, sql, [&cluster])?;
            }
        }
        file.commit(tx, gate)?;
        if last {
            tracing::info!(cluster = name, "membership table deleted");
            return Ok(());
        }
    }
}
