//! `update_i_am_alive`: one script. Clauses T7, T8.

use membership_core::{HeartbeatWrite, Operation, TableError, TableErrorKind};
use redis::Value;

use crate::client::{Inner, Request};
use crate::codec;
use crate::error::{error, unexpected_after_write};
use crate::scripts::SCRIPTS;

impl Inner {
    /// # Errors
    /// As
    /// [`MembershipTable::update_i_am_alive`](membership_core::MembershipTable::update_i_am_alive).
    pub(crate) async fn heartbeat(&self, write: &HeartbeatWrite) -> Result<(), TableError> {
        let (keys, during) = (&self.keys, Operation::UpdateIAmAlive);
        let mut missing = error(TableErrorKind::NoSuchRow, "the silo has no row");
        let call = match write {
            HeartbeatWrite::Cluster { text } => {
                let keys = [&keys.version, &keys.rows, &keys.cell];
                let mut call = Request::script(during, &SCRIPTS.cell, &keys, true);
                call.command.arg(codec::stored_cell(text));
                call
            }
            HeartbeatWrite::Silo { silo, heartbeat } => {
                let (keys, key) = (
                    [&keys.version, &keys.rows, &keys.heartbeats],
                    silo.row_key(),
                );
                let mut call = Request::script(during, &SCRIPTS.heartbeat, &keys, true);
                call.command
                    .arg(&key)
                    .arg(heartbeat.counter)
                    .arg(heartbeat.to_string());
                missing = missing.with_key(key);
                call
            }
        };
        match self.client.run(&call).await?.value {
            Value::Int(1) => Ok(()),
            other => match codec::parts::<2>(other) {
                Ok((0, [version, rows])) => {
                    let version = codec::pairs(version);
                    codec::version_row(&version, None, codec::number(&rows), None)?;
                    Err(missing)
                }
                Ok((_, [other, _])) | Err(other) => Err(unexpected_after_write(&other)),
            },
        }
    }
}
