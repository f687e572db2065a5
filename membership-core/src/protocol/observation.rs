//! What is counted or measured of a silo.

use std::time::Duration;

use crate::{Delta, SiloAddress};

/// An observation to count or measure; not needed for correctness.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Observation {
    /// A probe was answered.
    ProbeAnswered {
        /// The silo that answered.
        peer: SiloAddress,
        /// The round-trip time.
        round_trip: Duration,
    },
    /// A probe was not answered in time.
    ProbeMissed {
        /// The silo that did not answer.
        peer: SiloAddress,
        /// Number of misses in a row, including this one.
        misses: u32,
        /// Whether the silo's machine refused the connection.
        refused: bool,
    },
    /// A roll call of this silo ended.
    RollCallEnded {
        /// What it gave.
        result: RollCallResult,
    },
    /// The health score changed: 0 (healthy) to 8.
    Health {
        /// Score of all reasons together.
        score: u8,
        /// Score of the local reasons alone.
        local: u8,
    },
    /// A commit with a vote of this silo succeeded.
    VoteCast {
        /// The silo that is voted against.
        suspect: SiloAddress,
    },
    /// A vote against this silo appeared.
    VoteReceived {
        /// The silo that voted.
        accuser: SiloAddress,
    },
    /// A commit of this silo succeeded.
    Committed {
        /// Number of rows that it changed.
        rows: usize,
    },
    /// A commit of this silo met a conflict.
    Conflict,
    /// The outcome of a commit of this silo is unknown.
    UnknownOutcome,
    /// A message was dropped: wrong cluster, wrong receiver, invalid or forged.
    Dropped {
        /// The reason in one word.
        reason: &'static str,
    },
    /// This process was paused for about this time.
    Paused(Duration),
    /// A commit of this silo has changes in it that others had asked it to write.
    WrittenForOthers {
        /// Number of these changes.
        changes: usize,
    },
    /// This silo asked another one to write changes of its own.
    ChangesSent {
        /// The silo that it asked.
        to: SiloAddress,
        /// Number of these changes.
        changes: usize,
    },
    /// A change that this silo sent to another one came back unwritten: it is sent again, or this silo
    /// writes it.
    ChangeReturned {
        /// The silo that was asked.
        from: SiloAddress,
        /// Why it came back.
        why: Unwritten,
    },
    /// This silo does not write changes that another one asked it to write.
    ChangesTurnedAway {
        /// The silo that asked.
        from: SiloAddress,
        /// Number of these changes.
        changes: usize,
        /// Why: [`Refused`](Unwritten::Refused) or [`Elsewhere`](Unwritten::Elsewhere).
        why: Unwritten,
    },
    /// The view of this silo moved to another version.
    ViewLearned {
        /// That version.
        version: u64,
        /// How this silo got it.
        how: Learned,
    },
}

/// Why a silo did not write a change that another one asked it to write.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Unwritten {
    /// The table does not allow it, as the silo that was asked says.
    Refused,
    /// The silo that was asked says that another one has to write it.
    Elsewhere,
    /// Nothing was heard of the silo that was asked, or it kept the change for too long.
    Unanswered,
    /// The silo that was asked says that the change waits, while others make commits, or nobody does.
    Idle,
    /// The silo that was asked is gone: its machine refuses connections or has closed one, or another
    /// process is at its address.
    Gone,
}

impl Unwritten {
    /// Every reason.
    pub const ALL: [Self; 5] = [
        Self::Refused,
        Self::Elsewhere,
        Self::Unanswered,
        Self::Idle,
        Self::Gone,
    ];

    /// The name used in logs and metrics.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Refused => "refused",
            Self::Elsewhere => "elsewhere",
            Self::Unanswered => "unanswered",
            Self::Idle => "idle",
            Self::Gone => "gone",
        }
    }
}

/// How a silo got a view.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Learned {
    /// Another silo sent the changes since an older view.
    Changes,
    /// Another silo sent all rows.
    Rows,
    /// This silo read the rows from the table.
    Read,
    /// A commit of this silo made it.
    Commit,
}

impl Learned {
    /// Every way.
    pub const ALL: [Self; 4] = [Self::Changes, Self::Rows, Self::Read, Self::Commit];

    /// How a delta brings a view.
    pub(super) const fn of(delta: &Delta) -> Self {
        match delta.from {
            Some(_) => Self::Changes,
            None => Self::Rows,
        }
    }

    /// The name used in logs and metrics.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Changes => "changes",
            Self::Rows => "rows",
            Self::Read => "read",
            Self::Commit => "commit",
        }
    }
}

/// What a roll call gave.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum RollCallResult {
    /// A majority failed to reach a suspect: votes against it follow.
    Majority,
    /// No majority failed to reach any suspect, and others reached some of them.
    Reached,
    /// Too few answered, or said that they failed.
    NoMajority,
    /// All suspects answered this silo, or died meanwhile.
    Answered,
}

impl RollCallResult {
    /// Every result.
    pub const ALL: [Self; 4] = [
        Self::Majority,
        Self::Reached,
        Self::NoMajority,
        Self::Answered,
    ];

    /// The name used in logs and metrics.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Majority => "majority",
            Self::Reached => "reached",
            Self::NoMajority => "no_majority",
            Self::Answered => "answered",
        }
    }
}
