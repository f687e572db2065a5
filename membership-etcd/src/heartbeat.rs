//! `update_i_am_alive`: one transaction, on two conditions: the heartbeat's owner exists, and the
//! heartbeat is as it was last written. Clauses T7, T8.
//!
//! The second condition is about time: a proposal may be applied long after its caller got a
//! timeout, and such a heartbeat must not overwrite the next one. The last revision is known from
//! the last write and from reads. An unknown key counts as never written; if that is wrong, the
//! same answer says so.

use membership_core::{HeartbeatWrite, TableError, TableErrorKind};

use crate::client::{Inner, Purpose};
use crate::codec::Found;
use crate::error::error;
use crate::keys::CELL;
use crate::wire::{Bytes, Compare, Op, Txn};

/// How often a write is tried while others write the same key. Each collision is another's success.
const COLLISIONS: usize = 20;

impl Inner {
    /// # Errors
    /// As
    /// [`MembershipTable::update_i_am_alive`](membership_core::MembershipTable::update_i_am_alive).
    pub(crate) async fn heartbeat(&self, write: &HeartbeatWrite) -> Result<(), TableError> {
        match write {
            HeartbeatWrite::Silo { silo, heartbeat } => {
                let key = silo.row_key();
                let (owner, text) = (self.keys.row(&key), heartbeat.to_string());
                let missing = error(TableErrorKind::NoSuchRow, "the silo has no row");
                let exists = |found: &Found| found.row(&key).is_some();
                self.overwrite(&key, &owner, &text, exists, missing.with_key(&key))
                    .await
            }
            HeartbeatWrite::Cluster { text } => {
                let missing = error(
                    TableErrorKind::NotInitialized,
                    "the cluster has no version row",
                );
                let exists = |found: &Found| found.version.is_some();
                self.overwrite(CELL, &self.keys.version(), text, exists, missing)
                    .await
            }
        }
    }

    /// Writes a heartbeat if its owner exists and no other client has written it since.
    async fn overwrite(
        &self,
        name: &str,
        owner: &Bytes,
        text: &str,
        exists: impl Fn(&Found) -> bool,
        missing: TableError,
    ) -> Result<(), TableError> {
        let keys = &self.keys;
        let key = keys.heartbeat(name);
        let mut failure = vec![
            Op::range(keys.table()),
            Op::first(keys.rows()),
            Op::get(key.clone()),
        ];
        // The version row is among the table's keys.
        if name != CELL {
            failure.push(Op::key(owner.clone()));
        }
        let by = self.client.deadline();
        for _ in 0..COLLISIONS {
            let revision = self.heartbeats.get(name).unwrap_or(0);
            let txn = Txn {
                compare: vec![
                    Compare::exists(owner.clone()),
                    Compare::is_of(key.clone(), revision),
                ],
                success: vec![Op::put(key.clone(), text)],
                failure: failure.clone(),
            };
            let (written, found) = self.transact(&txn, Purpose::Write, by).await?;
            if written {
                self.heartbeats.set(name, found.revision);
                return Ok(());
            }
            if !exists(&found) {
                found.usable(None)?;
                return Err(missing);
            }
            self.heartbeats.set(name, found.revision_of(name));
        }
        let message = "others write the same heartbeat at the same time";
        Err(error(TableErrorKind::Busy, message))
    }
}
