//! `commit`. Clauses T2 to T5 and T16.
//!
//! A commit is one `multi`: it deletes the mark of the expected version and creates that of the new
//! one, replaces the version row if it is unchanged, and creates, replaces and deletes rows. It
//! writes the whole version row, which therefore must be known: from the last read or commit of
//! this table, or from a read before. If anything does not fit, nothing happens, and the version
//! row then says why.

use std::sync::Arc;

use membership_core::encoding::encode_version_row;
use membership_core::{
    CommitOutcome, CommitRequest, Conflict, Operation, RowChange, Settled, TableError,
    TableErrorKind as Kind, VersionRow, stored_version_row,
};
use zookeeper_client::{Error, MultiWriteResult};

use crate::STORE;
use crate::client::{Inner, LIMITS, Refused, Session};
use crate::error::{error, failed};
use crate::keys::{is_key, is_marked};
use crate::snapshot_read::Observation;

/// How often a commit is sent again while the expected version is the current one, plus once for
/// each of its changes: a refused `multi` names only one row without a child.
const ATTEMPTS: usize = 4;

/// The version row that a commit replaces, and what else its `multi` must know.
struct Base {
    row: VersionRow,
    data_version: i32,
    /// Whether its mark exists.
    marked: bool,
    /// Removed rows without a child for a heartbeat, created by hand.
    childless: Vec<String>,
}

/// The outcome of a `multi`.
enum Sent {
    /// It happened; the new data version of the version row's znode.
    Done(i32),
    /// It did not; the key of the row in its way, and whether only its heartbeat was.
    Refused(Option<(String, bool)>),
}

impl Inner {
    /// # Errors
    /// As [`MembershipTable::commit`](membership_core::MembershipTable::commit).
    pub(crate) async fn commit(
        &self,
        request: &CommitRequest,
    ) -> Result<CommitOutcome, TableError> {
        let mut keys = request.changes.iter().map(RowChange::key);
        if let Some(key) = keys.find(|key| !is_key(key)) {
            let e = error(Kind::InvalidRequest, "no znode can have this name");
            return Err(e.with_key(key));
        }
        let session = self.client.session().await?;
        let mut base = match self.cache.of(&request.expected) {
            Some(seen) => Base {
                row: VersionRow::clone(&seen.snapshot.version_row),
                data_version: seen.data_version,
                marked: true,
                childless: Vec::new(),
            },
            None => {
                // The answer may be final, so it must be recent.
                session.barrier(self.paths.cluster()).await?;
                match settle(request, &self.observe(&session).await?)? {
                    Ok(base) => base,
                    Err(outcome) => return Ok(outcome),
                }
            }
        };
        let attempts = ATTEMPTS + request.changes.len();
        for _ in 0..attempts {
            let next = match settle_row(request, base.row.clone())? {
                Ok(row) => request.next_version_row(&row),
                Err(outcome) => return Ok(outcome),
            };
            let in_the_way = match self.send(&session, request, &base, &next).await? {
                Sent::Done(data_version) => {
                    return Ok(self.committed(request, next, data_version));
                }
                Sent::Refused(in_the_way) => in_the_way,
            };
            // The refusal came from the ensemble: what is read now is no older.
            let mut now = match settle(request, &self.observe(&session).await?)? {
                Ok(now) => now,
                Err(outcome) => return Ok(outcome),
            };
            match in_the_way {
                Some((key, true)) => {
                    now.childless = std::mem::take(&mut base.childless);
                    now.childless.push(key);
                }
                // The version is the expected one; a row exists that must not, or the reverse.
                Some((_, false)) => return Ok(conflict(&now.row)),
                None => {}
            }
            base = now;
        }
        let message = format!("the cluster's znodes changed before each of {attempts} attempts");
        Err(error(Kind::Busy, message))
    }

    async fn send(
        &self,
        session: &Session<'_>,
        request: &CommitRequest,
        base: &Base,
        next: &VersionRow,
    ) -> Result<Sent, TableError> {
        let paths = &self.paths;
        let mut batch = session.batch();
        // A restored backup may lack the mark: then only the data version guards the commit.
        if base.marked {
            batch.delete(&paths.mark(&request.expected))?;
        }
        batch.create(&paths.mark(&request.next_token(&[])), b"")?;
        let version_row = batch.operations;
        let text = encode_version_row(next);
        batch.set(paths.cluster(), text.as_bytes(), Some(base.data_version))?;
        // The row of each following operation, and whether it is about the heartbeat.
        let mut subjects: Vec<(&str, bool)> = Vec::new();
        for change in &request.changes {
            let key = change.key();
            match change {
                RowChange::Insert(row) => {
                    batch.create(&paths.row(key), row.body().as_bytes())?;
                    batch.create(&paths.heartbeat(key), b"")?;
                    subjects.push((key, false));
                }
                RowChange::Update(row) => {
                    batch.set(&paths.row(key), row.body().as_bytes(), None)?;
                }
                RowChange::Remove(_) => {
                    if !base.childless.iter().any(|childless| childless == key) {
                        batch.delete(&paths.heartbeat(key))?;
                        subjects.push((key, true));
                    }
                    batch.delete(&paths.row(key))?;
                }
            }
            subjects.push((key, false));
        }
        let Refused { index, source } = match session.send(batch).await? {
            Ok(results) => {
                let Some(MultiWriteResult::SetData { stat }) = results.get(version_row) else {
                    let message = "the server's answer does not match the request";
                    return Err(error(Kind::OutcomeUnknown, message));
                };
                return Ok(Sent::Done(stat.version));
            }
            Err(refused) => refused,
        };
        let subject = index.checked_sub(version_row + 1);
        let subject = subject.and_then(|at| subjects.get(at));
        match source {
            Error::NoNode | Error::BadVersion | Error::NodeExists => {
                let subject = subject.map(|(key, heartbeat)| ((*key).to_owned(), *heartbeat));
                Ok(Sent::Refused(subject))
            }
            Error::NotEmpty => {
                let message = "the removed row has foreign znodes below it: remove them by hand";
                let key = subject.map_or("", |(key, _)| key);
                Err(error(Kind::Damaged, message).with_key(key))
            }
            source => Err(failed(source)),
        }
    }

    /// The answer to a successful commit; remembers the new version.
    fn committed(
        &self,
        request: &CommitRequest,
        next: VersionRow,
        data_version: i32,
    ) -> CommitOutcome {
        let token = request.next_token(&[]);
        if let Some(seen) = self.cache.of(&request.expected) {
            let mut snapshot = request.apply_to(&seen.snapshot, token.clone());
            snapshot.version_row = Arc::new(next);
            self.remember(snapshot, data_version, false);
        }
        CommitOutcome::Committed(token)
    }
}

/// What the observed version row says of a commit: it may be sent, or its outcome is known.
fn settle(
    request: &CommitRequest,
    found: &Observation,
) -> Result<Result<Base, CommitOutcome>, TableError> {
    let Some(text) = found.text() else {
        let message = "the known version row is gone";
        return Err(error(Kind::TableReplaced, message));
    };
    let row = stored_version_row(text, Operation::Commit, STORE)?;
    let settled = settle_row(request, row)?;
    Ok(settled.map(|row| Base {
        marked: is_marked(&found.children, &row),
        row,
        data_version: found.znode.unwrap_or_default(),
        childless: Vec::new(),
    }))
}

fn settle_row(
    request: &CommitRequest,
    row: VersionRow,
) -> Result<Result<VersionRow, CommitOutcome>, TableError> {
    match request.settle(&row, STORE)? {
        Settled::Apply => {
            request.check_room(row.row_count, &LIMITS, STORE)?;
            Ok(Ok(row))
        }
        Settled::Committed => Ok(Err(CommitOutcome::Committed(request.next_token(&[])))),
        Settled::Conflict => Ok(Err(conflict(&row))),
    }
}

fn conflict(row: &VersionRow) -> CommitOutcome {
    CommitOutcome::Conflict(Conflict::new(row.recent.last().cloned(), None))
}
