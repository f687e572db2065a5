//! What was asked and what was answered, in an order that all clients share.

use std::fmt;

use membership_core::{
    CommitOutcome, CommitRequest, Heartbeats, ReadAnswer, ReadRequest, SiloAddress, Snapshot,
    TableError,
};

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
    /// What was asked and told about this version, in the order it was asked; at most 16 lines.
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
        // Who wrote matters more than who read.
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
            Answer::Commit(Err(e)) | Answer::Read(Err(e)) | Answer::Beat(Err(e)) => {
                write!(f, ": {:?}, {e}", e.kind())
            }
        }
    }
}
