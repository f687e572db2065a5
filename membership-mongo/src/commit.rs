//! `commit`: one update that matches only the expected version.
//!
//! If it matches nothing, the document is read to find out why (clauses T3, T4, T5). That read is
//! linearizable, so that it is not older than the document that the update met.

use std::sync::PoisonError;

use membership_core::{
    CommitOutcome, CommitRequest, Conflict, Decision, Operation, RowChange, TableError,
    VersionToken,
};

use crate::STORE;
use crate::client::{ATTEMPTS, Inner, LIMITS};
use crate::codec::Table;
use crate::commands::Want;
use crate::error::changed_each_time;

impl Inner {
    /// # Errors
    /// As [`MembershipTable::commit`](membership_core::MembershipTable::commit).
    pub(crate) async fn commit(
        &self,
        request: &CommitRequest,
    ) -> Result<CommitOutcome, TableError> {
        let command = self.commands.commit(request, LIMITS.rows)?;
        // MongoDB has no fields without a name, and no row has an empty key.
        let possible = request
            .changes
            .iter()
            .all(|change| !change.key().is_empty());
        for _ in 0..ATTEMPTS {
            if possible && self.write(command.clone()).await?.checked()? > 0 {
                let token = request.next_token(&[]);
                self.cache.committed(request, &token);
                self.remove_heartbeats(request, &token).await;
                return Ok(CommitOutcome::Committed(token));
            }
            if let Some(outcome) = self.why_not(request).await? {
                if let CommitOutcome::Committed(token) = &outcome {
                    // It happened before, and may have been interrupted after that.
                    self.remove_heartbeats(request, token).await;
                }
                return Ok(outcome);
            }
        }
        Err(changed_each_time())
    }

    /// Why a commit matched nothing; none if the table changed since, and the commit may be sent
    /// again.
    async fn why_not(&self, request: &CommitRequest) -> Result<Option<CommitOutcome>, TableError> {
        let table = self
            .find(Want::All { heartbeats: false }, true)
            .await?
            .table;
        let text = table.as_ref().and_then(Table::version_text);
        let (row, is_next) = match request.decide(text.as_deref(), &LIMITS, STORE)? {
            Decision::Committed(token) => return Ok(Some(CommitOutcome::Committed(token))),
            Decision::Conflict(row) => (*row, false),
            Decision::Write(_) => (self.usable(table.as_ref(), Some(&request.expected))?, true),
        };
        let snapshot = self.snapshot(row, table);
        let fits = |change: &RowChange| {
            matches!(change, RowChange::Insert(_)) != snapshot.rows.by_key(change.key()).is_some()
        };
        if is_next && request.changes.iter().all(fits) {
            return Ok(None);
        }
        let newest = snapshot.version_row.recent.last().cloned();
        let snapshot = Some(snapshot);
        Ok(Some(CommitOutcome::Conflict(Conflict::new(
            newest, snapshot,
        ))))
    }

    /// Removes the heartbeats of removed rows, and with them those that were found without a row:
    /// one that came late, or that an interrupted commit left. What fails here goes with a later
    /// removal.
    async fn remove_heartbeats(&self, request: &CommitRequest, token: &VersionToken) {
        let removal = |change: &&RowChange| matches!(change, RowChange::Remove(_));
        let removed = || request.changes.iter().filter(removal).map(RowChange::key);
        if removed().next().is_none() {
            return;
        }
        let mut orphans = self
            .orphans
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone();
        // A row that was inserted during that read is in the version of this commit.
        match self.cache.of(token) {
            Some(now) => orphans.retain(|key| now.rows.by_key(key).is_none()),
            None => orphans.clear(),
        }
        let keys = removed().chain(orphans.iter().map(String::as_str));
        if let Err(e) = self.write(self.commands.remove_heartbeats_of(keys)).await {
            let error = e.during(Operation::Commit);
            tracing::debug!(cluster = %self.cluster, %error, "heartbeats of removed rows stay as orphans");
        }
    }
}
