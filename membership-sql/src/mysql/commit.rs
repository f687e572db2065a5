//! Writes of a running cluster: commits and heartbeats.
//!
//! A commit is judged on the locked version row, so that nobody can come between the judgement and the change: in one flight by the
//! procedure, or in two by this client. Rules: clauses T1 to T5, T7, T8 and T16.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use membership_core::{
    CommitOutcome, CommitRequest, Conflict, HeartbeatWrite, Judgement, MAX_CLUSTER_CELL_BYTES,
    RowChange, TableError, TableErrorKind, TableLimits, VersionRow, encoding::encode_version_row,
};

use super::error::{DUPLICATE_KEY, code, error, from_commit, from_mysql};
use super::lane::Doubt;
use super::read::{Found, StoredVersion, absent, being_deleted, missing, no_primary};
use super::session::{Session, is_read_only, number, text as column};
use super::sql::{READ_COMMITTED, text};
use super::table::Place;
use super::{MysqlProcedure, procedure, sql};

/// What a look at the version row came to.
pub(super) enum Verdict {
    Apply(VersionRow),
    Answer(CommitOutcome),
    Conflict,
}

/// `commit`
pub(super) async fn commit(
    session: &mut Session,
    place: &Place,
    request: &CommitRequest,
    limits: &TableLimits,
    doubt: &Doubt,
) -> Result<CommitOutcome, TableError> {
    if !session.look_at_schema().await? {
        return Err(absent(Some(&request.expected)));
    }
    if session.procedure {
        if let Some(outcome) = procedure::commit(session, place, request, limits, doubt).await? {
            return Ok(outcome);
        }
        if place.config.procedure_use() == MysqlProcedure::Require && !session.procedure {
            return Err(procedure::missing());
        }
    } else if place.config.procedure_use() == MysqlProcedure::Require {
        return Err(procedure::missing());
    }
    in_two_flights(session, place, request, limits, doubt).await
}

async fn in_two_flights(
    session: &mut Session,
    place: &Place,
    request: &CommitRequest,
    limits: &TableLimits,
    doubt: &Doubt,
) -> Result<CommitOutcome, TableError> {
    let cluster = &place.key;
    let keys: Vec<_> = request
        .changes
        .iter()
        .map(|change| text(change.key()))
        .collect();
    let mut first = format!(
        "{READ_COMMITTED}; {}START TRANSACTION; \
         SELECT 0, NULL, body, deleting, NULL, @@global.read_only FROM membership_version WHERE cluster = {cluster} FOR UPDATE",
        session.watch.0
    );
    if !keys.is_empty() {
        let _ = write!(
            first,
            "; SELECT silo FROM membership_silo WHERE cluster = {cluster} AND silo IN ({}) FOR UPDATE",
            keys.join(", ")
        );
    }
    session.fits(&first)?;
    let sets = match session.begin(&first).await {
        Ok(sets) => sets,
        Err(trouble) => {
            session.roll_back().await;
            return Err(missing(session, trouble)
                .await
                .err()
                .unwrap_or_else(|| absent(Some(&request.expected))));
        }
    };
    let selected = sets.len() - if keys.is_empty() { 1 } else { 2 };
    let mut found = Found::take(&sets[selected], &place.cache);
    let there: BTreeSet<_> = sets
        .get(selected + 1)
        .into_iter()
        .flat_map(|s| &s.rows)
        .filter_map(|row| column(row, 0))
        .collect();
    let stored = found
        .stored()
        .and_then(|stored| stored.ok_or_else(|| absent(Some(&request.expected))));
    let verdict = stored.and_then(|stored| judge(request, &stored, limits));
    let next = match verdict {
        Ok(Verdict::Apply(next)) if fit(&request.changes, &there) => next,
        Ok(Verdict::Apply(_) | Verdict::Conflict) => {
            return conflict(session, place, request).await;
        }
        Ok(Verdict::Answer(outcome)) => {
            // It happened, and is acknowledged now: it must not be taken back by a crash.
            let Some(_) = look_again(session, place).await else {
                return Err(error(
                    TableErrorKind::OutcomeUnknown,
                    "the commit was found, and the connection broke before it was sure to last",
                ));
            };
            return Ok(outcome);
        }
        Err(e) => {
            session.roll_back().await;
            return Err(e);
        }
    };

    let changes = statements(cluster, request, &next);
    let commit_at = changes.len();
    let second = format!("{}; COMMIT{}", changes.join("; "), session.watch.1);
    if let Err(e) = session.fits(&second) {
        session.roll_back().await;
        return Err(e);
    }
    doubt.begins();
    match session.flight(&second).await {
        Ok(sets) if sets.len() > commit_at => {}
        Ok(_) => {
            session.discard();
            return Err(error(
                TableErrorKind::OutcomeUnknown,
                "the server did not answer COMMIT",
            ));
        }
        // After COMMIT there is only our own housekeeping.
        Err(trouble) if trouble.at > commit_at => session.discard(),
        Err(trouble) => {
            let certain = code(&trouble.error).is_some() && trouble.at < commit_at;
            let duplicate = certain && code(&trouble.error) == Some(DUPLICATE_KEY);
            let e = if certain {
                from_mysql(trouble.error)
            } else {
                from_commit(trouble.error)
            };
            if e.kind() != TableErrorKind::OutcomeUnknown {
                doubt.ends();
            }
            if duplicate {
                // Somebody put the row there by hand, past the version row.
                return conflict(session, place, request).await;
            }
            session.roll_back().await;
            return Err(e);
        }
    }
    doubt.ends();
    Ok(CommitOutcome::Committed(request.next_token(&[])))
}

/// What the version row says of a commit.
pub(super) fn judge(
    request: &CommitRequest,
    stored: &StoredVersion,
    limits: &TableLimits,
) -> Result<Verdict, TableError> {
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
        Judgement::OutcomeUnknown => {
            let message = format!(
                "the table has moved from version {} to {} since",
                request.expected.version(),
                row.version
            );
            Err(error(TableErrorKind::OutcomeUnknown, message))
        }
        Judgement::AlreadyCommitted => Ok(Verdict::Answer(CommitOutcome::Committed(
            request.next_token(&[]),
        ))),
        Judgement::Conflict => Ok(Verdict::Conflict),
        Judgement::Apply => {
            let next = request.next_version_row(row);
            if usize::try_from(next.row_count).unwrap_or(usize::MAX) > limits.rows
                && next.row_count > row.row_count
            {
                return Err(too_many_rows(next.row_count, limits));
            }
            Ok(Verdict::Apply(next))
        }
    }
}

pub(super) fn too_many_rows(rows: u64, limits: &TableLimits) -> TableError {
    error(
        TableErrorKind::LimitExceeded,
        format!(
            "the table would have {rows} rows, and takes {}",
            limits.rows
        ),
    )
}

/// Whether every row that must be there is, and no other.
fn fit(changes: &[RowChange], there: &BTreeSet<String>) -> bool {
    changes
        .iter()
        .all(|change| matches!(change, RowChange::Insert(_)) != there.contains(change.key()))
}

fn statements(cluster: &str, request: &CommitRequest, next: &VersionRow) -> Vec<String> {
    let (mut inserts, mut removes, mut all) = (Vec::new(), Vec::new(), Vec::new());
    for change in &request.changes {
        match change {
            RowChange::Remove(key) => removes.push(text(key)),
            RowChange::Insert(row) => {
                let (status, written_at) = shown(row);
                inserts.push(format!(
                    "({cluster}, {}, '{status}', {written_at}, {})",
                    text(row.key()),
                    text(row.body())
                ));
            }
            RowChange::Update(row) => {
                let (status, written_at) = shown(row);
                all.push(format!(
                    "UPDATE membership_silo SET status = '{status}', written_at = {written_at}, body = {} WHERE cluster = {cluster} AND silo = {}",
                    text(row.body()),
                    text(row.key())
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
        all.push(format!(
            "DELETE FROM membership_silo WHERE cluster = {cluster} AND silo IN ({removes})"
        ));
        all.push(format!(
            "DELETE FROM membership_heartbeat WHERE cluster = {cluster} AND silo IN ({removes})"
        ));
    }
    let token = sql::token(&request.next_token(&[]));
    all.push(format!(
        "UPDATE membership_version SET version = {}, token = '{token}', body = {} WHERE cluster = {cluster}",
        next.version,
        text(&encode_version_row(next))
    ));
    all
}

/// What stands beside a row for people: words and numbers of ours.
pub(super) fn shown(row: &membership_core::Row) -> (&'static str, u64) {
    row.entry()
        .map_or(("", 0), |e| (e.status.as_str(), e.written_at))
}

/// Ends the transaction and reads the table in the same flight. None when the connection broke; then the transaction ends with it.
async fn look_again(session: &mut Session, place: &Place) -> Option<Found> {
    let settle = if session.facts.early {
        format!("; {}", sql::settle(&place.key, None))
    } else {
        String::new()
    };
    let sql = format!(
        "ROLLBACK{}; {}{settle}",
        session.watch.1,
        sql::read(&place.key, None, false)
    );
    let at = 1 + usize::from(!session.watch.1.is_empty());
    match session.flight(&sql).await {
        Ok(sets) => sets.get(at).map(|set| Found::take(set, &place.cache)),
        Err(_) => {
            session.discard();
            None
        }
    }
}

/// A conflict is certain, also without a look at the table as it is now; but not where a crash may take back the commit that was in the way,
/// and the connection broke before that was ruled out.
async fn conflict(
    session: &mut Session,
    place: &Place,
    request: &CommitRequest,
) -> Result<CommitOutcome, TableError> {
    let early = session.facts.early;
    match look_again(session, place).await {
        Some(found) => Ok(answer(found, place, request)),
        None if early => {
            let message = "another commit was in the way, and the connection broke before it was sure that this one lasts";
            Err(error(TableErrorKind::Unavailable, message))
        }
        None => Ok(answer(Found::default(), place, request)),
    }
}

/// The answer to a commit that was not applied, with the table as it is now.
pub(super) fn answer(mut found: Found, place: &Place, request: &CommitRequest) -> CommitOutcome {
    let Ok(version) = found.current(None) else {
        return CommitOutcome::Conflict(Conflict::default());
    };
    if request.judge(&version.row) == Judgement::AlreadyCommitted {
        // An earlier sending of it was still under way.
        return CommitOutcome::Committed(request.next_token(&[]));
    }
    let newest = version.row.recent.last().cloned();
    let snapshot = Some(found.into_snapshot(&version, &place.cache));
    CommitOutcome::Conflict(Conflict { newest, snapshot })
}

/// `update_i_am_alive`: one statement writes, and sees to it that there is a row and that the counter does not fall; another in the same
/// flight tells whether there is one.
pub(super) async fn update_i_am_alive(
    session: &mut Session,
    place: &Place,
    write: &HeartbeatWrite,
    doubt: &Doubt,
) -> Result<(), TableError> {
    let cluster = &place.key;
    let (statement, key) = match write {
        HeartbeatWrite::Cluster { text: cell } => {
            if cell.len() > MAX_CLUSTER_CELL_BYTES {
                return Err(error(
                    TableErrorKind::LimitExceeded,
                    format!("the cluster's cell takes {MAX_CLUSTER_CELL_BYTES} bytes"),
                ));
            }
            let cell = text(cell);
            let sql = format!(
                "INSERT INTO membership_cell (cluster, text) SELECT v.cluster, {cell} FROM membership_version v \
                 WHERE v.cluster = {cluster} AND v.deleting = 0 ON DUPLICATE KEY UPDATE membership_cell.text = {cell}; \
                 SELECT 1, (SELECT deleting FROM membership_version WHERE cluster = {cluster}), @@global.read_only"
            );
            (sql, String::new())
        }
        HeartbeatWrite::Silo { silo, heartbeat } => {
            let (key, counter, at) = (
                silo.row_key(),
                heartbeat.counter,
                text(&heartbeat.at.to_string()),
            );
            let silo = text(&key);
            let sql = format!(
                "INSERT INTO membership_heartbeat (cluster, silo, counter, at) SELECT s.cluster, s.silo, {counter}, {at} \
                 FROM membership_silo s WHERE s.cluster = {cluster} AND s.silo = {silo} ON DUPLICATE KEY UPDATE \
                 membership_heartbeat.at = IF({counter} >= membership_heartbeat.counter, {at}, membership_heartbeat.at), \
                 membership_heartbeat.counter = GREATEST({counter}, membership_heartbeat.counter); \
                 SELECT EXISTS (SELECT 1 FROM membership_silo WHERE cluster = {cluster} AND silo = {silo}), \
                 (SELECT deleting FROM membership_version WHERE cluster = {cluster}), @@global.read_only"
            );
            (sql, key)
        }
    };
    if !session.look_at_schema().await? {
        return Err(absent(None));
    }
    doubt.begins();
    let sets = match session
        .begin(&format!("{READ_COMMITTED}; {statement}"))
        .await
    {
        Ok(sets) => sets,
        Err(trouble) => {
            let told = code(&trouble.error).is_some();
            if told {
                doubt.ends();
                return Err(missing(session, trouble)
                    .await
                    .err()
                    .unwrap_or_else(|| absent(None)));
            }
            return Err(from_commit(trouble.error));
        }
    };
    doubt.ends();
    let Some(row) = sets.last().and_then(|set| set.rows.first()) else {
        return Err(absent(None));
    };
    if column(row, 2).is_some_and(|value| is_read_only(&value)) {
        // It was written by one who may write there nevertheless. Where everybody else writes by now it is missing.
        return Err(no_primary());
    }
    match number(row, 1) {
        None => Err(absent(None)),
        Some(0) if number(row, 0) == Some(1) => Ok(()),
        Some(0) => Err(error(
            TableErrorKind::NoSuchRow,
            "there is no row for this heartbeat",
        )
        .with_key(key)),
        Some(_) => Err(being_deleted()),
    }
}
