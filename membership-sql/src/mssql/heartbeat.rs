//! `update_i_am_alive`: one batch, which waits for no commit.

use async_trait::async_trait;
use membership_core::{
    HeartbeatWrite, Operation, TableError, TableErrorKind as Kind, missing_version_row,
};

use super::STORE;
use super::client::Inner;
use super::codec::Found;
use super::connection::{Connection, Value};
use super::error::error;
use super::read::tables_missing;
use super::sql;
use crate::shared::int;
use crate::shared::pool::Work;

pub(super) struct Heartbeat<'a>(pub(super) &'a HeartbeatWrite);

#[async_trait]
impl Work<Inner> for Heartbeat<'_> {
    type Answer = ();
    const OPERATION: Operation = Operation::UpdateIAmAlive;

    async fn run(&self, table: &Inner, connection: &mut Connection) -> Result<(), TableError> {
        self.0.validate(STORE)?;
        let missing = || missing_version_row(None, None, Operation::UpdateIAmAlive, STORE);
        if !connection.has_tables().await? {
            return Err(missing());
        }
        let answer = match self.0 {
            HeartbeatWrite::Cluster { text } => {
                let values: [Value<'_>; 2] = [&table.key, text];
                connection.write(sql::CELL, &values).await
            }
            HeartbeatWrite::Silo { silo, heartbeat } => {
                let (silo, at) = (silo.row_key(), heartbeat.at.to_string());
                let counter = int(heartbeat.counter);
                let values: [Value<'_>; 4] = [&table.key, &silo, &counter, &at];
                connection.write(sql::HEARTBEAT, &values).await
            }
        };
        let found = match answer {
            Ok(lines) => Found::of(lines),
            Err(e) => return Err(tables_missing(connection, e).await),
        };
        let row = match (found.done, found.version(&table.cache)?) {
            (Some(1), _) => return Ok(()),
            (None, _) => {
                connection.discard();
                let message = "the answer to the heartbeat is not whole";
                return Err(error(Kind::OutcomeUnknown, message));
            }
            (Some(_), row) => row.ok_or_else(missing)?,
        };
        if row.deleting {
            return Err(error(Kind::BeingDeleted, "the cluster is being deleted"));
        }
        let e = error(Kind::NoSuchRow, "the silo has no row");
        Err(match self.0 {
            HeartbeatWrite::Silo { silo, .. } => e.with_key(silo.row_key()),
            HeartbeatWrite::Cluster { .. } => e,
        })
    }
}
