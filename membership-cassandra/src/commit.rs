//! `commit`: one conditional batch, and its outcome. Clauses T2 to T5.

use std::sync::Arc;

use membership_core::{
    Attempt, CommitOutcome, CommitRequest, Conflict, MAX_SAFE_INTEGER, RowChange, Settled,
    TableError, TableErrorKind, VersionRow, VersionToken, encoding::LAYOUT,
};
use membership_provider::{json, recent_slot, row_count_of};
use scylla::statement::prepared::PreparedStatement;
use scylla::value::MaybeUnset;
use tokio::time::Instant;

use crate::STORE;
use crate::client::{Inner, LIMITS};
use crate::codec::{self, Value, big, int, text};
use crate::error::{Doubt, error, gone, still_unknown};
use crate::keys;
use crate::statements::Statements;

impl Inner {
    /// # Errors
    /// As [`MembershipTable::commit`](membership_core::MembershipTable::commit).
    pub(crate) async fn commit(
        &self,
        request: &CommitRequest,
    ) -> Result<CommitOutcome, TableError> {
        match self.send_commit(request).await {
            Err(e) if request.attempt == Attempt::Again => {
                Err(still_unknown("it was sent before", e))
            }
            other => other,
        }
    }

    async fn send_commit(&self, request: &CommitRequest) -> Result<CommitOutcome, TableError> {
        let (deadline, last) = self.client.deadlines();
        let count = match row_count_of(&request.expected) {
            Some(count) => count,
            // The token was made from its parts.
            None => match self.judged(request, deadline).await? {
                Ok(outcome) => return Ok(outcome),
                Err(row) => row.row_count,
            },
        };
        let values = self.values(request, count);
        let statements = |all: &Statements| -> Vec<PreparedStatement> {
            let of = |change: &RowChange| match change {
                RowChange::Insert(_) => all.insert.clone(),
                RowChange::Update(_) => all.update.clone(),
                RowChange::Remove(_) => all.remove.clone(),
            };
            std::iter::once(all.advance.clone())
                .chain(request.changes.iter().map(of))
                .collect()
        };
        let answer = match self.client.batch(deadline, statements, &values).await {
            Ok(answer) => answer,
            Err(failed) if failed.doubt == Doubt::None => return Err(failed.error),
            Err(failed) => {
                return self
                    .doubtful(request, failed.doubt, failed.error, last)
                    .await;
            }
        };
        // The answer always says whether it was applied; the version row may be missing.
        let (applied, stored) = match codec::named(answer) {
            Ok(rows) => codec::verdict(rows),
            Err(e) => return self.doubtful(request, Doubt::Settled, e, last).await,
        };
        if applied {
            return Ok(self.committed(request, count));
        }
        let judged = match stored {
            Some(stored) => self.judge(request, &codec::any_version(&stored, &self.decided_by)?)?,
            None => self.judged(request, last).await?,
        };
        match judged {
            Ok(outcome) => Ok(outcome),
            Err(row) => {
                request.check_room(row.row_count, &LIMITS, STORE)?;
                // The version is the expected one: an inserted row exists, or another does not.
                Ok(conflict(&row))
            }
        }
    }

    /// The values of the batch: those of the version row first.
    fn values(&self, request: &CommitRequest, count: u64) -> Vec<Vec<Value>> {
        let (expected, cluster) = (&request.expected, &self.client.cluster);
        let or_unset = |part: Option<String>| part.map_or(MaybeUnset::Unset, text);
        let room = match request.added_rows() {
            added @ 1.. => (LIMITS.rows as u64).saturating_add_signed(-added),
            _ => u64::MAX,
        };
        let slot = u32::try_from(recent_slot(request.next_version())).unwrap_or(0);
        let mut all = vec![vec![
            big(request.next_version()),
            text(request.id.to_string()),
            big(count_after(count, request)),
            int(LAYOUT),
            int(slot),
            text(json(&request.record())),
            or_unset(request.settings.as_ref().map(json)),
            or_unset(request.core.as_ref().map(|core| core.stored().to_owned())),
            text(cluster),
            text(expected.table_id().to_string()),
            big(expected.version()),
            text(expected.commit().to_string()),
            int(LAYOUT),
            big(room),
            text(&self.decided_by),
        ]];
        all.extend(request.changes.iter().map(|change| match change {
            RowChange::Insert(row) => vec![text(cluster), text(row.key()), text(row.body())],
            RowChange::Update(row) => vec![text(row.body()), text(cluster), text(row.key())],
            RowChange::Remove(key) => vec![text(cluster), text(key)],
        }));
        all
    }

    /// The answer to a successful commit. Brings the snapshot of this handle up to date.
    fn committed(&self, request: &CommitRequest, count: u64) -> CommitOutcome {
        let token = request.next_token(&count_after(count, request).to_be_bytes());
        self.cache.committed(request, &token);
        self.remove_heartbeats_of(request, &token);
        CommitOutcome::Committed(token)
    }

    /// Removes the heartbeats of removed rows, and known orphans, in the background. No read shows
    /// them meanwhile.
    fn remove_heartbeats_of(&self, request: &CommitRequest, token: &VersionToken) {
        let mut gone = removed_heartbeats(request);
        if gone.is_empty() {
            return;
        }
        gone.extend(self.known_orphans(token));
        let client = Arc::clone(&self.client);
        tokio::spawn(async move {
            let removed = async {
                let mut seen = client.heartbeat_times(client.deadline()).await?;
                seen.retain(|(key, _)| gone.contains(key));
                client.remove_heartbeats(&seen).await
            };
            if let Err(e) = removed.await {
                tracing::debug!(error = %e, "heartbeats of removed rows stay until the next cleanup");
            }
        });
    }

    /// The outcome of a commit that was sent and whose coordinator does not know the outcome. A
    /// serial read completes an unfinished transaction or rules it out, so that it is certain after
    /// it, unless a server may still work on the transaction.
    async fn doubtful(
        &self,
        request: &CommitRequest,
        doubt: Doubt,
        why: TableError,
        deadline: Instant,
    ) -> Result<CommitOutcome, TableError> {
        tracing::debug!(cluster = %self.cluster, version = request.next_version(), error = %why, "reads the outcome of a commit");
        // Judged as a repeated commit: if the table has moved too far, the record is gone, and that
        // is no conflict.
        match self.judged(&request.again(), deadline).await {
            Ok(Ok(outcome)) => Ok(outcome),
            Ok(Err(_)) if doubt == Doubt::Settled => {
                let message = format!(
                    "other requests used the same partition, and the commit did not happen: {}",
                    why.message()
                );
                Err(error(TableErrorKind::Busy, message).at(&self.client.endpoint))
            }
            Ok(Err(_)) => Err(why),
            Err(e) => Err(still_unknown(why.message(), e).at(&self.client.endpoint)),
        }
    }

    /// The outcome of a commit by the current version row; that row, if the commit can still
    /// happen.
    async fn judged(
        &self,
        request: &CommitRequest,
        deadline: Instant,
    ) -> Result<Result<CommitOutcome, Arc<VersionRow>>, TableError> {
        let stored = self.version(deadline).await?.ok_or_else(gone)?;
        self.judge(request, &codec::any_version(&stored, &self.decided_by)?)
    }

    fn judge(
        &self,
        request: &CommitRequest,
        row: &Arc<VersionRow>,
    ) -> Result<Result<CommitOutcome, Arc<VersionRow>>, TableError> {
        Ok(match request.settle(row, STORE)? {
            Settled::Apply => Err(Arc::clone(row)),
            Settled::Committed => {
                let before = || row.row_count.saturating_add_signed(-request.added_rows());
                let before = row_count_of(&request.expected).unwrap_or_else(before);
                Ok(self.committed(request, before))
            }
            Settled::Conflict => Ok(conflict(row)),
        })
    }
}

fn conflict(row: &VersionRow) -> CommitOutcome {
    CommitOutcome::Conflict(Conflict::new(row.recent.last().cloned(), None))
}

/// The number of rows after a commit on a version with `count` rows.
fn count_after(count: u64, request: &CommitRequest) -> u64 {
    count
        .saturating_add_signed(request.added_rows())
        .min(MAX_SAFE_INTEGER)
}

/// The keys of the heartbeats that a commit removes. A foreign row may have the name of the
/// cluster's cell: the cell stays.
fn removed_heartbeats(request: &CommitRequest) -> Vec<String> {
    let removed = request.changes.iter().filter_map(|change| match change {
        RowChange::Remove(key) if key != keys::CELL => Some(key.clone()),
        _ => None,
    });
    removed.collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use membership_core::{CommitId, SharedSettings, TableId};
    use membership_provider::counted_token;

    #[test]
    fn the_clusters_cell_stays_when_a_row_of_its_name_is_removed() {
        let start = VersionRow::initial(TableId::new(7), SharedSettings::default());
        let removes = ["10.0.0.1:7100@17".to_owned(), keys::CELL.to_owned()];
        let request = CommitRequest::new(
            counted_token(&start),
            CommitId::new(1),
            None,
            [],
            [],
            removes,
        );
        assert_eq!(removed_heartbeats(&request), ["10.0.0.1:7100@17"]);
    }
}
