//! What was asked and what was answered, in an order that all clients share.

use membership_core::{CommitOutcome, CommitRequest, Heartbeats, ReadAnswer, ReadRequest, SiloAddress, Snapshot, TableError};

/// One question.
#[derive(Clone, Debug)]
pub enum Asked {
    /// A commit.
    Commit(CommitRequest),
    /// A read of everything.
    Read(ReadRequest),
    /// A heartbeat of this silo with this counter.
    Beat(SiloAddress, u64),
}

/// What came back; none in an [`Event`] where it never came.
#[derive(Clone, Debug)]
pub enum Answer {
    /// To a commit.
    Commit(Result<CommitOutcome, TableError>),
    /// To a read.
    Read(Result<ReadAnswer, TableError>),
    /// To a heartbeat.
    Beat(Result<(), TableError>),
}

/// One operation of one client.
#[derive(Clone, Debug)]
pub struct Event {
    /// Which client.
    pub client: usize,
    /// Drawn from one counter before it was asked …
    pub began: u64,
    /// … and after it was answered: what ended before another began has the smaller number.
    pub ended: u64,
    /// The question.
    pub asked: Asked,
    /// The answer.
    pub answer: Answer,
}

/// Everything that happened to one table from its beginning.
#[derive(Clone, Debug)]
pub struct History {
    /// The table before the first operation.
    pub start: Snapshot,
    /// Every operation, in any order.
    pub events: Vec<Event>,
    /// Whether reads without a barrier are linearizable too.
    pub linearizable: bool,
}

impl Event {
    /// The snapshot it shows and its heartbeats, if it is an answered read or a conflict that brings one.
    pub(super) fn shown(&self) -> Option<(&Snapshot, Option<&Heartbeats>)> {
        match &self.answer {
            Answer::Read(Ok(ReadAnswer::Snapshot { snapshot, heartbeats })) => Some((snapshot, heartbeats.as_ref())),
            Answer::Commit(Ok(CommitOutcome::Conflict(conflict))) => conflict.snapshot.as_ref().map(|s| (s, None)),
            _ => None,
        }
    }
}
