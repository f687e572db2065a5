//! `update_i_am_alive`: one statement writes, if there is a row and without moving the counter
//! back; a second one in the same round trip finds out whether there is a row.

use async_trait::async_trait;
use membership_core::{
    HeartbeatWrite, Operation, TableError, TableErrorKind as Kind, missing_version_row,
};

use super::STORE;
use super::client::Inner;
use super::codec::no_primary;
use super::columns::{number, text as column};
use super::connection::Connection;
use super::error::{code, error, from_commit};
use super::read::tables_missing;
use super::server::is_read_only;
use super::sql::{READ_COMMITTED, text};
use crate::shared::pool::Work;

pub(super) struct Heartbeat<'a>(pub(super) &'a HeartbeatWrite);

fn missing() -> TableError {
    missing_version_row(None, None, Operation::UpdateIAmAlive, STORE)
}

#[async_trait]
impl Work<Inner> for Heartbeat<'_> {
    type Answer = ();
    const OPERATION: Operation = Operation::UpdateIAmAlive;

    async fn run(&self, table: &Inner, connection: &mut Connection) -> Result<(), TableError> {
        self.0.validate(STORE)?;
        if !connection.has_tables().await? {
            return Err(missing());
        }
        let sql = format!("{READ_COMMITTED}; {}", statement(&table.key, self.0));
        connection.set_in_doubt(true);
        let sets = match connection.begin(&sql).await {
            Ok(sets) => sets,
            Err(failure) if code(&failure.error).is_some() => {
                connection.set_in_doubt(false);
                tables_missing(connection, failure).await?;
                return Err(missing());
            }
            Err(failure) => return Err(from_commit(failure.error)),
        };
        connection.set_in_doubt(false);
        let row = sets.last().and_then(|set| set.rows.first());
        let row = row.ok_or_else(missing)?;
        if column(row, 2).is_some_and(|value| is_read_only(&value)) {
            // A user with more rights has written it to a server that is no longer the primary.
            return Err(no_primary());
        }
        match number(row, 1) {
            None => Err(missing()),
            Some(0) if number(row, 0) == Some(1) => Ok(()),
            Some(0) => {
                let e = error(Kind::NoSuchRow, "the silo has no row");
                Err(match self.0 {
                    HeartbeatWrite::Silo { silo, .. } => e.with_key(silo.row_key()),
                    HeartbeatWrite::Cluster { .. } => e,
                })
            }
            Some(_) => Err(error(Kind::BeingDeleted, "the cluster is being deleted")),
        }
    }
}

fn statement(cluster: &str, write: &HeartbeatWrite) -> String {
    match write {
        HeartbeatWrite::Cluster { text: cell } => {
            let cell = text(cell);
            format!(
                "INSERT INTO membership_cell (cluster, text) SELECT v.cluster, {cell} FROM membership_version v \
                 WHERE v.cluster = {cluster} AND v.deleting = 0 ON DUPLICATE KEY UPDATE membership_cell.text = {cell}; \
                 SELECT 1, (SELECT deleting FROM membership_version WHERE cluster = {cluster}), @@global.read_only"
            )
        }
        HeartbeatWrite::Silo { silo, heartbeat } => {
            let (silo, at) = (text(&silo.row_key()), text(&heartbeat.at.to_string()));
            let counter = heartbeat.counter;
            format!(
                "INSERT INTO membership_heartbeat (cluster, silo, counter, at) SELECT s.cluster, s.silo, {counter}, {at} \
                 FROM membership_silo s WHERE s.cluster = {cluster} AND s.silo = {silo} ON DUPLICATE KEY UPDATE \
                 membership_heartbeat.at = IF({counter} >= membership_heartbeat.counter, {at}, membership_heartbeat.at), \
                 membership_heartbeat.counter = GREATEST({counter}, membership_heartbeat.counter); \
                 SELECT EXISTS (SELECT 1 FROM membership_silo WHERE cluster = {cluster} AND silo = {silo}), \
                 (SELECT deleting FROM membership_version WHERE cluster = {cluster}), @@global.read_only"
            )
        }
    }
}
