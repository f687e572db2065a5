//! `commit`: one transaction, made of the request alone, so that sending it again sends the same. Clauses T1 to T5.
//!
//! Its condition is the mark: a key whose name says table, version and last commit. A commit takes away the mark that it is based on, which
//! must be there, and sets its own; so of all commits on one version one happens, also when one of them arrives late, and none on a table
//! that was wiped, restored or made anew. (Indexes of Consul alone would not do: a new store counts from the beginning.)
//!
//! A refused transaction reads nothing. Why it was refused is looked up with a second request, which brings the table as it is.

use membership_core::{
    Attempt, CommitOutcome, CommitRequest, Conflict, Judgement, RowChange, Snapshot, TableError,
    TableErrorKind, TableLimits,
};
use tokio::time::Instant;

use crate::codec;
use crate::error::error;
use crate::table::Inner;
use crate::txn::{Done, MAX_OPERATIONS, Txn};

/// Operations for the version row: the old mark looked at and removed, the new one, the record, the settings and the core's cell.
const OF_THE_VERSION: usize = 6;

/// An update and a removal take two operations each. A transaction's request has 512 KiB at most, in which a row takes a third more than it
/// has, and keys have their place too.
pub(crate) const LIMITS: TableLimits = TableLimits {
    rows_per_commit: (MAX_OPERATIONS - OF_THE_VERSION) / 2,
    bytes_per_row: 256_000,
    bytes_per_commit: 256_000,
    rows: 10_000,
};

/// How many rows there are more afterwards.
fn adds(request: &CommitRequest) -> i64 {
    let of = |change: &RowChange| match change {
        RowChange::Insert(_) => 1,
        RowChange::Update(_) => 0,
        RowChange::Remove(_) => -1,
    };
    request.changes.iter().map(of).sum()
}

/// Whether the rows, as they are, leave no room for a change.
fn collides(change: &RowChange, now: &Snapshot) -> bool {
    let there = now.rows.by_key(change.key()).is_some();
    there == matches!(change, RowChange::Insert(_))
}

impl Inner {
    /// # Errors
    /// As [`MembershipTable::commit`](membership_core::MembershipTable::commit).
    pub(crate) async fn commit(
        &self,
        request: &CommitRequest,
    ) -> Result<CommitOutcome, TableError> {
        match self.sent(request).await {
            Err(e) if request.attempt == Attempt::Again => {
                Err(e.of_commit(Attempt::Again).at(self.link.at()))
            }
            other => other,
        }
    }

    async fn sent(&self, request: &CommitRequest) -> Result<CommitOutcome, TableError> {
        let by = self.link.deadline();
        let adds = adds(request);
        let before = match codec::rows_in(&request.expected) {
            Some(rows) => rows,
            // A token that somebody else's table gave.
            None => match self.judged(request, by).await? {
                Ok(outcome) => return Ok(outcome),
                Err(now) => now.version_row.row_count,
            },
        };
        let rows = before.saturating_add_signed(adds);
        if adds > 0 && rows > LIMITS.rows as u64 {
            return match self.judged(request, by).await? {
                Ok(outcome) => Ok(outcome),
                Err(_) => {
                    let message = format!(
                        "the table would have {rows} rows, the store takes {}",
                        LIMITS.rows
                    );
                    Err(error(TableErrorKind::LimitExceeded, message))
                }
            };
        }
        let why = match self
            .link
            .write(&self.transaction(request, rows)?, by)
            .await?
        {
            Done::All(_) => return Ok(self.committed(request, rows)),
            Done::Nothing(why) => why,
        };
        match self.judged(request, by).await? {
            Ok(outcome) => Ok(outcome),
            // The version is the expected one, and a row is there, or is not.
            Err(now) if request.changes.iter().any(|change| collides(change, &now)) => {
                Ok(conflict(*now))
            }
            Err(_) => Err(error(
                TableErrorKind::Busy,
                format!("the servers refuse the transaction ({why})"),
            )
            .at(self.link.at())),
        }
    }

    fn transaction(&self, request: &CommitRequest, rows: u64) -> Result<Txn, TableError> {
        let keys = &self.keys;
        let (old, makes) = (keys.mark_of(&request.expected), request.makes());
        let new = keys.mark(makes, request.expected.table_id(), request.id);
        let mut txn = Txn::default()
            .there(old.clone())
            .remove(old)
            .put(new, &codec::mark(rows));
        txn = txn.put(keys.recent(makes), &codec::record(request)?);
        if let Some(settings) = &request.settings {
            txn = txn.put(keys.settings(), &codec::json(settings)?);
        }
        if let Some(core) = &request.core {
            txn = txn.put(keys.core(), core);
        }
        for change in &request.changes {
            let key = keys.row(change.key());
            txn = match change {
                RowChange::Insert(row) => txn.make(key, row.body()),
                RowChange::Update(row) => txn.there(key.clone()).put(key, row.body()),
                RowChange::Remove(of) => txn.there(key).remove_tree(keys.silo(of)),
            };
        }
        Ok(txn)
    }

    /// What the caller is told of its success; and what this handle knows of the table now.
    fn committed(&self, request: &CommitRequest, rows: u64) -> CommitOutcome {
        let token = request.next_token(&rows.to_be_bytes());
        if let Some(seen) = self
            .seen()
            .filter(|seen| seen.token.same_commit(&request.expected))
        {
            self.remember(&request.apply_to(&seen, token.clone()));
        }
        CommitOutcome::Committed(token)
    }

    /// What the table says of a commit; the table as it is, if the commit is still to come.
    async fn judged(
        &self,
        request: &CommitRequest,
        by: Instant,
    ) -> Result<Result<CommitOutcome, Box<Snapshot>>, TableError> {
        let mut found = self.everything(by).await?;
        let gone = || {
            error(
                TableErrorKind::TableReplaced,
                "the version row that was known is gone",
            )
        };
        let row = found.any_version()?.ok_or_else(gone)?;
        let refused = |kind, message: String| Err(error(kind, message));
        match request.judge(&row) {
            Judgement::Apply => Ok(Err(Box::new(self.snapshot(row, &mut found)?))),
            Judgement::AlreadyCommitted => {
                let made = request.makes() == row.version;
                let before = codec::rows_in(&request.expected).unwrap_or_default();
                Ok(Ok(self.committed(
                    request,
                    if made {
                        row.row_count
                    } else {
                        before.saturating_add_signed(adds(request))
                    },
                )))
            }
            Judgement::Conflict => {
                let newest = row.recent.last().cloned();
                // Of a table that is not whole the next read tells; a conflict it is all the same.
                Ok(Ok(CommitOutcome::Conflict(Conflict {
                    newest,
                    snapshot: self.snapshot(row, &mut found).ok(),
                })))
            }
            Judgement::OutcomeUnknown => {
                let (expected, version) = (request.expected.version(), row.version);
                refused(
                    TableErrorKind::OutcomeUnknown,
                    format!("the table has moved from version {expected} to {version} since"),
                )
            }
            Judgement::Refused(TableErrorKind::BeingDeleted) => refused(
                TableErrorKind::BeingDeleted,
                "the cluster is being deleted".to_owned(),
            ),
            Judgement::Refused(kind) => refused(
                kind,
                format!(
                    "the table, at version {}, is not the one the commit is for",
                    row.version
                ),
            ),
        }
    }
}

fn conflict(now: Snapshot) -> CommitOutcome {
    CommitOutcome::Conflict(Conflict {
        newest: now.version_row.recent.last().cloned(),
        snapshot: Some(now),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_largest_commit_fits_into_a_transaction() {
        assert_eq!(OF_THE_VERSION + 2 * LIMITS.rows_per_commit, MAX_OPERATIONS);
        // In base64, beside two operations for each row with the longest keys.
        let keys = 2 * LIMITS.rows_per_commit * (MAX_OPERATIONS + 1_600);
        assert!(LIMITS.bytes_per_commit * 4 / 3 + keys < crate::txn::MAX_BYTES);
    }
}
