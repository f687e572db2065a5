//! The beginning and the end of a cluster: `initialize` and `delete`.

use membership_core::{
    InitializeRequest, TableError, TableErrorKind, VersionRow, encoding::encode_version_row,
};
use rusqlite::params;

use super::error::{error, from_sqlite};
use super::read::{absent, orphan, rows_without_version, stored_version};
use super::schema;
use super::session::{Gate, Session, reading, writing};

/// How many rows `delete` removes while it holds the lock.
const BATCH: i64 = 1000;

fn being_deleted() -> TableError {
    error(TableErrorKind::BeingDeleted, "the cluster is being deleted")
}

/// `initialize`. Looks first: whoever finds the table there has written nothing and waited for nobody.
pub(super) fn initialize(
    session: &mut Session,
    request: &InitializeRequest,
    gate: &dyn Gate,
) -> Result<(), TableError> {
    let (cluster, name, deadline) = (
        session.cluster.clone(),
        session.name.clone(),
        session.deadline(),
    );
    let (file, cache) = session.file_or_new()?;
    let looking = reading(&file.conn)?;
    if schema::present(&looking, &mut file.checked)? {
        if let Some(version) = stored_version(&looking, &cluster, cache)? {
            return if version.deleting {
                Err(being_deleted())
            } else {
                Ok(())
            };
        }
        if let Some(key) = orphan(&looking, &cluster)? {
            return Err(rows_without_version(&key));
        }
    }
    drop(looking);

    let row = VersionRow::initial(request.table_id, request.settings.clone());
    let body = encode_version_row(&row);
    file.use_log(deadline)?;
    let tx = writing(&file.conn)?;
    if schema::present(&tx, &mut file.checked)? {
        if let Some(version) = stored_version(&tx, &cluster, cache)? {
            return if version.deleting {
                Err(being_deleted())
            } else {
                Ok(())
            };
        }
        if let Some(key) = orphan(&tx, &cluster)? {
            return Err(rows_without_version(&key));
        }
        // Orphans of a former life, left by hand.
        for sql in [
            "DELETE FROM membership_heartbeat WHERE cluster = ?1",
            "DELETE FROM membership_cell WHERE cluster = ?1",
        ] {
            tx.execute(sql, [&cluster]).map_err(from_sqlite)?;
        }
    } else {
        schema::create(&tx)?;
    }
    tx.execute(
        "INSERT INTO membership_version (cluster, name, version, deleting, body) VALUES (?1, ?2, 0, 0, ?3)",
        params![cluster, name, body],
    )
    .map_err(from_sqlite)?;
    file.commit(tx, gate)?;
    tracing::info!(cluster = name, table_id = %request.table_id, "membership table created");
    Ok(())
}

/// Where a deletion stands, as another client sees it.
enum Mark {
    Deleting,
    Unmarked,
    NoVersionRow,
}

/// `delete`. Each step is a transaction of its own; whatever step it dies in, the next `delete` goes on from there, and everybody else is
/// told that the cluster is being deleted.
pub(super) fn delete(session: &mut Session, gate: &dyn Gate) -> Result<(), TableError> {
    let (cluster, name) = (session.cluster.clone(), session.name.clone());
    let Some((file, cache)) = session.file()? else {
        return Ok(());
    };

    let tx = writing(&file.conn)?;
    if !schema::present(&tx, &mut file.checked)? {
        return Ok(());
    }
    match stored_version(&tx, &cluster, cache) {
        Ok(Some(version)) if !version.deleting => {
            let marked = VersionRow {
                deleting: true,
                ..(*version.row).clone()
            };
            tx.execute(
                "UPDATE membership_version SET deleting = 1, body = ?2 WHERE cluster = ?1",
                params![cluster, encode_version_row(&marked)],
            )
            .map_err(from_sqlite)?;
        }
        Ok(None) => {}
        // Marked already, perhaps within the body only. And what cannot be read cannot be kept either: the mark beside it is enough.
        Err(e) if e.kind() != TableErrorKind::Damaged => return Err(e),
        Ok(Some(_)) | Err(_) => {
            tx.execute(
                "UPDATE membership_version SET deleting = 1 WHERE cluster = ?1",
                [&cluster],
            )
            .map_err(from_sqlite)?;
        }
    }
    file.commit(tx, gate)?;

    loop {
        let tx = writing(&file.conn)?;
        if !schema::present(&tx, &mut file.checked)? {
            return Err(absent(None));
        }
        let mark = tx
            .query_row(
                "SELECT max(deleting <> 0) FROM membership_version WHERE cluster = ?1",
                [&cluster],
                |r| r.get::<_, Option<i64>>(0),
            )
            .map_err(from_sqlite)?
            .map_or(Mark::NoVersionRow, |deleting| {
                if deleting == 0 {
                    Mark::Unmarked
                } else {
                    Mark::Deleting
                }
            });
        if matches!(mark, Mark::Unmarked) {
            // Another delete has finished the work, and somebody has made the cluster anew: that one is not ours to delete.
            return Ok(());
        }
        let removed = tx
            .execute(
                "DELETE FROM membership_silo WHERE cluster = ?1
                 AND silo IN (SELECT silo FROM membership_silo WHERE cluster = ?1 LIMIT ?2)",
                params![cluster, BATCH],
            )
            .map_err(from_sqlite)?;
        let last = i64::try_from(removed).unwrap_or(0) < BATCH;
        if last {
            for sql in [
                "DELETE FROM membership_heartbeat WHERE cluster = ?1",
                "DELETE FROM membership_cell WHERE cluster = ?1",
                "DELETE FROM membership_version WHERE cluster = ?1",
            ] {
                tx.execute(sql, [&cluster]).map_err(from_sqlite)?;
            }
        }
        file.commit(tx, gate)?;
        if last {
            tracing::info!(cluster = name, "membership table deleted");
            return Ok(());
        }
    }
}
