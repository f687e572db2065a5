//! `commit`: one statement. Why one is enough: `sql`.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use membership_core::{
    CommitOutcome, CommitRequest, Conflict, Operation, Row, RowChange, Settled, TableError,
    TableErrorKind as Kind, missing_version_row,
};
use membership_provider::json;

use super::STORE;
use super::client::{Call, LIMITS, Value};
use super::codec::{Answer, replaced_if_known, sort};
use super::config::PostgresSynchronousCommit;
use super::error::{Phase, error, lost, refuses_announcements};
use super::sql::Statement;
use super::unlogged::Unlogged;
use crate::shared::int;

/// Rows as columns.
#[derive(Default)]
struct Columns<'r> {
    keys: Vec<&'r str>,
    statuses: Vec<&'static str>,
    bodies: Vec<&'r str>,
}

impl<'r> Columns<'r> {
    fn push(&mut self, row: &'r Row) {
        let status = row.entry().map_or("", |e| e.status.as_str());
        self.keys.push(row.key());
        self.statuses.push(status);
        self.bodies.push(row.body());
    }
}

impl Call {
    /// # Errors
    /// As [`MembershipTable::commit`](membership_core::MembershipTable::commit).
    pub(super) async fn commit(
        &self,
        request: &CommitRequest,
    ) -> Result<CommitOutcome, TableError> {
        let expected = &request.expected;
        let (mut inserts, mut updates) = (Columns::default(), Columns::default());
        let mut removes = Vec::new();
        for change in &request.changes {
            match change {
                RowChange::Insert(row) => inserts.push(row),
                RowChange::Update(row) => updates.push(row),
                RowChange::Remove(key) => removes.push(key.as_str()),
            }
        }
        let mut values: [Value<'_>; 17] = [
            &self.key,
            &expected.table_id().to_string(),
            &int(expected.version()),
            &expected.commit().to_string(),
            &request.id.to_string(),
            &json(&request.record()),
            &request.added_rows(),
            &request.settings.as_ref().map(json),
            &request
                .core
                .as_ref()
                .map(|core| Unlogged(json(core.stored()))),
            &inserts.keys,
            &inserts.statuses,
            &inserts.bodies,
            &updates.keys,
            &updates.statuses,
            &updates.bodies,
            &removes,
            &self.channel,
        ];
        let mut rows = self.ask(Statement::Commit, &values).await;
        // Announcements are hints only, and nothing was committed.
        if rows.as_ref().is_err_and(refuses_announcements) {
            values[16] = &"";
            rows = self.ask(Statement::Commit, &values).await;
        }
        let rows = rows.map_err(replaced_if_known(Some(expected)))?;
        let answer = sort(&rows)?;
        if let Some(confirmed) = answer.done {
            self.client.confirmed.store(confirmed, Ordering::Relaxed);
            // Those that confirm may take over.
            self.client.replicas.note(confirmed);
            let token = request.next_token(&[]);
            self.seen.set(&token);
            return Ok(CommitOutcome::Committed(token));
        }
        match self.why_not(&answer, request)? {
            Some(CommitOutcome::Committed(_)) => return self.found(request).await,
            Some(outcome) => return Ok(outcome),
            None => {}
        }
        // Another commit was faster while the statement waited for the version row. The statement
        // changed nothing and does not show that commit.
        let nothing: Option<&str> = None;
        let no_version: Option<i64> = None;
        let values: [Value<'_>; 5] = [&self.key, &nothing, &no_version, &nothing, &false];
        let rows = self.ask(Statement::Read, &values).await;
        let rows = rows.map_err(replaced_if_known(Some(expected)))?;
        match self.why_not(&sort(&rows)?, request)? {
            Some(CommitOutcome::Committed(_)) => self.found(request).await,
            Some(outcome) => Ok(outcome),
            None => Err(error(Kind::Busy, "another transaction was in the way")),
        }
    }

    /// A commit was sent before, and this server has it, maybe alone: the wait for the standbys was
    /// cancelled, or the server was started again before they had it. It has happened when they
    /// confirm what is in the log by now. Clauses T2 and T5.
    async fn found(&self, request: &CommitRequest) -> Result<CommitOutcome, TableError> {
        let may_be_lost = |e: TableError| {
            let message = format!(
                "the server has it, and maybe its standbys do not: {}",
                e.message()
            );
            error(Kind::OutcomeUnknown, message).with_source(e)
        };
        let (nothing, version): (Option<&str>, Option<i64>) = (None, None);
        let values: [Value<'_>; 5] = [&self.key, &nothing, &version, &nothing, &false];
        let statement = match self.client.config.synchronous_commit {
            PostgresSynchronousCommit::Local => Statement::Read,
            _ => Statement::Barrier,
        };
        let rows = self.ask(statement, &values).await.map_err(may_be_lost)?;
        // Another server may have answered this time.
        match self.why_not(&sort(&rows)?, request)? {
            Some(CommitOutcome::Committed(token)) => {
                self.seen.set(&token);
                Ok(CommitOutcome::Committed(token))
            }
            _ => Err(lost(Phase::Writing, "two servers disagree about it")),
        }
    }

    /// Why a commit changed nothing; none if the answer shows no reason.
    fn why_not(
        &self,
        answer: &Answer<'_>,
        request: &CommitRequest,
    ) -> Result<Option<CommitOutcome>, TableError> {
        let expected = Some(&request.expected);
        let missing = || missing_version_row(None, expected, Operation::Commit, STORE);
        let row = answer.version(&self.cache)?.ok_or_else(missing)?;
        let there: HashSet<&str> = answer.rows.iter().map(|(key, _)| *key).collect();
        let fits = |change: &RowChange| {
            matches!(change, RowChange::Insert(_)) != there.contains(change.key())
        };
        match request.settle(&row, STORE)? {
            Settled::Committed => {
                return Ok(Some(CommitOutcome::Committed(request.next_token(&[]))));
            }
            Settled::Apply if request.changes.iter().all(fits) => {
                request.check_room(row.row_count, &LIMITS, STORE)?;
                return Ok(None);
            }
            Settled::Apply | Settled::Conflict => {}
        }
        Ok(Some(CommitOutcome::Conflict(Conflict::new(
            row.recent.last().cloned(),
            Some(answer.snapshot(&self.cache, Arc::clone(&row))),
        ))))
    }
}
