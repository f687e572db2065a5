//! One change of the table from outside the protocol: read, decide, commit. It starts over after a
//! conflict, and settles an unknown outcome when the table shows it.

use std::convert::Infallible;
use std::fmt;
use std::time::Duration;

use async_trait::async_trait;

use super::{
    CommitRequest, Fate, Judgement, MembershipTable, NextStep, Operation, ReadAnswer, ReadRequest,
    TableError, TableErrorKind,
};
use crate::{CommitId, Heartbeats, Snapshot, WallTime};

/// What a change needs from its caller: random numbers and a way to wait.
#[async_trait]
pub trait Runtime: Send {
    /// Returns a random id that was never returned before.
    fn commit_id(&mut self) -> CommitId;

    /// The time by this machine's clock, which is recorded with a commit for people; `None`, as by
    /// default, records none.
    fn now(&self) -> Option<WallTime> {
        None
    }

    /// Waits for a random time between zero and `at_most`.
    async fn pause(&mut self, at_most: Duration);
}

/// Why a change was not made, or may not have been made.
#[derive(Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum ChangeError<E = Infallible>
where
    E: fmt::Display,
{
    /// The change is not allowed; nothing was written.
    #[error("{0}")]
    Refused(E),
    /// The change did not happen.
    #[error(transparent)]
    NotDone(TableError),
    /// The change may have happened; read the rows to find out.
    #[error("it may have happened: {0}")]
    MayHaveHappened(TableError),
}

/// As it is displayed: an error that ends `main` is printed with `Debug`.
impl<E: fmt::Display> fmt::Debug for ChangeError<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl<E: fmt::Display> ChangeError<E> {
    /// Converts to the table's error; `refused` converts a refusal.
    pub fn into_table_error(self, refused: impl FnOnce(E) -> TableError) -> TableError {
        match self {
            Self::Refused(why) => refused(why),
            Self::NotDone(error) => error,
            Self::MayHaveHappened(error) if error.kind() == TableErrorKind::OutcomeUnknown => error,
            // The second attempt was refused, which says nothing about the first.
            Self::MayHaveHappened(error) => TableError::new(
                TableErrorKind::OutcomeUnknown,
                Operation::Commit,
                error.store(),
                error.message(),
            )
            .with_source(error),
        }
    }
}

/// When a change gives up.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Patience {
    /// Maximum number of conflicts.
    pub(crate) conflicts: u32,
    /// Maximum number of errors and unknown outcomes.
    pub(crate) errors: u32,
}

/// The first pause; each further one is twice as long, up to the last.
const FIRST_PAUSE: Duration = Duration::from_millis(30);
const LAST_PAUSE: Duration = Duration::from_secs(2);
/// A snapshot that comes with a conflict replaces a read, but every fourth time the table is read,
/// because a read has a barrier.
const READ_EVERY: u32 = 4;

/// Makes changes to one table; reuses what was last read.
pub(crate) struct Changer<'a, T: ?Sized, R: ?Sized> {
    table: &'a T,
    runtime: &'a mut R,
    patience: Patience,
    now: Option<Snapshot>,
}

impl<'a, T, R> Changer<'a, T, R>
where
    T: MembershipTable + ?Sized,
    R: Runtime + ?Sized,
{
    /// The table as it was last seen or made by this changer.
    pub(crate) fn now(&self) -> Option<&Snapshot> {
        self.now.as_ref()
    }

    pub(crate) fn new(table: &'a T, runtime: &'a mut R, patience: Patience) -> Self {
        Self {
            table,
            runtime,
            patience,
            now: None,
        }
    }

    /// Commits the change that `plan` returns for the current table. Returns the version that
    /// contains the change, or `None` when `plan` finds nothing to do. `plan` is called again after
    /// each conflict and must return `None` once its own change is in the table.
    pub(crate) async fn change<E: fmt::Display>(
        &mut self,
        mut plan: impl FnMut(&Snapshot, CommitId) -> Result<Option<CommitRequest>, E> + Send,
    ) -> Result<Option<u64>, ChangeError<E>> {
        let (mut conflicts, mut errors) = (0, 0);
        // A commit that was sent and may have happened or may still happen.
        let mut open: Option<(CommitRequest, TableError)> = None;
        // The error of a commit that was sent, when the table has moved too far to show its
        // outcome: the rows decide.
        let mut forgotten: Option<TableError> = None;
        let not_done = |error, forgotten| match forgotten {
            None => ChangeError::NotDone(error),
            Some(unknown) => ChangeError::MayHaveHappened(unknown),
        };
        loop {
            let now = match self.now.take() {
                Some(now) => now,
                None => match read(self.table, false).await {
                    Ok((now, _)) => now,
                    Err(error) => match open.take() {
                        None => return Err(not_done(error, forgotten)),
                        Some((_, unknown)) if errors >= self.patience.errors => {
                            return Err(ChangeError::MayHaveHappened(unknown));
                        }
                        still_open => {
                            errors += 1;
                            open = still_open;
                            self.pause(errors).await;
                            continue;
                        }
                    },
                },
            };
            let request = match open.take() {
                None => None,
                Some((sent, unknown)) => match sent.again().judge(&now.version_row) {
                    Judgement::AlreadyCommitted => {
                        self.now = Some(now);
                        return Ok(Some(sent.next_version()));
                    }
                    Judgement::Refused(_) => return Err(ChangeError::MayHaveHappened(unknown)),
                    Judgement::Apply if errors >= self.patience.errors => {
                        return Err(ChangeError::MayHaveHappened(unknown));
                    }
                    // The commit may still happen: the same bytes are sent again, so that at most
                    // one of the two succeeds.
                    Judgement::Apply => Some(sent.again()),
                    Judgement::OutcomeUnknown => {
                        forgotten = Some(unknown);
                        None
                    }
                    Judgement::Conflict => None,
                },
            };
            let request = match request {
                Some(again) => again,
                None => match (plan(&now, self.runtime.commit_id()), forgotten.take()) {
                    (Ok(Some(planned)), unknown) => {
                        forgotten = unknown;
                        let at = planned.at.or_else(|| self.runtime.now());
                        planned.made_at(at).with_rows_of(&now)
                    }
                    (Ok(None), unknown) => {
                        let version = now.version();
                        self.now = Some(now);
                        return Ok(unknown.map(|_| version));
                    }
                    (Err(refused), None) => return Err(ChangeError::Refused(refused)),
                    // What refuses it now may be what it has done itself.
                    (Err(_), Some(unknown)) => return Err(ChangeError::MayHaveHappened(unknown)),
                },
            };
            match request.fate(self.table.commit(&request).await) {
                Fate::Happened(token) => {
                    self.now = Some(request.apply_to(&now, token));
                    return Ok(Some(request.next_version()));
                }
                Fate::Conflict(_) if conflicts >= self.patience.conflicts => {
                    let busy = "other commits came first each time: try again";
                    return Err(not_done(self.error(TableErrorKind::Busy, busy), forgotten));
                }
                Fate::Conflict(conflict) => {
                    conflicts += 1;
                    self.now = conflict
                        .snapshot
                        .filter(|_| !conflicts.is_multiple_of(READ_EVERY));
                    self.pause(conflicts).await;
                }
                Fate::Failed(error)
                    if errors >= self.patience.errors || error.next_step() == NextStep::GiveUp =>
                {
                    return Err(not_done(error, forgotten));
                }
                Fate::Failed(_) => {
                    errors += 1;
                    self.pause(errors).await;
                }
                Fate::Unknown(error) => {
                    errors += 1;
                    let error = error.unwrap_or_else(|| {
                        let other = "the store answered for another commit";
                        self.error(TableErrorKind::OutcomeUnknown, other)
                    });
                    let unknown = error.of_commit(request.attempt);
                    open = Some((request, unknown));
                    self.pause(errors).await;
                }
            }
        }
    }

    async fn pause(&mut self, round: u32) {
        let most = FIRST_PAUSE.saturating_mul(1 << round.min(7));
        self.runtime.pause(most.min(LAST_PAUSE)).await;
    }

    fn error(&self, kind: TableErrorKind, message: &str) -> TableError {
        TableError::new(kind, Operation::Commit, self.table.store(), message)
    }
}

/// Reads the whole current table.
pub(super) async fn read<T: MembershipTable + ?Sized>(
    table: &T,
    heartbeats: bool,
) -> Result<(Snapshot, Heartbeats), TableError> {
    let request = ReadRequest::all()
        .with_heartbeats(heartbeats)
        .with_barrier(true);
    match table.read(&request).await? {
        ReadAnswer::Snapshot {
            snapshot,
            heartbeats,
        } => Ok((snapshot, heartbeats.unwrap_or_default())),
        ReadAnswer::Unchanged { .. } => Err(TableError::new(
            TableErrorKind::Damaged,
            Operation::Read,
            table.store(),
            "it answers `unchanged` to a read that knows no version",
        )),
    }
}
