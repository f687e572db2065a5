//! What a silo reports to its application, and how its life ends.

use std::fmt;
use std::net::SocketAddr;
use std::time::Duration;

use crate::intent::Answer;
use crate::{
    CauseOfDeath, Death, Discontinuity, SharedSettings, SiloAddress, Suspicion, TableError,
    WallTime,
};
/// Names one request of the application, chosen by it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RequestId(pub u64);

/// How the table stands with this silo.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum TableState {
    /// The last call succeeded.
    Available,
    /// Calls fail.
    Unavailable,
    /// It is not the table this silo knew: nothing is adopted or written any more; restart the silos.
    Changed(Discontinuity),
    /// It cannot be used as it is: foreign, newer layout, damaged, being deleted, not permitted.
    Unusable(crate::TableErrorKind),
}

/// What the application is told.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Notice {
    /// My address is decided and my row is in the table.
    Joining {
        /// Me.
        silo: SiloAddress,
        /// The version that has my row.
        version: u64,
    },
    /// Still joining; told every 5 s.
    JoinProgress(JoinProgress),
    /// I am Active.
    Active {
        /// The version that made me Active.
        version: u64,
    },
    /// ShuttingDown is in the table (or could not be written within the time, `version` none): drain, then finish.
    LeaveBegun {
        /// The version that says so.
        version: Option<u64>,
    },
    /// An answer to [`Command::Evict`].
    Answered {
        /// Which request.
        request: RequestId,
        /// The answer.
        answer: Answer,
    },
    /// An answer to [`Command::Refresh`].
    Refreshed {
        /// Which request.
        request: RequestId,
        /// The version of the view now, or why the table could not be read.
        result: Result<u64, TableError>,
    },
    /// The table works again, or does not any more. While it does not, nothing is declared and everybody keeps running.
    Table(TableState),
    /// This silo is configured otherwise than the cluster's shared settings say; it follows the table.
    SettingsDiffer {
        /// What the table says.
        table: SharedSettings,
        /// What this silo was configured with.
        configured: SharedSettings,
    },
    /// Publishing and writing nothing after a long pause, until a read succeeds (true); or going on (false).
    Suspended(bool),
}

/// How far a join has come.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct JoinProgress {
    /// Since the start.
    pub elapsed: Duration,
    /// What it waits for, in one sentence.
    pub waiting_for: String,
    /// The Active silos that hold it up.
    pub unreached: Vec<Unreached>,
}

/// A silo that a joining one has no two-way contact with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unreached {
    /// Which.
    pub silo: SiloAddress,
    /// It answers me.
    pub i_reach_it: bool,
    /// It dialled my advertised address and met me.
    pub it_reaches_me: bool,
    /// The transport's last words about it.
    pub last_error: Option<String>,
}

impl fmt::Display for Unreached {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.i_reach_it, self.it_reaches_me) {
            (true, false) => write!(f, "{} does not reach me, I reach it", self.silo)?,
            (false, true) => write!(f, "I do not reach {}, it reaches me", self.silo)?,
            _ => write!(f, "{} and I do not reach each other", self.silo)?,
        }
        match &self.last_error {
            Some(e) => write!(f, " ({e})"),
            None => Ok(()),
        }
    }
}

/// Why a silo stopped for good.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Termination {
    /// It left. `clean` = its row says so; otherwise the time ran out before that could be written, and others will find out.
    Left {
        /// Whether the row says so.
        clean: bool,
    },
    /// The table says that it is Dead.
    DeclaredDead(DeclaredDead),
    /// It never became Active.
    JoinFailed(JoinError),
}

/// What the table says of my end.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct DeclaredDead {
    /// Me.
    pub silo: SiloAddress,
    /// The version that says so.
    pub version: u64,
    /// How; none when my row is gone.
    pub death: Option<Death>,
    /// The votes, with evidence.
    pub votes: Vec<Suspicion>,
    /// When I found out, by my clock.
    pub at: WallTime,
}

impl DeclaredDead {
    /// Found in the table at `version`, or that the row is gone (no `death`).
    #[must_use]
    pub const fn new(
        silo: SiloAddress,
        version: u64,
        death: Option<Death>,
        votes: Vec<Suspicion>,
        at: WallTime,
    ) -> Self {
        Self {
            silo,
            version,
            death,
            votes,
            at,
        }
    }

    /// The cause in one word; `removed` when the row is gone.
    #[must_use]
    pub fn cause(&self) -> &'static str {
        self.death
            .as_ref()
            .map_or("removed", |d: &Death| CauseOfDeath::as_str(&d.cause))
    }
}

/// Why a join did not succeed. The row, if there was one, is marked Dead, cause `left`; where the table cannot be written either, it is given up
/// after at most 10 s, and the others declare it dead.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum JoinError {
    /// Another process answers at my advertised address.
    #[error(
        "the advertised address {endpoint} leads to another silo, {silo} on host `{host}`: choose another address or stop that one"
    )]
    AddressInUse {
        /// The address.
        endpoint: SocketAddr,
        /// Who is there.
        silo: String,
        /// On which machine.
        host: String,
    },
    /// Nothing answers at my advertised address.
    #[error(
        "nothing answers at my own advertised address {endpoint} ({reason}): check --advertise and the firewall"
    )]
    NotReachableByMyself {
        /// The address.
        endpoint: SocketAddr,
        /// The transport's words.
        reason: String,
    },
    /// A newer process took my address while I joined.
    #[error("{newer}, a newer process, took this address while I joined")]
    Superseded {
        /// It.
        newer: SiloAddress,
    },
    /// Active silos and I do not reach each other.
    #[error("could not reach everybody within {elapsed:?}: {}", list(.unreached))]
    Unreachable {
        /// How long I tried.
        elapsed: Duration,
        /// Who, and in which direction.
        unreached: Vec<Unreached>,
    },
    /// The table cannot be used.
    #[error("the membership table cannot be used: {0}")]
    Table(TableErrorText),
    /// It took too long, without a silo to blame.
    #[error("did not become Active within {elapsed:?}: {waiting_for}")]
    TimedOut {
        /// How long I tried.
        elapsed: Duration,
        /// What it waited for.
        waiting_for: String,
    },
    /// The row is too large, or not allowed.
    #[error("the table does not take my row: {0}")]
    Refused(crate::intent::Refusal),
    /// The application left or dropped its handle before.
    #[error("stopped before it was Active")]
    Stopped,
}

fn list(unreached: &[Unreached]) -> String {
    unreached
        .iter()
        .map(ToString::to_string)
        .collect::<Vec<_>>()
        .join("; ")
}

/// A table error inside a comparable value: compared by kind.
#[derive(Clone, Debug)]
pub struct TableErrorText(pub TableError);

impl PartialEq for TableErrorText {
    fn eq(&self, other: &Self) -> bool {
        self.0.kind() == other.0.kind()
    }
}

impl fmt::Display for TableErrorText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl PartialEq for TableError {
    fn eq(&self, other: &Self) -> bool {
        self.kind() == other.kind() && self.operation() == other.operation()
    }
}

/// Something to count or measure; never needed for correctness.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Observation {
    /// A probe was answered.
    ProbeAnswered {
        /// By whom.
        peer: SiloAddress,
        /// After how long.
        round_trip: Duration,
    },
    /// A probe was not answered in time.
    ProbeMissed {
        /// By whom.
        peer: SiloAddress,
        /// How many in a row now.
        misses: u32,
        /// Whether it was an indirect one.
        indirect: bool,
    },
    /// The health score changed: 0 (healthy) to 8.
    Health {
        /// All reasons together.
        score: u8,
        /// The local ones alone.
        local: u8,
    },
    /// A commit with a vote of mine landed.
    VoteCast {
        /// Against whom.
        suspect: SiloAddress,
    },
    /// A vote against me appeared.
    VoteReceived {
        /// By whom.
        accuser: SiloAddress,
    },
    /// A commit of mine landed.
    Committed {
        /// How many rows it changed.
        rows: usize,
    },
    /// A commit of mine met a conflict.
    Conflict,
    /// The outcome of a commit of mine is unknown.
    UnknownOutcome,
    /// A message was dropped: wrong cluster, wrong receiver, nonsense, forged.
    Dropped {
        /// Why, in one word.
        reason: &'static str,
    },
    /// A pause of this process was noticed.
    Paused(Duration),
}
