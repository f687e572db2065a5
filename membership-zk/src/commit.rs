//! `commit`. Clauses T2 to T5 and T16.
//!
//! One `multi`: the mark of the expected version goes and that of the new one comes, the version row is replaced if nobody has touched it, and
//! rows are made, replaced and removed. The whole version row is written, so that it must be known: it is from the last read or commit of this
//! handle, or else is read first. When anything of it does not fit, nothing happens, and the version row then says what it was.

use membership_core::{
    Attempt, CommitOutcome, CommitRequest, Conflict, Decision, RowChange, Snapshot, TableError,
    TableErrorKind, TableLimits, VersionRow, encoding::encode_version_row,
};
use tokio::time::Instant;
use zookeeper_client::{Error, MultiWriteError, MultiWriteResult};

use crate::STORE;
use crate::batch::Batch;
use crate::error::{error, failed};
use crate::gather::{Ask, Look, look};
use crate::link::Session;
use crate::place::{is_key, is_marked};
use crate::table::{Inner, Seen};

/// A commit, two operations for each row that comes or goes, and the version row fit into one request of ZooKeeper, which takes 1 MiB.
pub(crate) const LIMITS: TableLimits = TableLimits {
    rows_per_commit: 200,
    bytes_per_row: 256 << 10,
    bytes_per_commit: 512 << 10,
    rows: 20_000,
};
/// How often a commit is sent whose version is the expected one, and which met something else that was in its way; besides once for each of
/// its changes, because a `multi` that is refused tells of one row without a child, and of no other.
const TURNS: usize = 4;

/// The version row that a commit is written over, and what else its `multi` must know.
struct Base {
    row: VersionRow,
    data_version: i32,
    /// Whether its mark is there.
    marked: bool,
    /// Rows that go, and have no child for a heartbeat: somebody made them by hand.
    childless: Vec<String>,
}

/// What became of a `multi`.
enum Sent {
    /// It happened; how often the data of the version row's znode were changed now.
    Done(i32),
    /// It did not; the key of the row that was in its way, and whether only its heartbeat was.
    Refused(Option<(String, bool)>),
}

impl Inner {
    /// # Errors
    /// As [`MembershipTable::commit`](membership_core::MembershipTable::commit).
    pub(crate) async fn commit(
        &self,
        request: &CommitRequest,
    ) -> Result<CommitOutcome, TableError> {
        if let Some(change) = request.changes.iter().find(|change| !is_key(change.key())) {
            let e = error(
                TableErrorKind::InvalidRequest,
                "no znode can have this name",
            );
            return Err(e.with_key(change.key()));
        }
        match self.sent(request).await {
            Err(e) if request.attempt == Attempt::Again => Err(e.of_commit(Attempt::Again)),
            other => other,
        }
    }

    async fn sent(&self, request: &CommitRequest) -> Result<CommitOutcome, TableError> {
        let deadline = self.link.deadline();
        let session = self.link.session(deadline).await?;
        let mut base = match self
            .seen()
            .filter(|seen| seen.snapshot.token.same_commit(&request.expected))
        {
            Some(seen) => Base {
                row: VersionRow::clone(&seen.snapshot.version_row),
                data_version: seen.data_version,
                marked: true,
                childless: Vec::new(),
            },
            None => {
                // As recent as can be, because what it says of the commit is final.
                self.link
                    .barrier(&session, self.place.cluster(), deadline)
                    .await?;
                let look = self.look_at_version(&session, deadline).await?;
                match self.decided(request, &look)? {
                    Ok(base) => base,
                    Err(outcome) => return Ok(outcome),
                }
            }
        };
        let turns = TURNS + request.changes.len();
        for _ in 0..turns {
            let (next, refused) = match self.decide(request, &base.row)? {
                Decision::Write(next) => {
                    let sent = self.send(request, &base, &next, &session, deadline).await?;
                    (next, sent)
                }
                Decision::Committed(token) => return Ok(CommitOutcome::Committed(token)),
                Decision::Conflict(row) => return Ok(conflict(&row)),
            };
            let in_the_way = match refused {
                Sent::Done(data_version) => {
                    return Ok(self.committed(request, *next, data_version));
                }
                Sent::Refused(in_the_way) => in_the_way,
            };
            // It went through the ensemble and failed: what is read now is no older.
            let look = self.look_at_version(&session, deadline).await?;
            let mut now = match self.decided(request, &look)? {
                Ok(now) => now,
                Err(outcome) => return Ok(outcome),
            };
            match in_the_way {
                Some((key, true)) => {
                    now.childless = std::mem::take(&mut base.childless);
                    now.childless.push(key);
                }
                // The version is the expected one, and a row is there, or is not.
                Some((_, false)) => return Ok(conflict(&now.row)),
                None => {}
            }
            base = now;
        }
        Err(error(
            TableErrorKind::Busy,
            format!(
                "something that is no commit was in the way each of the {turns} times that it was sent"
            ),
        ))
    }

    async fn look_at_version(
        &self,
        session: &Session,
        deadline: Instant,
    ) -> Result<Look, TableError> {
        let ask = Ask {
            children: true,
            ..Ask::default()
        };
        look(&self.link, session, &self.place, ask, deadline).await
    }

    /// What the version row that was just read says of a commit: it may be sent over it, or it is decided.
    fn decided(
        &self,
        request: &CommitRequest,
        look: &Look,
    ) -> Result<Result<Base, CommitOutcome>, TableError> {
        let row = match request.decide(look.text(), &LIMITS, STORE)? {
            Decision::Write(_) => membership_core::usable_version_row(
                look.text(),
                None,
                None,
                membership_core::Operation::Commit,
                STORE,
            )?,
            Decision::Committed(token) => return Ok(Err(CommitOutcome::Committed(token))),
            Decision::Conflict(row) => return Ok(Err(conflict(&row))),
        };
        let marked = is_marked(&look.children, &row);
        Ok(Ok(Base {
            row,
            data_version: look.znode.unwrap_or_default(),
            marked,
            childless: Vec::new(),
        }))
    }

    fn decide(&self, request: &CommitRequest, row: &VersionRow) -> Result<Decision, TableError> {
        request.decide(Some(&encode_version_row(row)), &LIMITS, STORE)
    }

    async fn send(
        &self,
        request: &CommitRequest,
        base: &Base,
        next: &VersionRow,
        session: &Session,
        deadline: Instant,
    ) -> Result<Sent, TableError> {
        let place = &self.place;
        let mut batch = Batch::new(&self.link, session);
        // Where the mark is missing, somebody has restored the znodes without it: what was just read of the version row then guards alone.
        if base.marked {
            batch.delete(&place.mark(&request.expected), None)?;
        }
        batch.create(&place.mark(&request.next_token(&[])), b"")?;
        let version_row = batch.operations;
        batch.set(
            place.cluster(),
            encode_version_row(next).as_bytes(),
            Some(base.data_version),
        )?;
        // Whose operations these are, and whether they are a heartbeat's.
        let mut whose: Vec<(&str, bool)> = Vec::new();
        for change in &request.changes {
            let key = change.key();
            match change {
                RowChange::Insert(row) => {
                    batch.create(&place.row(key), row.body().as_bytes())?;
                    batch.create(&place.alive(key), b"")?;
                    whose.extend([(key, false), (key, false)]);
                }
                RowChange::Update(row) => {
                    batch.set(&place.row(key), row.body().as_bytes(), None)?;
                    whose.push((key, false));
                }
                RowChange::Remove(_) => {
                    if !base.childless.iter().any(|childless| childless == key) {
                        batch.delete(&place.alive(key), None)?;
                        whose.push((key, true));
                    }
                    batch.delete(&place.row(key), None)?;
                    whose.push((key, false));
                }
            }
        }
        let mut writer = batch.writer()?;
        let sent = writer.commit();
        let answer = self.link.answer(session, deadline, sent).await?;
        match answer {
            Ok(results) => {
                session.caught_up();
                match results.get(version_row) {
                    Some(MultiWriteResult::SetData { stat }) => Ok(Sent::Done(stat.version)),
                    _ => Err(error(
                        TableErrorKind::OutcomeUnknown,
                        "the answer of the server is not what was asked for",
                    )),
                }
            }
            Err(MultiWriteError::OperationFailed {
                index,
                source: Error::NoNode | Error::BadVersion | Error::NodeExists,
            }) => {
                session.caught_up();
                let row = index
                    .checked_sub(version_row + 1)
                    .and_then(|at| whose.get(at));
                Ok(Sent::Refused(
                    row.map(|(key, beat)| ((*key).to_owned(), *beat)),
                ))
            }
            Err(MultiWriteError::OperationFailed {
                index,
                source: Error::NotEmpty,
            }) => {
                let key = index
                    .checked_sub(version_row + 1)
                    .and_then(|at| whose.get(at))
                    .map_or("", |(key, _)| key);
                let message = "somebody has put znodes below the one of a row that is to be removed: remove them by hand";
                Err(error(TableErrorKind::Damaged, message).with_key(key))
            }
            Err(
                MultiWriteError::OperationFailed { source, .. }
                | MultiWriteError::RequestFailed { source },
            ) => Err(failed(source)),
        }
    }

    /// What the caller is told of its success; and what this handle knows of the table now.
    fn committed(
        &self,
        request: &CommitRequest,
        next: VersionRow,
        data_version: i32,
    ) -> CommitOutcome {
        let token = request.next_token(&[]);
        if let Some(seen) = self
            .seen()
            .filter(|seen| seen.snapshot.token.same_commit(&request.expected))
        {
            let mut snapshot: Snapshot = request.apply_to(&seen.snapshot, token.clone());
            snapshot.version_row = std::sync::Arc::new(next);
            self.remember(
                Seen {
                    snapshot,
                    data_version,
                },
                false,
            );
        }
        CommitOutcome::Committed(token)
    }
}

fn conflict(row: &VersionRow) -> CommitOutcome {
    CommitOutcome::Conflict(Conflict {
        newest: row.recent.last().cloned(),
        snapshot: None,
    })
}
