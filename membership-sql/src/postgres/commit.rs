//! `commit`: one statement. Why one is enough: `sql`.

use std::collections::HashSet;
use std::sync::Arc;

use membership_core::{
    CommitOutcome, CommitRequest, Conflict, Operation, Row, RowChange, Settled, TableError,
    TableErrorKind as Kind, missing_version_row,
};
use membership_provider::json;

use super::STORE;
use super::client::{Call, LIMITS, Value};
use super::codec::{Answer, replaced_if_known, sort};
use super::error::error;
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
        let values: [Value<'_>; 17] = [
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
        let rows = self.ask(Statement::Commit, &values).await;
        let rows = rows.map_err(replaced_if_known(Some(expected)))?;
        let answer = sort(&rows)?;
        if answer.done {
            return Ok(CommitOutcome::Committed(request.next_token(&[])));
        }
        if let Some(outcome) = self.why_not(&answer, request)? {
            return Ok(outcome);
        }
        // Another commit was faster while the statement waited for the version row. The statement
        // changed nothing and does not show that commit.
        let nothing: Option<&str> = None;
        let no_version: Option<i64> = None;
        let values: [Value<'_>; 5] = [&self.key, &nothing, &no_version, &nothing, &false];
        let rows = self.ask(Statement::Read, &values).await;
        let rows = rows.map_err(replaced_if_known(Some(expected)))?;
        let blocked = || error(Kind::Busy, "another transaction was in the way");
        self.why_not(&sort(&rows)?, request)?.ok_or_else(blocked)
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
