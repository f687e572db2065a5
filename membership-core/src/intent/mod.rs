//! What a silo wants of the table, as data. Intents are serializable and idempotent: applying one twice changes nothing more.

mod apply;
mod lives;
mod retention;
mod votes;
mod working;

pub use apply::{Applied, Observed, apply};
pub use retention::defunct;
pub(crate) use retention::oldest_first;
pub use votes::{fresh_votes, needed_votes};

use serde::{Deserialize, Serialize};

use crate::{IntentId, MembershipEntry, SiloAddress, Suspicion};

/// What a silo wants of the table.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Intent {
    /// Its name, so that its answer finds the one who asked.
    pub id: IntentId,
    /// Who wants it; none when a person or another program does.
    pub author: Option<SiloAddress>,
    /// What.
    pub action: Action,
}

impl Intent {
    /// What this author (none = no silo) wants, under this name.
    #[must_use]
    pub const fn new(id: IntentId, author: Option<SiloAddress>, action: Action) -> Self {
        Self { id, author, action }
    }
}

/// The things a silo can want.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Action {
    /// Put my row in, as Joining; older rows at my endpoint end as superseded in the same commit.
    Join(Box<MembershipEntry>),
    /// Turn my Joining row Active.
    BecomeActive {
        /// Whose row.
        silo: SiloAddress,
        /// Everybody it had two-way contact with (invariant P9).
        contacted: Vec<SiloAddress>,
    },
    /// Vote against a silo, and declare it dead if that is enough.
    Suspect {
        /// Against whom.
        suspect: SiloAddress,
        /// The votes: the author's own, and that of a consenting intermediary.
        votes: Vec<Suspicion>,
    },
    /// End a silo without a vote.
    Evict {
        /// Whom.
        silo: SiloAddress,
        /// Who asked, for the row.
        by: String,
        /// Why, for the row.
        reason: String,
    },
    /// Publish that a silo is leaving.
    BeginShutdown {
        /// Who.
        silo: SiloAddress,
        /// Without draining: Stopping instead of ShuttingDown.
        fast: bool,
    },
    /// End my own row, cause `left`.
    Leave {
        /// Who.
        silo: SiloAddress,
    },
    /// Remove rows of Dead silos.
    RemoveDefunct {
        /// Which; rows that are not Dead any more, or gone, are passed over.
        silos: Vec<SiloAddress>,
    },
}

/// What became of an intent.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Answer {
    /// It is in the commit that makes this version.
    Applied {
        /// The version.
        version: u64,
    },
    /// There is nothing left to do: the table already says so, or it no longer matters.
    Moot,
    /// It must not be done.
    Refused(Refusal),
    /// It did not fit this time and waits for the next commit.
    Queued,
}

/// Why an intent must not be done.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Refusal {
    /// The silo has no row.
    #[error("{0} has no row in the table")]
    NoSuchSilo(SiloAddress),
    /// The silo is Dead.
    #[error("{0} is Dead, and dead is final")]
    Dead(SiloAddress),
    /// A newer epoch of the same endpoint is in the table.
    #[error("{0} is a newer incarnation at the same address")]
    Superseded(SiloAddress),
    /// The row that is in the way cannot be decoded.
    #[error("row {0} cannot be decoded; run `membership doctor`")]
    Undecodable(String),
    /// These Active silos have not been contacted.
    #[error("not every Active silo was contacted: {} missing", .0.len())]
    NotContacted(Vec<SiloAddress>),
    /// Only Active silos may vote (a Joining one only where no live Active one exists).
    #[error("{0} may not vote: it is not Active")]
    NotAVoter(SiloAddress),
    /// The status does not allow it.
    #[error("{silo} is {status}")]
    WrongStatus {
        /// Who.
        silo: SiloAddress,
        /// What it is.
        status: crate::SiloStatus,
    },
    /// Whoever asked stopped, or its table is no longer the one it knew: nobody waits for the outcome any more.
    #[error("the silo stopped, or lost its table, before this was settled: look at the table")]
    Abandoned,
    /// It cannot fit this store, not even alone.
    #[error("it exceeds a limit of the store: {0}")]
    TooLarge(String),
}
