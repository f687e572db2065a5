//! Reads: one statement that sees one moment.

use membership_core::{ReadAnswer, ReadRequest, RowRead, SiloAddress, TableError, VersionToken};
use tokio::time::Instant;

use super::codec::{Cache, absent_to, int, sort};
use super::error::Phase;
use super::link::Line;
use super::sql::Statement;

/// `read`. Every read is linearizable: it goes to the primary, and its snapshot is taken when it arrives.
pub(super) async fn read(
    line: &Line,
    cache: &Cache,
    cluster: &str,
    request: &ReadRequest,
    deadline: Instant,
) -> Result<ReadAnswer, TableError> {
    let known = request.known.as_ref();
    let token = known.map(|k| {
        (
            k.table_id().to_string(),
            int(k.version()),
            k.commit().to_string(),
        )
    });
    let (table, version, commit) = match &token {
        Some((table, version, commit)) => (Some(table), Some(version), Some(commit)),
        None => (None, None, None),
    };
    let answer = line
        .ask(
            Statement::Read,
            &[&cluster, &table, &version, &commit, &request.heartbeats],
            Phase::Reading,
            deadline,
        )
        .await;
    let rows = answer.map_err(absent_to(known))?;
    let answer = sort(&rows)?;
    let row = answer.current(cache, known)?;
    let heartbeats = request.heartbeats.then(|| answer.heartbeats());
    if known.is_some_and(|k| k.same_commit(&row.token(&[]))) {
        return Ok(ReadAnswer::Unchanged { heartbeats });
    }
    Ok(ReadAnswer::Snapshot {
        snapshot: answer.snapshot(cache, row),
        heartbeats,
    })
}

/// `read_row`
pub(super) async fn read_row(
    line: &Line,
    cache: &Cache,
    cluster: &str,
    silo: &SiloAddress,
    known: Option<&VersionToken>,
    deadline: Instant,
) -> Result<RowRead, TableError> {
    let key = silo.row_key();
    let rows = line
        .ask(
            Statement::ReadRow,
            &[&cluster, &key],
            Phase::Reading,
            deadline,
        )
        .await
        .map_err(absent_to(known))?;
    let answer = sort(&rows)?;
    let version = answer.current(cache, known)?;
    let row = answer.row(cache, &key);
    let heartbeat = row.as_ref().and_then(|_| answer.heartbeat());
    Ok(RowRead {
        token: version.token(&[]),
        row,
        heartbeat,
    })
}
