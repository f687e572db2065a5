//! A commit: one conditional batch, and what became of it. Clauses T2 to T5.

use std::sync::Arc;

use membership_core::{
    Attempt, CommitOutcome, CommitRequest, Conflict, Judgement, RowChange, TableError,
    TableErrorKind, TableLimits, VersionRow, encoding::LAYOUT,
};
use scylla::statement::prepared::PreparedStatement;
use scylla::value::MaybeUnset;
use tokio::time::Instant;

use crate::codec::{self, Gathered, Stored, Value, big, int, text};
use crate::error::{Doubt, error};
use crate::schema;
use crate::table::Inner;

/// A partition is read in one page, and a batch is proposed as one value to each replica: these keep both far below what servers take by
/// default (16 MiB for a request and for a mutation).
pub(crate) const LIMITS: TableLimits = TableLimits {
    rows_per_commit: 500,
    bytes_per_row: 64 << 10,
    bytes_per_commit: 2 << 20,
    rows: 5_000,
};

impl Inner {
    /// # Errors
    /// As [`MembershipTable::commit`](membership_core::MembershipTable::commit).
    pub(crate) async fn commit(
        &self,
        request: &CommitRequest,
    ) -> Result<CommitOutcome, TableError> {
        match self.sent(request).await {
            Err(e) if request.attempt == Attempt::Again => {
                Err(still_unknown("it was sent before", e))
            }
            other => other,
        }
    }

    async fn sent(&self, request: &CommitRequest) -> Result<CommitOutcome, TableError> {
        let (deadline, last) = self.link.deadlines();
        let count = match codec::count_in(&request.expected) {
            Some(count) => count,
            // A token that somebody made from its parts.
            None => match self.judged(request, deadline).await? {
                Ok(outcome) => return Ok(outcome),
                Err(row) => row.row_count,
            },
        };
        let values = self.values(request, count)?;
        let statements = |all: &schema::Statements| -> Vec<PreparedStatement> {
            let of = |change: &RowChange| match change {
                RowChange::Insert(_) => all.insert.clone(),
                RowChange::Update(_) => all.update.clone(),
                RowChange::Remove(_) => all.remove.clone(),
            };
            std::iter::once(all.advance.clone())
                .chain(request.changes.iter().map(of))
                .collect()
        };
        let answer = match self.link.batch(deadline, statements, &values).await {
            Ok(answer) => answer,
            Err(failed) if failed.doubt == Doubt::None => return Err(failed.error),
            Err(failed) => {
                return self
                    .doubtful(request, failed.doubt, failed.error, last)
                    .await;
            }
        };
        // Only whether it was applied is sure to be there.
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
            Err(row)
                if codec::adds(request) > 0
                    && codec::count_after(row.row_count, request) > LIMITS.rows as u64 =>
            {
                let rows = codec::count_after(row.row_count, request);
                let message = format!(
                    "the table would have {rows} rows, the store takes {}",
                    LIMITS.rows
                );
                Err(error(TableErrorKind::LimitExceeded, message))
            }
            // The version is the expected one, and a row is there, or is not.
            Err(row) => Ok(CommitOutcome::Conflict(Conflict {
                newest: row.recent.last().cloned(),
                snapshot: None,
            })),
        }
    }

    /// What is bound to the statements of the batch: the version row first.
    fn values(&self, request: &CommitRequest, count: u64) -> Result<Vec<Vec<Value>>, TableError> {
        let (expected, cluster) = (&request.expected, &self.link.cluster);
        let or_unset = |part: Option<String>| part.map_or(MaybeUnset::Unset, text);
        let adds = codec::adds(request);
        let room = if adds > 0 {
            (LIMITS.rows as u64).saturating_add_signed(-adds)
        } else {
            u64::MAX
        };
        let mut all = vec![vec![
            big(request.makes()),
            text(request.id.to_string()),
            big(codec::count_after(count, request)),
            int(LAYOUT),
            int(codec::place(request.makes())),
            text(codec::record(request)?),
            or_unset(request.settings.as_ref().map(codec::json).transpose()?),
            or_unset(request.core.clone()),
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
        Ok(all)
    }

    /// What the caller is told of its success; and what this handle knows of the table now.
    fn committed(&self, request: &CommitRequest, count: u64) -> CommitOutcome {
        let token = request.next_token(&codec::count_after(count, request).to_be_bytes());
        if let Some(seen) = self
            .seen()
            .filter(|seen| seen.token.same_commit(&request.expected))
        {
            self.remember(&request.apply_to(&seen, token.clone()));
        }
        self.forget_beats(request);
        CommitOutcome::Committed(token)
    }

    /// Heartbeats of rows that are gone go too, and orphans that were seen: nobody waits for that, and no read shows them meanwhile.
    fn forget_beats(&self, request: &CommitRequest) {
        let mut gone = beats_gone(request);
        if gone.is_empty() {
            return;
        }
        gone.extend(self.known_orphans(request));
        let link = Arc::clone(&self.link);
        tokio::spawn(async move {
            let removed = async {
                let mut seen = link.beat_times(link.deadline()).await?;
                seen.retain(|(key, _)| gone.contains(key));
                link.remove_beats(&seen).await
            };
            if let Err(e) = removed.await {
                tracing::debug!(error = %e, "heartbeats of removed rows are left for the next cleanup");
            }
        });
    }

    /// It was sent, and whoever carried it out does not know what became of it. A serial read completes what is left of a transaction or
    /// rules it out, so that it is the last word, unless a server may still be at work on it.
    async fn doubtful(
        &self,
        request: &CommitRequest,
        doubt: Doubt,
        why: TableError,
        deadline: Instant,
    ) -> Result<CommitOutcome, TableError> {
        tracing::debug!(cluster = %self.cluster, version = request.makes(), error = %why, "what became of a commit is looked up");
        // Judged as one that was sent before: when the table has moved on too far, its record is gone, and that is no conflict.
        match self.judged(&request.again(), deadline).await {
            Ok(Ok(outcome)) => Ok(outcome),
            Ok(Err(_)) if doubt == Doubt::Settled => {
                let message = format!(
                    "others were at the same partition, and the commit did not happen: {}",
                    why.message()
                );
                Err(error(TableErrorKind::Busy, message).at(&self.link.at))
            }
            Ok(Err(_)) => Err(why),
            Err(e) => Err(still_unknown(why.message(), e).at(&self.link.at)),
        }
    }

    /// What the version row says of a commit; the row itself if it is still to come.
    async fn judged(
        &self,
        request: &CommitRequest,
        deadline: Instant,
    ) -> Result<Result<CommitOutcome, Arc<VersionRow>>, TableError> {
        let stored = self.version(deadline).await?.ok_or_else(gone)?;
        self.judge(request, &codec::any_version(&stored, &self.decided_by)?)
    }

    /// The version row alone.
    pub(crate) async fn version(&self, deadline: Instant) -> Result<Option<Stored>, TableError> {
        let values = (text(&self.link.cluster), codec::keys([schema::VERSION]));
        let answer = self
            .link
            .execute(deadline, false, |all| &all.some, values)
            .await
            .map_err(|failed| failed.error)?;
        Ok(Gathered::new(codec::named(answer)?).version)
    }

    fn judge(
        &self,
        request: &CommitRequest,
        row: &Arc<VersionRow>,
    ) -> Result<Result<CommitOutcome, Arc<VersionRow>>, TableError> {
        match request.judge(row) {
            Judgement::Apply => Ok(Err(Arc::clone(row))),
            Judgement::AlreadyCommitted => {
                let count = codec::count_in(&request.expected);
                let before = count
                    .unwrap_or_else(|| row.row_count.saturating_add_signed(-codec::adds(request)));
                Ok(Ok(self.committed(request, before)))
            }
            Judgement::Conflict => Ok(Ok(CommitOutcome::Conflict(Conflict {
                newest: row.recent.last().cloned(),
                snapshot: None,
            }))),
            Judgement::OutcomeUnknown => {
                let message = format!(
                    "the table has moved from version {} to {} since",
                    request.expected.version(),
                    row.version
                );
                Err(error(TableErrorKind::OutcomeUnknown, message))
            }
            Judgement::Refused(TableErrorKind::BeingDeleted) => Err(error(
                TableErrorKind::BeingDeleted,
                "the cluster is being deleted",
            )),
            Judgement::Refused(kind) => Err(error(
                kind,
                format!(
                    "the table, at version {}, is not the one the commit is for",
                    row.version
                ),
            )),
        }
    }
}

/// A commit that was sent may have happened, whatever prevents looking it up. Only a table that is another one now, or goes, says that there is
/// nothing to find out. `sent` says why it is not known.
pub(crate) fn still_unknown(sent: &str, e: TableError) -> TableError {
    use TableErrorKind::{BeingDeleted, OutcomeUnknown, TableReplaced, TableRolledBack};
    match e.kind() {
        OutcomeUnknown | TableReplaced | TableRolledBack | BeingDeleted => e,
        kind => {
            let message = format!(
                "{sent}, and what became of it is not known: {} [{}]",
                e.message(),
                kind.as_str()
            );
            let unknown = error(OutcomeUnknown, message);
            match e.place() {
                Some(place) => unknown.at(place),
                None => unknown,
            }
            .with_source(e)
        }
    }
}

/// Whose heartbeats go with a commit. A row that bears the name of the cluster's cell, which none of ours does, has no heartbeat: the cell stays.
fn beats_gone(request: &CommitRequest) -> Vec<String> {
    let removed = request.changes.iter().filter_map(|change| match change {
        RowChange::Remove(key) if key != schema::CELL => Some(key.clone()),
        _ => None,
    });
    removed.collect()
}

fn gone() -> TableError {
    error(
        TableErrorKind::TableReplaced,
        "the version row that was known is gone",
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use membership_core::{CommitId, SharedSettings, TableId};

    #[test]
    fn the_clusters_cell_outlives_a_row_of_its_name() {
        let start = VersionRow::initial(TableId::new(7), SharedSettings::default());
        let removes = ["10.0.0.1:7100@17".to_owned(), schema::CELL.to_owned()];
        let request = CommitRequest::new(
            codec::token_of(&start),
            CommitId::new(1),
            None,
            [],
            [],
            removes,
        );
        assert_eq!(beats_gone(&request), ["10.0.0.1:7100@17"]);
    }

    #[test]
    fn what_may_have_happened_is_never_called_certain() {
        use TableErrorKind::{BeingDeleted, OutcomeUnknown, TableReplaced, TableRolledBack};
        let kept = [OutcomeUnknown, TableReplaced, TableRolledBack, BeingDeleted];
        for kind in TableErrorKind::ALL {
            let told = still_unknown(
                "no answer within 5s",
                error(kind, "the second thing").at("h:9042"),
            );
            assert_eq!(
                told.kind(),
                if kept.contains(&kind) {
                    kind
                } else {
                    OutcomeUnknown
                }
            );
            assert!(
                told.message().contains("the second thing") && told.place() == Some("h:9042"),
                "{told}"
            );
            assert!(
                kept.contains(&kind) || told.message().contains("no answer within 5s"),
                "{told}"
            );
        }
    }
}
