//! Writes of a running cluster: commits and heartbeats, one statement each. Why that is enough: `sql`.

use std::sync::Arc;

use membership_core::{
    CommitOutcome, CommitRequest, Conflict, HeartbeatWrite, Judgement, MAX_CLUSTER_CELL_BYTES,
    ReadRequest, Row, RowChange, TableError, TableErrorKind, TableLimits, VersionRow,
};
use tokio::time::Instant;

use super::codec::{Answer, Cache, absent, absent_to, being_deleted, int, sort};
use super::error::{Phase, error};
use super::link::{Line, Value};
use super::sql::Statement;

/// The values of a commit.
struct Values<'r> {
    table: String,
    base: String,
    id: String,
    record: String,
    growth: i64,
    settings: Option<String>,
    core: Option<String>,
    inserts: Columns<'r>,
    updates: Columns<'r>,
    removes: Vec<&'r str>,
}

/// Rows as columns.
#[derive(Default)]
struct Columns<'r> {
    keys: Vec<&'r str>,
    statuses: Vec<&'static str>,
    bodies: Vec<&'r str>,
}

impl<'r> Columns<'r> {
    fn push(&mut self, row: &'r Row) {
        self.keys.push(row.key());
        self.statuses
            .push(row.entry().map_or("", |e| e.status.as_str()));
        self.bodies.push(row.body());
    }
}

impl<'r> Values<'r> {
    fn new(request: &'r CommitRequest) -> Result<Self, TableError> {
        let json = |e: serde_json::Error| {
            error(
                TableErrorKind::InvalidRequest,
                format!("the commit cannot be written as JSON ({e})"),
            )
        };
        let (mut inserts, mut updates, mut removes) =
            (Columns::default(), Columns::default(), Vec::new());
        let mut growth = 0;
        for change in &request.changes {
            match change {
                RowChange::Insert(row) => {
                    growth += 1;
                    inserts.push(row);
                }
                RowChange::Update(row) => updates.push(row),
                RowChange::Remove(key) => {
                    growth -= 1;
                    removes.push(key.as_str());
                }
            }
        }
        // Which keys a record lists and when it only counts them, core knows.
        let settings = request.settings.clone().unwrap_or_default();
        let made = request.next_version_row(&VersionRow {
            version: request.expected.version(),
            ..VersionRow::initial(request.expected.table_id(), settings)
        });
        let record = made
            .recent
            .last()
            .map(serde_json::to_string)
            .transpose()
            .map_err(json)?
            .unwrap_or_default();
        Ok(Self {
            table: request.expected.table_id().to_string(),
            base: request.expected.commit().to_string(),
            id: request.id.to_string(),
            record,
            growth,
            settings: request
                .settings
                .as_ref()
                .map(serde_json::to_string)
                .transpose()
                .map_err(json)?,
            core: request
                .core
                .as_ref()
                .map(serde_json::to_string)
                .transpose()
                .map_err(json)?,
            inserts,
            updates,
            removes,
        })
    }
}

/// `commit`
pub(super) async fn commit(
    line: &Line,
    cache: &Cache,
    cluster: &str,
    channel: &str,
    request: &CommitRequest,
    limits: &TableLimits,
    deadline: Instant,
) -> Result<CommitOutcome, TableError> {
    let values = Values::new(request)?;
    let version = int(request.expected.version());
    let Values {
        table,
        base,
        id,
        record,
        growth,
        settings,
        core,
        inserts,
        updates,
        removes,
    } = &values;
    let all: [Value<'_>; 17] = [
        &cluster,
        table,
        &version,
        base,
        id,
        record,
        growth,
        settings,
        core,
        &inserts.keys,
        &inserts.statuses,
        &inserts.bodies,
        &updates.keys,
        &updates.statuses,
        &updates.bodies,
        removes,
        &channel,
    ];
    let rows = line
        .ask(Statement::Commit, &all, Phase::Writing, deadline)
        .await
        .map_err(absent_to(Some(&request.expected)))?;
    let answer = sort(&rows)?;
    if answer.done {
        return Ok(CommitOutcome::Committed(request.next_token(&[])));
    }
    match refused(&answer, cache, request, limits)? {
        Some(outcome) => Ok(outcome),
        None => beaten(line, cache, cluster, request, limits, deadline).await,
    }
}

/// What the table says of a commit that changed nothing. None where, by what it shows, it could have been carried out.
fn refused(
    answer: &Answer<'_>,
    cache: &Cache,
    request: &CommitRequest,
    limits: &TableLimits,
) -> Result<Option<CommitOutcome>, TableError> {
    let Some(stored) = answer.version(cache)? else {
        return Err(absent(Some(&request.expected)));
    };
    let conflict = |row: &Arc<VersionRow>| {
        let snapshot = answer.snapshot(cache, Arc::clone(row));
        Ok(Some(CommitOutcome::Conflict(Conflict {
            newest: row.recent.last().cloned(),
            snapshot: Some(snapshot),
        })))
    };
    let row = &stored.row;
    match request.judge(row) {
        Judgement::Refused(TableErrorKind::TableReplaced) => Err(error(
            TableErrorKind::TableReplaced,
            "the table has another id than the one the commit is for",
        )),
        _ if stored.deleting => Err(being_deleted()),
        Judgement::Refused(kind) => Err(error(
            kind,
            format!(
                "the table is at version {}, which is not what the commit's token leads to",
                row.version
            ),
        )),
        Judgement::OutcomeUnknown => Err(error(
            TableErrorKind::OutcomeUnknown,
            format!(
                "the table has moved from version {} to {} since",
                request.expected.version(),
                row.version
            ),
        )),
        Judgement::AlreadyCommitted => Ok(Some(CommitOutcome::Committed(request.next_token(&[])))),
        Judgement::Conflict => conflict(row),
        Judgement::Apply => {
            let there: std::collections::HashSet<&str> =
                answer.rows.iter().map(|(key, _)| *key).collect();
            if request
                .changes
                .iter()
                .any(|c| matches!(c, RowChange::Insert(_)) == there.contains(c.key()))
            {
                return conflict(row);
            }
            let next =
                usize::try_from(request.next_version_row(row).row_count).unwrap_or(usize::MAX);
            if next > limits.rows && next > usize::try_from(row.row_count).unwrap_or(usize::MAX) {
                return Err(error(
                    TableErrorKind::LimitExceeded,
                    format!(
                        "the table would have {next} rows, and takes {}",
                        limits.rows
                    ),
                ));
            }
            Ok(None)
        }
    }
}

/// Somebody else was faster while the statement waited for the version row: it changed nothing, and does not show who it was.
async fn beaten(
    line: &Line,
    cache: &Cache,
    cluster: &str,
    request: &CommitRequest,
    limits: &TableLimits,
    deadline: Instant,
) -> Result<CommitOutcome, TableError> {
    let nothing: Option<String> = None;
    let no_version: Option<i64> = None;
    let values: [Value<'_>; 5] = [
        &cluster,
        &nothing,
        &no_version,
        &nothing,
        &ReadRequest::default().heartbeats,
    ];
    let rows = line
        .ask(Statement::Read, &values, Phase::Reading, deadline)
        .await
        .map_err(absent_to(Some(&request.expected)))?;
    let answer = sort(&rows)?;
    refused(&answer, cache, request, limits)?
        .ok_or_else(|| error(TableErrorKind::Busy, "another transaction was in the way"))
}

/// `update_i_am_alive`
pub(super) async fn update_i_am_alive(
    line: &Line,
    cache: &Cache,
    cluster: &str,
    write: &HeartbeatWrite,
    deadline: Instant,
) -> Result<(), TableError> {
    let key = match write {
        HeartbeatWrite::Cluster { text } => {
            if text.len() > MAX_CLUSTER_CELL_BYTES {
                return Err(error(
                    TableErrorKind::LimitExceeded,
                    format!("the cluster's cell takes {MAX_CLUSTER_CELL_BYTES} bytes"),
                ));
            }
            if !line
                .ask(Statement::Cell, &[&cluster, text], Phase::Writing, deadline)
                .await?
                .is_empty()
            {
                return Ok(());
            }
            String::new()
        }
        HeartbeatWrite::Silo { silo, heartbeat } => {
            let (key, counter, at) = (
                silo.row_key(),
                int(heartbeat.counter),
                heartbeat.at.to_string(),
            );
            // The commit that inserted the row made the cell; only a row put in by hand has none.
            for statement in [Statement::Beat, Statement::FirstBeat] {
                if !line
                    .ask(
                        statement,
                        &[&cluster, &key, &counter, &at],
                        Phase::Writing,
                        deadline,
                    )
                    .await?
                    .is_empty()
                {
                    return Ok(());
                }
            }
            key
        }
    };
    // It was not written; now why.
    let rows = line
        .ask(
            Statement::ReadRow,
            &[&cluster, &key],
            Phase::Reading,
            deadline,
        )
        .await?;
    let answer = sort(&rows)?;
    answer.current(cache, None)?;
    if !key.is_empty() && answer.rows.is_empty() {
        return Err(error(
            TableErrorKind::NoSuchRow,
            "there is no row for this heartbeat",
        )
        .with_key(key));
    }
    Err(error(TableErrorKind::Busy, "the row came at this moment"))
}
