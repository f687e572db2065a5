//! Requests and their answers, in an order that all clients share.

use std::fmt;

use membership_core::{
    CommitOutcome, CommitRequest, Heartbeats, ReadAnswer, ReadRequest, SiloAddress, Snapshot,
    TableError,
};

/// One request.
#[derive(Clone, Debug)]
pub enum Asked {
    /// A commit.
    Commit(Box<CommitRequest>),
    /// A read of everything.
    Read(ReadRequest),
    /// A heartbeat of this silo with this counter.
    Beat(SiloAddress, u64),
}

/// The answer to a request.
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
    /// The time of the request, from a counter that all clients share.
    pub began: u64,
    /// The time of the answer. An operation that ended before another one began has the smaller
    /// number.
    pub ended: u64,
    /// The request.
    pub asked: Asked,
    /// The answer.
    pub answer: Answer,
}

/// Everything that happened to one table since its beginning.
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
    /// The snapshot that an answered read, or a conflict with a snapshot, shows, and its
    /// heartbeats.
    pub(super) fn shown(&self) -> Option<(&Snapshot, Option<&Heartbeats>)> {
        match &self.answer {
            Answer::Read(Ok(ReadAnswer::Snapshot {
                snapshot,
                heartbeats,
            })) => Some((snapshot, heartbeats.as_ref())),
            Answer::Commit(Ok(CommitOutcome::Conflict(conflict))) => {
                conflict.snapshot.as_ref().map(|s| (s, None))
            }
            _ => None,
        }
    }
}

impl History {
    /// The requests and answers about this version, in their order; at most 16 lines.
    #[must_use]
    pub fn around(&self, version: u64) -> Vec<&Event> {
        let near = version.saturating_sub(1)..=version.saturating_add(1);
        let concerns = |event: &&Event| match &event.asked {
            Asked::Commit(request) => near.contains(&request.next_version()),
            _ => event
                .shown()
                .is_some_and(|(snapshot, _)| near.contains(&snapshot.version())),
        };
        let mut events: Vec<&Event> = self.events.iter().filter(concerns).collect();
        // Writes matter more than reads.
        events.sort_unstable_by_key(|e| (!matches!(e.asked, Asked::Commit(_)), e.began));
        events.truncate(16);
        events.sort_unstable_by_key(|e| e.began);
        events
    }
}

impl fmt::Display for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "client {}, from {} to {}: ",
            self.client, self.began, self.ended
        )?;
        match &self.asked {
            Asked::Commit(request) => {
                let keys: Vec<&str> = request
                    .changes
                    .iter()
                    .map(membership_core::RowChange::key)
                    .collect();
                let (expected, again) = (
                    &request.expected,
                    request.attempt == membership_core::Attempt::Again,
                );
                let again = if again { ", sent again" } else { "" };
                write!(
                    f,
                    "commit {} on version {} of {}{again}",
                    request.id,
                    expected.version(),
                    keys.join(", ")
                )?;
            }
            Asked::Read(request) => {
                let known = request.known.as_ref().map_or_else(
                    || "nothing".to_owned(),
                    |t| format!("version {}", t.version()),
                );
                write!(
                    f,
                    "read, knowing {known}{}",
                    if request.barrier {
                        ", with a barrier"
                    } else {
                        ""
                    }
                )?;
            }
            Asked::Beat(silo, counter) => write!(f, "heartbeat {counter} of {silo}")?,
        }
        match &self.answer {
            Answer::Commit(Ok(CommitOutcome::Committed(token))) => {
                write!(f, ": committed as version {}", token.version())
            }
            Answer::Commit(Ok(CommitOutcome::Conflict(conflict))) => match &conflict.newest {
                Some(newest) => write!(
                    f,
                    ": a conflict with {} of version {}",
                    newest.id, newest.version
                ),
                None => f.write_str(": a conflict"),
            },
            Answer::Read(Ok(ReadAnswer::Snapshot { snapshot, .. })) => {
                write!(
                    f,
                    ": version {} by {} with {} rows",
                    snapshot.version(),
                    snapshot.token.commit(),
                    snapshot.rows.len()
                )
            }
            Answer::Read(Ok(ReadAnswer::Unchanged { .. })) => f.write_str(": unchanged"),
            Answer::Beat(Ok(())) => f.write_str(": written"),
            Answer::Commit(Ok(other)) => write!(f, ": {other:?}"),
            Answer::Read(Ok(other)) => write!(f, ": {other:?}"),
            Answer::Commit(Err(e)) | Answer::Read(Err(e)) | Answer::Beat(Err(e)) => {
                write!(f, ": {:?}, {e}", e.kind())
            }
        }
    }
}
