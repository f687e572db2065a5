//! `commit`. Clauses T1 to T5, T16.
//!
//! A commit is checked against the locked version row, so that no other commit comes between check
//! and change: in one round trip by the procedure, or in two by this client.

use std::collections::BTreeSet;

use async_trait::async_trait;
use membership_core::encoding::encode_version_row;
use membership_core::{
    CommitOutcome, CommitRequest, Conflict, Judgement, Operation, Row, RowChange, Settled,
    TableError, TableErrorKind as Kind, VersionRow, missing_version_row,
};

use super::client::Inner;
use super::codec::Found;
use super::columns::{number, text as column};
use super::config::MysqlProcedure;
use super::connection::{Connection, Failure};
use super::error::{
    DUPLICATE_KEY, MAY_NOT_CALL, NO_SUCH_PROCEDURE, OTHER_ARGUMENTS, code, error, from_commit,
    from_mysql,
};
use super::read::tables_missing;
use super::sql::{self, text};
use super::{STORE, procedure};
use crate::shared::pool::Work;
use crate::shared::shown;

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
        if !connection.has_tables().await? {
            return Err(missing(self.0));
        }
        if connection.has_procedure
            && let Some(outcome) = by_procedure(table, connection, self.0).await?
        {
            return Ok(outcome);
        }
        let required = table.config.procedure_use() == MysqlProcedure::Require;
        if required && !connection.has_procedure {
            return Err(error(Kind::Configuration, procedure::missing()));
        }
        in_two_round_trips(table, connection, self.0).await
    }
}

fn missing(request: &CommitRequest) -> TableError {
    missing_version_row(None, Some(&request.expected), Operation::Commit, STORE)
}

/// The error of a commit whose statement failed before COMMIT.
async fn failed(
    connection: &mut Connection,
    request: &CommitRequest,
    failure: Failure,
) -> TableError {
    let others = tables_missing(connection, failure).await;
    others.err().unwrap_or_else(|| missing(request))
}

/// The remaining steps of a commit.
fn settle(table: &Inner, request: &CommitRequest, row: &VersionRow) -> Result<Settled, TableError> {
    let settled = request.settle(row, STORE)?;
    if settled == Settled::Apply {
        request.check_room(row.row_count, &table.limits, STORE)?;
    }
    Ok(settled)
}

async fn in_two_round_trips(
    table: &Inner,
    connection: &mut Connection,
    request: &CommitRequest,
) -> Result<CommitOutcome, TableError> {
    let cluster = &table.key;
    let keys = request.changes.iter().map(|change| text(change.key()));
    let keys: Vec<String> = keys.collect();
    let mut first = sql::lock_version(cluster);
    if !keys.is_empty() {
        first.push_str(&format!(
            "; SELECT silo FROM membership_silo WHERE cluster = {cluster} AND silo IN ({}) FOR UPDATE",
            keys.join(", ")
        ));
    }
    connection.check_size(&first)?;
    let mut sets = match connection.begin_read_committed(&first).await {
        Ok(sets) => sets,
        Err(failure) => return Err(failed(connection, request, failure).await),
    };
    let locked = if keys.is_empty() { None } else { sets.pop() };
    let there = locked.iter().flat_map(|set| &set.rows);
    let there: BTreeSet<String> = there.filter_map(|row| column(row, 0)).collect();
    let fits =
        |change: &RowChange| matches!(change, RowChange::Insert(_)) != there.contains(change.key());
    let version = Found::of(sets.last(), &table.cache).version();
    let row = version.and_then(|row| row.ok_or_else(|| missing(request)));
    let settled = row.and_then(|row| Ok((settle(table, request, &row)?, row)));
    let row = match settled {
        Ok((Settled::Apply, row)) if request.changes.iter().all(fits) => row,
        Ok((Settled::Apply | Settled::Conflict, _)) => {
            return conflict(table, connection, request).await;
        }
        Ok((Settled::Committed, _)) => {
            // It is acknowledged now, so a crash must not take it back.
            if roll_back_and_read(table, connection).await.is_none() {
                let message =
                    "the commit was found, but the connection broke before it was sure to last";
                return Err(error(Kind::OutcomeUnknown, message));
            }
            return Ok(CommitOutcome::Committed(request.next_token(&[])));
        }
        Err(e) => {
            connection.roll_back().await;
            return Err(e);
        }
    };
    let next = request.next_version_row(&row);
    match connection
        .commit(&statements(cluster, request, &next))
        .await?
    {
        Ok(()) => Ok(CommitOutcome::Committed(request.next_token(&[]))),
        // A row was inserted by hand, without a change of the version row.
        Err(e) if code(&e) == Some(DUPLICATE_KEY) => conflict(table, connection, request).await,
        Err(e) => {
            connection.roll_back().await;
            Err(from_mysql(e))
        }
    }
}

fn statements(cluster: &str, request: &CommitRequest, next: &VersionRow) -> Vec<String> {
    let (mut inserts, mut removes, mut all) = (Vec::new(), Vec::new(), Vec::new());
    let values = |row: &Row| {
        let (status, written_at) = shown(row);
        (text(row.key()), status, written_at, text(row.body()))
    };
    for change in &request.changes {
        match change {
            RowChange::Remove(key) => removes.push(text(key)),
            RowChange::Insert(row) => {
                let (key, status, written_at, body) = values(row);
                inserts.push(format!(
                    "({cluster}, {key}, '{status}', {written_at}, {body})"
                ));
            }
            RowChange::Update(row) => {
                let (key, status, written_at, body) = values(row);
                all.push(format!(
                    "UPDATE membership_silo SET status = '{status}', written_at = {written_at}, body = {body} WHERE cluster = {cluster} AND silo = {key}"
                ));
            }
        }
    }
    if !inserts.is_empty() {
        all.push(format!(
            "INSERT INTO membership_silo (cluster, silo, status, written_at, body) VALUES {}",
            inserts.join(", ")
        ));
    }
    if !removes.is_empty() {
        let removes = removes.join(", ");
        let delete = |table| {
            format!("DELETE FROM {table} WHERE cluster = {cluster} AND silo IN ({removes})")
        };
        all.extend(["membership_silo", "membership_heartbeat"].map(delete));
    }
    all.push(format!(
        "UPDATE membership_version SET version = {}, token = '{}', body = {} WHERE cluster = {cluster}",
        next.version,
        sql::token(&request.next_token(&[])),
        text(&encode_version_row(next))
    ));
    all
}

/// Commits in one round trip. None if the procedure was dropped or may not be called, or reads the
/// version row differently than this build: then this client checks and commits by itself.
async fn by_procedure(
    table: &Inner,
    connection: &mut Connection,
    request: &CommitRequest,
) -> Result<Option<CommitOutcome>, TableError> {
    let call = procedure::call(&table.key, request, &table.limits);
    connection.check_size(&call)?;
    connection.set_in_doubt(true);
    let sets = match connection.begin(&call).await {
        Ok(sets) => sets,
        Err(Failure { error: e, .. }) => {
            let refused = [NO_SUCH_PROCEDURE, MAY_NOT_CALL, OTHER_ARGUMENTS];
            if code(&e).is_some_and(|code| refused.contains(&code)) {
                connection.set_in_doubt(false);
                connection.has_procedure = false;
                return Ok(None);
            }
            let e = from_commit(e);
            connection.set_in_doubt(e.kind() == Kind::OutcomeUnknown);
            connection.roll_back().await;
            return Err(e);
        }
    };
    connection.set_in_doubt(false);
    // An error that is caught after the first answer follows it.
    let first = sets.first().and_then(|set| set.rows.first());
    let caught = sets.iter().skip(2).find_map(|set| set.rows.first());
    let Some(answer) = first.map(|first| caught.unwrap_or(first)) else {
        connection.discard();
        let message = "the procedure returned no answer";
        return Err(error(Kind::OutcomeUnknown, message));
    };
    match number(answer, 0) {
        Some(procedure::COMMITTED) => Ok(Some(CommitOutcome::Committed(request.next_token(&[])))),
        Some(procedure::ROWS_DO_NOT_FIT) => {
            let found = Found::of(sets.get(1), &table.cache);
            Ok(Some(outcome(table, &found, request)))
        }
        Some(procedure::TOO_MANY_ROWS) => {
            let after = number(answer, 1).unwrap_or(0);
            let before = after.saturating_add_signed(-request.added_rows());
            request.check_room(before, &table.limits, STORE)?;
            Ok(None)
        }
        Some(procedure::NOT_CURRENT) => {
            let found = Found::of(sets.get(1), &table.cache);
            let row = found.version()?.ok_or_else(|| missing(request))?;
            Ok(match settle(table, request, &row)? {
                Settled::Committed => Some(CommitOutcome::Committed(request.next_token(&[]))),
                Settled::Conflict => Some(outcome(table, &found, request)),
                Settled::Apply => None,
            })
        }
        _ => {
            // It was caught before COMMIT and rolled back.
            let code = number(answer, 1).and_then(|n| u16::try_from(n).ok());
            let server = mysql_async::ServerError {
                code: code.unwrap_or(0),
                message: column(answer, 2).unwrap_or_default(),
                state: "HY000".to_owned(),
            };
            let error = server.into();
            Err(failed(connection, request, Failure { at: 0, error }).await)
        }
    }
}

/// Ends the transaction and reads the table in the same round trip. None if the connection broke,
/// which also ends the transaction.
async fn roll_back_and_read(table: &Inner, connection: &mut Connection) -> Option<Found> {
    let mut sql = format!(
        "ROLLBACK{}; {}",
        connection.watch.1,
        sql::read(&table.key, None, false)
    );
    if connection.facts.early {
        sql = format!("{sql}; {}", sql::settle(&table.key, None));
    }
    let at = 1 + usize::from(!connection.watch.1.is_empty());
    match connection.send(&sql).await {
        Ok(sets) => sets.get(at).map(|set| Found::of(Some(set), &table.cache)),
        Err(_) => {
            connection.discard();
            None
        }
    }
}

/// A conflict is certain also without the current table; but not if a crash may undo the commit
/// that caused it, and the connection broke before that was ruled out.
async fn conflict(
    table: &Inner,
    connection: &mut Connection,
    request: &CommitRequest,
) -> Result<CommitOutcome, TableError> {
    let early = connection.facts.early;
    match roll_back_and_read(table, connection).await {
        None if early => {
            let message = "another commit was in the way, and the connection broke before that one was sure to last";
            Err(error(Kind::Unavailable, message))
        }
        found => Ok(outcome(table, &found.unwrap_or_default(), request)),
    }
}

/// The answer to a commit that was not applied, with the current table.
fn outcome(table: &Inner, found: &Found, request: &CommitRequest) -> CommitOutcome {
    let Ok(row) = found.usable(None) else {
        return CommitOutcome::Conflict(Conflict::default());
    };
    if request.judge(&row) == Judgement::AlreadyCommitted {
        // An earlier sending was still under way.
        return CommitOutcome::Committed(request.next_token(&[]));
    }
    CommitOutcome::Conflict(Conflict::new(
        row.recent.last().cloned(),
        Some(found.snapshot(row, &table.cache)),
    ))
}
