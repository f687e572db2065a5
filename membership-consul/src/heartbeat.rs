//! `update_i_am_alive`: one transaction, on two conditions: the heartbeat's owner exists, and the
//! heartbeat is as it was last written. Clauses T7, T8.
//!
//! The second condition is about time: agents hold requests while there is no leader, and a
//! heartbeat whose caller has given up must not overwrite the next one. The last index is known
//! from the last write and from reads; otherwise it is looked up.

use membership_core::{HeartbeatWrite, TableError, TableErrorKind};
use tokio::time::Instant;

use crate::client::Inner;
use crate::error::error;
use crate::txn::{Outcome, Txn};

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
                let (owner, alive) = (self.keys.row(&key), self.keys.alive(&key));
                let missing = error(TableErrorKind::NoSuchRow, "the silo has no row");
                let text = heartbeat.to_string();
                self.overwrite(&key, &owner, &alive, &text, missing.with_key(&key))
                    .await
            }
            HeartbeatWrite::Cluster { text } => {
                let missing = error(
                    TableErrorKind::NotInitialized,
                    "the cluster has no version row",
                );
                self.overwrite("", &self.keys.table(), &self.keys.cell(), text, missing)
                    .await
            }
        }
    }

    /// Writes a key if its owner exists and no other client has written it since.
    async fn overwrite(
        &self,
        name: &str,
        owner: &str,
        key: &str,
        text: &str,
        missing: TableError,
    ) -> Result<(), TableError> {
        let by = self.client.deadline();
        for _ in 0..COLLISIONS {
            let index = match self.heartbeats.get(name) {
                Some(index) => index,
                None => match self.index_of(owner, key, by).await? {
                    Some(index) => index,
                    None => return Err(missing),
                },
            };
            let txn = Txn::default()
                .exists(owner.to_owned())
                .replace(key.to_owned(), text, index);
            // An error leaves open whether the write happened: the next one looks the index up.
            self.heartbeats.forget(name);
            if let Outcome::Done(pairs) = self.client.write(&txn, by).await? {
                let written = pairs.iter().find(|pair| pair.key == key);
                if let Some(pair) = written.filter(|pair| pair.modify_index > 0) {
                    self.heartbeats.set(name, pair.modify_index);
                }
                return Ok(());
            }
        }
        let message = "others write the same heartbeat at the same time";
        Err(error(TableErrorKind::Busy, message))
    }

    /// The index at which a key was last written, 0 for never; `None` if its owner does not exist.
    async fn index_of(
        &self,
        owner: &str,
        key: &str,
        by: Instant,
    ) -> Result<Option<u64>, TableError> {
        let txn = Txn::default().tree(owner.to_owned()).tree(key.to_owned());
        let pairs = self.client.read(&txn, by).await?;
        if !pairs.iter().any(|pair| pair.key == owner) {
            // Keys that a token may not see look as if they did not exist.
            self.check_permission(by).await?;
            return Ok(None);
        }
        let pair = pairs.iter().find(|pair| pair.key == key);
        Ok(Some(pair.map_or(0, |pair| pair.modify_index)))
    }
}
