//! Heartbeats: one transaction, on the condition that what it belongs to is there, and that its key is as it was written last. Clauses T7, T8.
//!
//! The second condition is against time: agents hold requests while nobody leads, and a heartbeat that its silo has given up must not
//! arrive after the next one and move it back. At which index a key was written last is known from the last time, and from reads; it is
//! looked up where it is not, or not any more.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use membership_core::{HeartbeatWrite, MAX_CLUSTER_CELL_BYTES, TableError, TableErrorKind};
use tokio::time::Instant;

use crate::commit::LIMITS;
use crate::error::error;
use crate::table::Inner;
use crate::txn::{Done, Txn};

/// How often it is tried while others write the same key; each failure is somebody's progress.
const COLLISIONS: usize = 20;

/// At which index heartbeats were written last, by the key of their row, as far as this handle knows. The cluster's own is without a name.
#[derive(Debug, Default)]
pub(crate) struct Beats(Mutex<HashMap<String, u64>>);

impl Beats {
    /// From a read, which may be older than what is known.
    pub(crate) fn learn<'a>(&self, read: impl Iterator<Item = (&'a str, u64)>) {
        let mut known = self.lock();
        for (key, index) in read {
            match known.get_mut(key) {
                Some(before) => *before = index.max(*before),
                None => drop(known.insert(key.to_owned(), index)),
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<String, u64>> {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        // Those of silos that are gone go some time. What is not known is looked up.
        if known.len() > 2 * LIMITS.rows {
            known.clear();
        }
        known
    }

    fn of(&self, key: &str) -> Option<u64> {
        self.lock().get(key).copied()
    }

    fn set(&self, key: &str, index: Option<u64>) {
        let mut known = self.lock();
        match index {
            Some(index) => known.insert(key.to_owned(), index),
            None => known.remove(key),
        };
    }
}

impl Inner {
    /// # Errors
    /// As [`MembershipTable::update_i_am_alive`](membership_core::MembershipTable::update_i_am_alive).
    pub(crate) async fn beat(&self, write: &HeartbeatWrite) -> Result<(), TableError> {
        match write {
            HeartbeatWrite::Silo { silo, heartbeat } => {
                let key = silo.row_key();
                let missing = || {
                    error(TableErrorKind::NoSuchRow, "the silo has no row").with_key(key.clone())
                };
                self.overwrite(
                    &key,
                    &self.keys.row(&key),
                    &self.keys.alive(&key),
                    &heartbeat.to_string(),
                    missing,
                )
                .await
            }
            HeartbeatWrite::Cluster { text } if text.len() > MAX_CLUSTER_CELL_BYTES => Err(error(
                TableErrorKind::LimitExceeded,
                format!("the cluster's cell takes {MAX_CLUSTER_CELL_BYTES} bytes"),
            )),
            HeartbeatWrite::Cluster { text } => {
                let missing = || {
                    error(
                        TableErrorKind::NotInitialized,
                        "the cluster has no version row",
                    )
                };
                self.overwrite("", &self.keys.table(), &self.keys.cell(), text, missing)
                    .await
            }
        }
    }

    /// Writes a key, only if another one is there; what is written late finds that somebody has written since.
    async fn overwrite(
        &self,
        name: &str,
        owner: &str,
        key: &str,
        text: &str,
        missing: impl Fn() -> TableError,
    ) -> Result<(), TableError> {
        let by = self.link.deadline();
        for _ in 0..COLLISIONS {
            let index = match self.beats.of(name) {
                Some(index) => index,
                None => self
                    .written_at(owner, key, by)
                    .await?
                    .ok_or_else(&missing)?,
            };
            let txn = Txn::default()
                .there(owner.to_owned())
                .replace(key.to_owned(), text, index);
            // What is asked for next goes by what is there: this one may have been carried out, or may be yet.
            let done = self
                .link
                .write(&txn, by)
                .await
                .inspect_err(|_| self.beats.set(name, None))?;
            if let Done::All(pairs) = done {
                self.beats.set(
                    name,
                    pairs
                        .iter()
                        .find(|pair| pair.key == key)
                        .map(|pair| pair.modify_index)
                        .filter(|index| *index > 0),
                );
                return Ok(());
            }
            self.beats.set(name, None);
        }
        Err(error(
            TableErrorKind::Busy,
            "others write the same heartbeat, again and again",
        )
        .at(self.link.at()))
    }

    /// At which index a key was written last, 0 if it never was; none if what it belongs to is not there.
    async fn written_at(
        &self,
        owner: &str,
        key: &str,
        by: Instant,
    ) -> Result<Option<u64>, TableError> {
        let txn = Txn::default().tree(owner.to_owned()).tree(key.to_owned());
        let pairs = self.link.look(&txn, by).await?;
        if !pairs.iter().any(|pair| pair.key == owner) {
            // Keys that a token may not see look as if they were not there.
            self.may_see(by).await?;
            return Ok(None);
        }
        Ok(Some(
            pairs
                .iter()
                .find(|pair| pair.key == key)
                .map_or(0, |pair| pair.modify_index),
        ))
    }
}
