//! `commit`: one transaction, made of the request alone, so that sending it again sends the same.
//! Clauses T1 to T5.
//!
//! Its condition is the mark: a key whose name contains table, version and last commit. A commit
//! removes the mark that it is based on, which must exist, and writes its own. So of all commits on
//! one version one happens, also when one arrives late, and none on a table that was wiped,
//! restored or created again. (Consul's indexes alone are not enough: a new store counts from the
//! beginning.)
//!
//! A refused transaction reads nothing. A second request reads the table and finds out why.

use membership_core::{
    CommitOutcome, CommitRequest, Conflict, RowChange, Settled, Snapshot, TableError,
    TableErrorKind,
};
use membership_provider::{counted_next_token, json, row_count_of};
use tokio::time::Instant;

use crate::STORE;
use crate::client::{Inner, LIMITS};
use crate::codec;
use crate::error::error;
use crate::txn::{Outcome, Txn};

/// Whether a row to insert exists, or a row to update or remove is missing.
fn collides(change: &RowChange, now: &Snapshot) -> bool {
    let exists = now.rows.by_key(change.key()).is_some();
    exists == matches!(change, RowChange::Insert(_))
}

impl Inner {
    /// # Errors
    /// As [`MembershipTable::commit`](membership_core::MembershipTable::commit), of this sending
    /// alone.
    pub(crate) async fn commit(
        &self,
        request: &CommitRequest,
    ) -> Result<CommitOutcome, TableError> {
        let by = self.client.deadline();
        let before = match row_count_of(&request.expected) {
            Some(rows) => rows,
            // The token is not from this provider.
            None => match self.judged(request, by).await? {
                Ok(outcome) => return Ok(outcome),
                Err(now) => now.version_row.row_count,
            },
        };
        if let Err(full) = request.check_room(before, &LIMITS, STORE) {
            return self.judged(request, by).await?.map_err(|_| full);
        }
        let rows = before.saturating_add_signed(request.added_rows());
        let txn = self.transaction(request, rows);
        let Outcome::Refused(why) = self.client.write(&txn, by).await? else {
            return Ok(self.committed(request, before));
        };
        match self.judged(request, by).await? {
            Ok(outcome) => Ok(outcome),
            // The version is the expected one, so a row exists that must not, or the reverse.
            Err(now) if request.changes.iter().any(|change| collides(change, &now)) => {
                Ok(CommitOutcome::Conflict(Conflict::new(
                    now.version_row.recent.last().cloned(),
                    Some(*now),
                )))
            }
            Err(_) => Err(error(
                TableErrorKind::Busy,
                format!("the servers refuse the transaction ({why})"),
            )),
        }
    }

    fn transaction(&self, request: &CommitRequest, rows: u64) -> Txn {
        let keys = &self.keys;
        let (old, version) = (keys.mark_of(&request.expected), request.next_version());
        let new = keys.mark(version, request.expected.table_id(), request.id);
        let mut txn = Txn::default()
            .exists(old.clone())
            .remove(old)
            .put(new, &codec::mark(rows))
            .put(keys.recent(version), &json(&request.record()));
        if let Some(settings) = &request.settings {
            txn = txn.put(keys.settings(), &json(settings));
        }
        if let Some(core) = &request.core {
            txn = txn.put(keys.core(), core.stored());
        }
        for change in &request.changes {
            let key = keys.row(change.key());
            txn = match change {
                RowChange::Insert(row) => txn.create(key, row.body()),
                RowChange::Update(row) => txn.exists(key.clone()).put(key, row.body()),
                RowChange::Remove(of) => txn.exists(key).remove_tree(keys.silo(of)),
            };
        }
        txn
    }

    /// The answer to a commit that succeeded on a table of `before` rows; remembers the table that
    /// it made.
    fn committed(&self, request: &CommitRequest, before: u64) -> CommitOutcome {
        let token = counted_next_token(request, Some(before));
        self.cache.committed(request, &token);
        CommitOutcome::Committed(token)
    }

    /// The judgement of the table on a commit; the table itself, if the commit is next.
    async fn judged(
        &self,
        request: &CommitRequest,
        by: Instant,
    ) -> Result<Result<CommitOutcome, Box<Snapshot>>, TableError> {
        let found = self.read_all(by).await?;
        let row = found.any_version()?.ok_or_else(|| {
            error(
                TableErrorKind::TableReplaced,
                "the version row that was known is gone",
            )
        })?;
        match request.settle(&row, STORE)? {
            Settled::Apply => Ok(Err(Box::new(self.snapshot(row, &found)?))),
            Settled::Committed => {
                let before = if request.next_version() == row.version {
                    row.row_count.saturating_add_signed(-request.added_rows())
                } else {
                    row_count_of(&request.expected).unwrap_or_default()
                };
                Ok(Ok(self.committed(request, before)))
            }
            Settled::Conflict => {
                let newest = row.recent.last().cloned();
                // The next read reports an incomplete table; this answer is a conflict
                // nevertheless.
                let snapshot = self.snapshot(row, &found).ok();
                Ok(Ok(CommitOutcome::Conflict(Conflict::new(newest, snapshot))))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::client::VERSION_OPERATIONS;
    use crate::txn::{MAX_BYTES, MAX_OPERATIONS};

    #[test]
    fn the_largest_commit_fits_into_a_transaction() {
        let rows = 2 * LIMITS.rows_per_commit;
        assert_eq!(VERSION_OPERATIONS + rows, MAX_OPERATIONS);
        // In base64, beside two operations for each row with the longest keys.
        let keys = rows * (MAX_OPERATIONS + 1_600);
        assert!(LIMITS.bytes_per_commit * 4 / 3 + keys < MAX_BYTES);
    }
}
