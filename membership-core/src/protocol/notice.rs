//! What a silo reports to its application, and how a silo ends.

use std::fmt;
use std::net::SocketAddr;
use std::time::Duration;

use super::reach::NotReached;
use super::unreached::{Unreached, list};
use crate::intent::Answer;
use crate::{
    CauseOfDeath, Death, Discontinuity, SharedSettings, SiloAddress, Suspicion, TableError,
    WallTime,
};
/// Identifies one request; chosen by the application.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RequestId(pub u64);

/// The state of the table as this silo sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum TableState {
    /// The last call succeeded.
    Available,
    /// Calls fail.
    Unavailable,
    /// It is not the table that this silo knew. Nothing is adopted or written any more; restart the
    /// silos.
    Changed(Discontinuity),
    /// The table cannot be used as it is: foreign, newer layout, damaged, being deleted, not
    /// permitted.
    Unusable(crate::TableErrorKind),
}

/// A report to the application.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Notice {
    /// The address of this silo is decided and its row is in the table.
    Joining {
        /// This silo.
        silo: SiloAddress,
        /// The version that contains its row.
        version: u64,
    },
    /// The silo is still joining; reported every 5 s.
    JoinProgress(JoinProgress),
    /// The silo is Active.
    Active {
        /// The version that made it Active.
        version: u64,
    },
    /// ShuttingDown is in the table, or could not be written in time: drain, then finish.
    LeaveBegun {
        /// The version that contains ShuttingDown; `None` when it could not be written.
        version: Option<u64>,
    },
    /// The answer to [`Command::Evict`](super::Command::Evict).
    Answered {
        /// The request.
        request: RequestId,
        /// The answer.
        answer: Answer,
    },
    /// The answer to [`Command::Refresh`](super::Command::Refresh).
    Refreshed {
        /// The request.
        request: RequestId,
        /// The version of the view after the refresh, or the error of the read.
        result: Result<u64, TableError>,
    },
    /// The state of the table changed. While the table is unavailable, no silo is declared dead and
    /// all silos keep running.
    Table(TableState),
    /// The configuration of this silo differs from the shared settings of the cluster; the silo
    /// uses those of the table.
    SettingsDiffer {
        /// The settings of the table.
        table: SharedSettings,
        /// The settings that this silo was configured with.
        configured: SharedSettings,
    },
    /// The table contradicts a view that another silo announced; the table's is published instead.
    ViewWithdrawn {
        /// The version that was announced.
        version: u64,
        /// The version of the table.
        table: u64,
    },
    /// After a long pause, the silo publishes and writes nothing until a read succeeds (true), or
    /// it continues (false).
    Suspended(bool),
    /// Other silos than before are not reached by this one, though others reach them: part of the
    /// network has failed. Nobody dies of it. Told on each change, at most once in a failure window.
    PartialPartition {
        /// All of them; empty when it has ended.
        unreached: Vec<NotReached>,
    },
}

/// The progress of a join.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct JoinProgress {
    /// Time since the start of the join.
    pub elapsed: Duration,
    /// What the join waits for, in one sentence.
    pub waiting_for: String,
    /// The Active silos that delay the join.
    pub unreached: Vec<Unreached>,
}

/// Why a silo stopped for good.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Termination {
    /// The silo left.
    Left {
        /// Whether its row says so. If false, the time ran out before that was written, and the
        /// other silos will detect its absence.
        clean: bool,
    },
    /// The table says that the silo is Dead.
    DeclaredDead(DeclaredDead),
    /// The silo found that no other silo reaches it, and left: otherwise it would have kept others
    /// from joining, and nobody could have voted it out. Invariant P14.
    Unreachable {
        /// What showed it.
        why: Unreachability,
        /// Whether its row says that it left.
        clean: bool,
    },
    /// The silo never became Active.
    JoinFailed(JoinError),
    /// The task of the silo panicked: a defect, of this library or of a transport that the
    /// application brought. Its row does not say so; the other silos will detect its absence.
    Panicked {
        /// What the panic said.
        message: String,
    },
}

/// One sentence for people: why it stopped.
impl fmt::Display for Termination {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Left { clean: true } => f.write_str("left"),
            Self::Left { clean: false } => f.write_str(
                "left, but the table could not be written: the other silos will declare this one dead",
            ),
            Self::DeclaredDead(dead) => dead.fmt(f),
            Self::Unreachable { why, .. } => write!(f, "left, because {why}"),
            Self::JoinFailed(why) => write!(f, "did not join: {why}"),
            Self::Panicked { message } => write!(
                f,
                "its task panicked, which is a defect; the other silos will declare it dead: {message}"
            ),
        }
    }
}

/// How a silo found that no other silo reaches it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Unreachability {
    /// Its own advertised address does not lead back to it.
    OwnAddress {
        /// The address.
        endpoint: SocketAddr,
        /// The last error of the transport.
        error: Option<String>,
    },
    /// At most two silos are Active, and more than half of all, the Joining ones included, do not
    /// reach it.
    Outvoted {
        /// The Joining silos that say so.
        accusers: Vec<SiloAddress>,
    },
}

impl fmt::Display for Unreachability {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("no other silo reaches this one: ")?;
        match self {
            Self::OwnAddress { endpoint, error } => {
                write!(
                    f,
                    "its advertised address {endpoint} does not lead back to it"
                )?;
                match error {
                    Some(error) => write!(f, " ({error})"),
                    None => Ok(()),
                }
            }
            Self::Outvoted { accusers } => {
                let names: Vec<String> = accusers.iter().map(ToString::to_string).collect();
                write!(f, "{} say so", names.join(" and "))
            }
        }
    }
}

/// The end of this silo according to the table.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct DeclaredDead {
    /// This silo.
    pub silo: SiloAddress,
    /// The version that contains its end.
    pub version: u64,
    /// Its death; `None` when its row is missing.
    pub death: Option<Death>,
    /// The votes against it, with evidence.
    pub votes: Vec<Suspicion>,
    /// When this silo found out, by its own clock.
    pub at: WallTime,
}

impl DeclaredDead {
    /// Creates the value for an end found at `version`; without `death`, the row is missing.
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

    /// The cause in one word; `removed` when the row is missing.
    #[must_use]
    pub fn cause(&self) -> &'static str {
        self.death
            .as_ref()
            .map_or("removed", |d: &Death| CauseOfDeath::as_str(&d.cause))
    }
}

impl fmt::Display for DeclaredDead {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (silo, cause, version) = (&self.silo, self.cause(), self.version);
        write!(f, "{silo} was declared dead ({cause}) in version {version}")?;
        let voters: Vec<String> = self.votes.iter().map(|v| v.accuser.to_string()).collect();
        if voters.is_empty() {
            Ok(())
        } else {
            write!(f, ", by the votes of {}", voters.join(", "))
        }
    }
}

/// The time without the fraction that tells nobody anything.
const fn whole_seconds(time: Duration) -> Duration {
    match time.as_secs() {
        0 => time,
        seconds => Duration::from_secs(seconds),
    }
}

/// Why a join did not succeed. The row, if it was inserted, becomes Dead with cause `left`. If the
/// table cannot be written either, the attempt ends after at most 10 s, and the other silos declare
/// the silo dead.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum JoinError {
    /// Another process answers at the silo's advertised address.
    #[error(
        "the advertised address {endpoint} leads to another silo, {silo} on host `{host}`: choose another address or stop that one"
    )]
    AddressInUse {
        /// The address.
        endpoint: SocketAddr,
        /// The silo that answers there.
        silo: String,
        /// The name of its machine.
        host: String,
    },
    /// No process answers at the silo's advertised address.
    #[error(
        "my own advertised address {endpoint} does not lead to me ({reason}): check --advertise and the firewall"
    )]
    NotReachableByMyself {
        /// The address.
        endpoint: SocketAddr,
        /// The error of the transport.
        reason: String,
    },
    /// A newer process took the silo's address during the join.
    #[error("{newer}, a newer process, took this address while I joined")]
    Superseded {
        /// The newer silo.
        newer: SiloAddress,
    },
    /// Two-way contact with some Active silos is missing.
    #[error("could not reach everybody within {:?}: {}", whole_seconds(*.elapsed), list(.unreached))]
    Unreachable {
        /// Time since the start of the join.
        elapsed: Duration,
        /// The silos, and the direction that is missing.
        unreached: Vec<Unreached>,
    },
    /// The other silos voted it out while it joined, because it does not reach all of them or they do
    /// not reach it: part of the network has failed, or this silo is set up otherwise.
    #[error(
        "{silo} was voted out while it joined (version {version}): {}",
        list(.unreached)
    )]
    VotedOut {
        /// This silo.
        silo: SiloAddress,
        /// The version that contains its death.
        version: u64,
        /// The silos, and the direction that is missing.
        unreached: Vec<Unreached>,
    },
    /// The table cannot be used.
    #[error("the membership table cannot be used: {0}")]
    Table(TableErrorText),
    /// The join took too long, but not because of a certain silo.
    #[error("did not become Active within {:?}: {waiting_for}", whole_seconds(*.elapsed))]
    TimedOut {
        /// Time since the start of the join.
        elapsed: Duration,
        /// What the join waited for.
        waiting_for: String,
    },
    /// The table has no cluster key: an older build made it.
    #[error(
        "the table has no cluster key, because an older build made it: run `membership settings rotate-key` once, and start again"
    )]
    NoClusterKey,
    /// The row is too large or not allowed.
    #[error("the table does not take my row: {0}")]
    Refused(crate::intent::Refusal),
    /// The application left or dropped its handle before the silo was Active.
    #[error("stopped before it was Active")]
    Stopped,
}

/// A table error inside a comparable value; two are equal when their kinds are.
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
