//! `update_i_am_alive`: one statement writes, if there is a row and without moving the counter
//! back. Clauses T7, T8.

use membership_core::{HeartbeatWrite, TableError, TableErrorKind};
use rusqlite::params;

use super::STORE;
use super::codec::{execute, first, no_tables};
use super::error::error;
use super::read::usable;
use super::session::{Gate, Session, writing};
use crate::shared::int;

const CELL: &str = "INSERT INTO membership_cell (cluster, text) VALUES (?1, ?2) ON CONFLICT DO UPDATE SET text = excluded.text";
const HEARTBEAT: &str = "INSERT INTO membership_heartbeat (cluster, silo, counter, at)
     SELECT cluster, silo, ?3, ?4 FROM membership_silo WHERE cluster = ?1 AND silo = ?2
     ON CONFLICT DO UPDATE SET counter = excluded.counter, at = excluded.at WHERE excluded.counter >= counter";
const EXISTS: &str = "SELECT 1 FROM membership_silo WHERE cluster = ?1 AND silo = ?2";

pub(super) fn update_i_am_alive(
    session: &mut Session,
    write: &HeartbeatWrite,
    gate: &dyn Gate,
) -> Result<(), TableError> {
    write.validate(STORE)?;
    let cluster = session.cluster.clone();
    let (file, cache) = session.file()?.ok_or_else(|| no_tables(None))?;
    let tx = writing(&file.conn)?;
    usable(&tx, file, &cluster, cache, None)?;
    match write {
        HeartbeatWrite::Cluster { text } => {
            execute(&tx, CELL, [&cluster, text])?;
        }
        HeartbeatWrite::Silo { silo, heartbeat } => {
            let (key, at) = (silo.row_key(), heartbeat.at.to_string());
            let values = params![cluster, key, int(heartbeat.counter), at];
            if execute(&tx, HEARTBEAT, values)? == 0 {
                // There is no row, or it has a newer heartbeat.
                let row = first(&tx, EXISTS, [&cluster, &key], |_| Ok(()))?;
                let missing = || error(TableErrorKind::NoSuchRow, "the silo has no row");
                return row.ok_or_else(|| missing().with_key(key));
            }
        }
    }
    file.commit(tx, gate)
}
