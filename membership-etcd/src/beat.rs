//! Heartbeats: one transaction, on the condition that what it belongs to is there, and that its key is as it was written last. Clauses T7, T8.
//!
//! The second condition is against time: a proposal may be carried out long after whoever asked was told of a time-out, and a heartbeat that
//! its silo has given up must not arrive after the next one and move it back. At which revision a key was written last is known from the last
//! time, and from reads; a key of which nothing is known is taken for one that nobody has written, and who is wrong is told in the same answer.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use membership_core::{
    HeartbeatWrite, MAX_CLUSTER_CELL_BYTES, Operation, TableError, TableErrorKind,
};

use crate::codec::Gathered;
use crate::commit::LIMITS;
use crate::error::error;
use crate::keys::CELL;
use crate::link::Purpose;
use crate::table::Inner;
use crate::wire::{Bytes, Compare, Op, Txn};

/// How often it is tried while others write the same key; each failure is somebody's progress.
const COLLISIONS: usize = 20;

/// At which revision heartbeats were written last, by their name, as far as this handle knows.
#[derive(Debug, Default)]
pub(crate) struct Beats(Mutex<HashMap<String, i64>>);

impl Beats {
    /// From a read, which may be older than what is known.
    pub(crate) fn learn<'a>(&self, read: impl Iterator<Item = (&'a str, i64)>) {
        let mut known = self.lock();
        for (name, revision) in read {
            match known.get_mut(name) {
                Some(before) => *before = revision.max(*before),
                None => drop(known.insert(name.to_owned(), revision)),
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<String, i64>> {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        // Those of silos that are gone go some time. What is not known is found out.
        if known.len() > 2 * LIMITS.rows {
            known.clear();
        }
        known
    }

    /// 0 for one that nobody has written, as far as is known.
    fn of(&self, name: &str) -> i64 {
        self.lock().get(name).copied().unwrap_or(0)
    }

    fn set(&self, name: &str, revision: i64) {
        self.lock().insert(name.to_owned(), revision);
    }
}

impl Inner {
    /// # Errors
    /// As [`MembershipTable::update_i_am_alive`](membership_core::MembershipTable::update_i_am_alive).
    pub(crate) async fn beat(&self, write: &HeartbeatWrite) -> Result<(), TableError> {
        match write {
            HeartbeatWrite::Silo { silo, heartbeat } => {
                let key = silo.row_key();
                let missing =
                    error(TableErrorKind::NoSuchRow, "the silo has no row").with_key(key.clone());
                self.overwrite(
                    &key,
                    &self.keys.row(&key),
                    &heartbeat.to_string(),
                    |found| found.row(&key).is_some(),
                    missing,
                )
                .await
            }
            HeartbeatWrite::Cluster { text } if text.len() > MAX_CLUSTER_CELL_BYTES => Err(error(
                TableErrorKind::LimitExceeded,
                format!("the cluster's cell takes {MAX_CLUSTER_CELL_BYTES} bytes"),
            )),
            HeartbeatWrite::Cluster { text } => {
                let missing = error(
                    TableErrorKind::NotInitialized,
                    "the cluster has no version row",
                );
                self.overwrite(
                    CELL,
                    &self.keys.version(),
                    text,
                    |found| found.version.is_some(),
                    missing,
                )
                .await
            }
        }
    }

    /// Writes a heartbeat, only if its owner is there; what is written late finds that somebody has written since.
    async fn overwrite(
        &self,
        name: &str,
        owner: &Bytes,
        text: &str,
        is_there: impl Fn(&Gathered) -> bool,
        missing: TableError,
    ) -> Result<(), TableError> {
        let keys = &self.keys;
        let key = keys.heartbeat(name);
        let mut look = vec![
            Op::range(keys.table()),
            Op::first(keys.rows()),
            Op::get(key.clone()),
        ];
        // The version row's key is among those of the table.
        if name != CELL {
            look.push(Op::key(owner.clone()));
        }
        let by = self.link.deadline();
        for _ in 0..COLLISIONS {
            let txn = Txn {
                compare: vec![
                    Compare::exists(owner.clone()),
                    Compare::is_of(key.clone(), self.beats.of(name)),
                ],
                success: vec![Op::put(key.clone(), text)],
                failure: look.clone(),
            };
            let (written, found) = self.ask(&txn, Purpose::Write, by).await?;
            if written {
                self.beats.set(name, found.revision);
                return Ok(());
            }
            if !is_there(&found) {
                found.usable(None, Operation::UpdateIAmAlive)?;
                return Err(missing);
            }
            self.beats.set(name, found.beaten_at(name));
        }
        Err(error(
            TableErrorKind::Busy,
            "others write the same heartbeat, again and again",
        ))
    }
}
