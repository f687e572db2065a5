//! `commit`: one batch. Why it is enough: `sql`. Clauses T1 to T5, T16.

use async_trait::async_trait;
use membership_core::{
    CommitOutcome, CommitRequest, Conflict, Operation, Row, RowChange, Settled, TableError,
    TableErrorKind as Kind, missing_version_row,
};
use membership_provider::{gone_since, json, recent_slot};

use super::STORE;
use super::client::Inner;
use super::codec::Found;
use super::connection::{Connection, Value};
use super::error::error;
use super::read::tables_missing;
use super::sql;
use crate::shared::int;
use crate::shared::pool::Work;

pub(super) struct Commit<'a>(pub(super) &'a CommitRequest);

#[async_trait]
impl Work<Inner> for Commit<'_> {
    type Answer = CommitOutcome;
    const OPERATION: Operation = Operation::Commit;
    const REPEATABLE: bool = false;

    async fn run(
        &self,
        table: &Inner,
        connection: &mut Connection,
    ) -> Result<CommitOutcome, TableError> {
        let (request, expected) = (self.0, &self.0.expected);
        if !connection.has_tables().await? {
            return Err(missing(request));
        }
        let (id, commit) = (
            expected.table_id().to_string(),
            expected.commit().to_string(),
        );
        let version = int(expected.version());
        let (new, record, added) = (
            request.id.to_string(),
            json(&request.record()),
            request.added_rows(),
        );
        let settings = request.settings.as_ref().map(json).unwrap_or_default();
        let core = request.core.as_ref().map(|core| json(core.stored()));
        let core = core.unwrap_or_default();
        let changes: Vec<_> = request.changes.iter().map(change).collect();
        let changes = json(&changes);
        let values: [Value<'_>; 10] = [
            &table.key, &id, &version, &commit, &new, &record, &added, &settings, &core, &changes,
        ];
        let statement = sql::commit(recent_slot(request.next_version()), table.limits.rows);
        let found = match connection.write(&statement, &values).await {
            Ok(lines) => Found::of(lines),
            Err(e) => {
                let e = tables_missing(connection, e).await;
                return Err(gone_since(e, Some(expected)));
            }
        };
        if found.done.is_some() {
            return Ok(CommitOutcome::Committed(request.next_token(&[])));
        }
        why_not(table, request, &found)
    }
}

fn missing(request: &CommitRequest) -> TableError {
    missing_version_row(None, Some(&request.expected), Operation::Commit, STORE)
}

/// Kind, key, status and body, as the statement takes them.
fn change(change: &RowChange) -> (u8, &str, &'static str, &str) {
    let status = |row: &Row| row.entry().map_or("", |e| e.status.as_str());
    match change {
        RowChange::Insert(row) => (0, row.key(), status(row), row.body()),
        RowChange::Update(row) => (1, row.key(), status(row), row.body()),
        RowChange::Remove(key) => (2, key, "", ""),
    }
}

/// Why a commit changed nothing.
fn why_not(
    table: &Inner,
    request: &CommitRequest,
    found: &Found,
) -> Result<CommitOutcome, TableError> {
    let row = found
        .version(&table.cache)?
        .ok_or_else(|| missing(request))?;
    let there = |key: &str| found.rows.iter().any(|(found, _)| found == key);
    let fits = |it: &RowChange| matches!(it, RowChange::Insert(_)) != there(it.key());
    match request.settle(&row, STORE)? {
        Settled::Committed => Ok(CommitOutcome::Committed(request.next_token(&[]))),
        Settled::Apply if request.changes.iter().all(fits) => {
            request.check_room(row.row_count, &table.limits, STORE)?;
            let message = "the rows were changed by hand at the same moment";
            Err(error(Kind::Busy, message))
        }
        Settled::Apply | Settled::Conflict => Ok(CommitOutcome::Conflict(Conflict::new(
            row.recent.last().cloned(),
            Some(found.snapshot(&table.cache, row.clone())),
        ))),
    }
}
