//! The operations of a table as values: prepared, sent, and answered.

use std::fmt;

use membership_core::{
    CommitOutcome, CommitRequest, HeartbeatWrite, Heartbeats, InitializeRequest, ReadAnswer,
    ReadRequest, RowRead, SiloAddress, Snapshot, TableError,
};

use super::route::Route;
use crate::Stop;
use crate::case::{Table, commit, read};

/// An operation in one of its situations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Operation {
    /// For a cluster that does not exist yet.
    Initialize,
    Read,
    ReadRow,
    /// Sent for the first time.
    Commit,
    /// Sent again after it was committed.
    CommitAgain,
    /// Sent again after the first request was lost on its way.
    CommitAgainLost,
    Beat,
    Delete,
}

impl Operation {
    pub const ALL: [Self; 8] = [
        Self::Initialize,
        Self::Read,
        Self::ReadRow,
        Self::Commit,
        Self::CommitAgain,
        Self::CommitAgainLost,
        Self::Beat,
        Self::Delete,
    ];

    pub fn is_commit(self) -> bool {
        matches!(
            self,
            Self::Commit | Self::CommitAgain | Self::CommitAgainLost
        )
    }
}

impl fmt::Display for Operation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Initialize => "initialize",
            Self::Read => "read",
            Self::ReadRow => "read_row",
            Self::Commit => "commit",
            Self::CommitAgain => "commit sent again after it was committed",
            Self::CommitAgainLost => "commit sent again after it was lost",
            Self::Beat => "update_i_am_alive",
            Self::Delete => "delete",
        })
    }
}

/// A prepared operation, and the table before it.
#[derive(Clone, Debug)]
pub(super) struct Prepared {
    pub operation: Operation,
    pub before: (Snapshot, Heartbeats),
    pub initialize: InitializeRequest,
    pub request: CommitRequest,
    pub beat: HeartbeatWrite,
    pub silo: SiloAddress,
}

/// An operation's answer.
#[derive(Debug)]
pub(super) enum Answered {
    Done(Result<(), TableError>),
    Read(Result<ReadAnswer, TableError>),
    Row(Result<RowRead, TableError>),
    Commit(Result<CommitOutcome, TableError>),
}

impl Answered {
    pub fn error(&self) -> Option<&TableError> {
        match self {
            Self::Done(answer) => answer.as_ref().err(),
            Self::Read(answer) => answer.as_ref().err(),
            Self::Row(answer) => answer.as_ref().err(),
            Self::Commit(answer) => answer.as_ref().err(),
        }
    }
}

impl Route {
    /// Prepares an operation; nothing goes through the proxy.
    pub async fn prepare(&self, operation: Operation) -> Result<Prepared, Stop> {
        let before = read(&self.judge).await?;
        let mut request = self.cx.update(&before.0.token, [self.marked(&before.0)]);
        request
            .changes
            .extend(self.cx.insert(&before.0.token, [self.cx.entry()]).changes);
        // Some of the rows that earlier operations inserted.
        let own = |silo: &SiloAddress| self.silos.iter().any(|s| s.address == *silo);
        let others: Vec<String> = before
            .0
            .rows
            .entries()
            .map(|e| e.address)
            .filter(|s| !own(s))
            .map(|s| s.row_key())
            .collect();
        if others.len() > 6 {
            request.changes.extend(
                self.cx
                    .remove(&before.0.token, others.into_iter().take(2))
                    .changes,
            );
        }
        match operation {
            Operation::Initialize => self.judge.delete().await?,
            Operation::CommitAgain => {
                commit(&self.judge, &request).await?;
                request = request.again();
            }
            Operation::CommitAgainLost => request = request.again(),
            _ => {}
        }
        let silo = &self.silos[1];
        let (initialize, beat) = (self.offer(), self.beat(silo));
        Ok(Prepared {
            operation,
            before,
            initialize,
            request,
            beat,
            silo: silo.address,
        })
    }
}

/// Sends it.
pub(super) async fn ask(table: &Table, prepared: &Prepared) -> Answered {
    match prepared.operation {
        Operation::Initialize => Answered::Done(table.initialize(&prepared.initialize).await),
        Operation::Read => Answered::Read(table.read(&ReadRequest::all()).await),
        Operation::ReadRow => Answered::Row(table.read_row(&prepared.silo, None).await),
        Operation::Commit | Operation::CommitAgain | Operation::CommitAgainLost => {
            Answered::Commit(table.commit(&prepared.request).await)
        }
        Operation::Beat => Answered::Done(table.update_i_am_alive(&prepared.beat).await),
        Operation::Delete => Answered::Done(table.delete().await),
    }
}
