//! What a silo wants to change in the table, as data. Intents are serializable and idempotent:
//! applying one twice has the same effect as applying it once.

mod apply;
mod check_set;
mod check_sets;
mod lives;
mod retention;
mod votes;
mod working;

pub use apply::{Applied, Observed, apply};
pub(crate) use check_set::Checks;
#[doc(hidden)]
pub use check_set::check_set;
pub use retention::defunct;
pub(crate) use retention::oldest_first;
pub(crate) use votes::needed_after_challenge;
pub(crate) use votes::{Count, FEW, joining_count, outnumber};
pub use votes::{fresh_votes, is_majority, needed_votes};

use serde::{Deserialize, Serialize};

use crate::{IntentId, MembershipEntry, SiloAddress, Suspicion};

/// A change that a silo wants to make to the table.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Intent {
    /// Matches the answer to the intent.
    pub id: IntentId,
    /// The silo that wants the change; `None` when a person or another program does.
    pub author: Option<SiloAddress>,
    /// The change.
    pub action: Action,
}

impl Intent {
    /// Creates an intent with this id and this author (`None` = not a silo).
    #[must_use]
    pub const fn new(id: IntentId, author: Option<SiloAddress>, action: Action) -> Self {
        Self { id, author, action }
    }
}

/// The changes that a silo can want.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Action {
    /// Insert the author's row as Joining. The same commit ends older rows at its endpoint as
    /// superseded.
    Join(Box<MembershipEntry>),
    /// Change the author's row from Joining to Active.
    BecomeActive {
        /// The silo that becomes Active.
        silo: SiloAddress,
        /// Every silo that it had two-way contact with (invariant P9).
        contacted: Vec<SiloAddress>,
    },
    /// Vote against a silo, and declare it dead if there are enough votes.
    Suspect {
        /// The silo that is voted against.
        suspect: SiloAddress,
        /// The votes: that of the author, and those of the silos that consent.
        votes: Vec<Suspicion>,
        /// The roll call on which they rest. Without one no vote for the reason "silent" counts.
        #[serde(default)]
        call: Option<Call>,
    },
    /// End a silo without a vote.
    Evict {
        /// The silo to evict.
        silo: SiloAddress,
        /// Who requested the eviction; kept in the row.
        by: String,
        /// The reason; kept in the row.
        reason: String,
    },
    /// Publish that a silo is leaving.
    BeginShutdown {
        /// The silo that leaves.
        silo: SiloAddress,
        /// Leave without draining: Stopping instead of ShuttingDown.
        fast: bool,
    },
    /// End the author's row with cause `left`.
    Leave {
        /// The silo that leaves.
        silo: SiloAddress,
    },
    /// Remove rows of Dead silos.
    RemoveDefunct {
        /// The silos. Rows that are missing or not Dead are skipped.
        silos: Vec<SiloAddress>,
    },
}

/// The result of a roll call. Whether it is a majority is decided again in each snapshot that the
/// votes are applied to: a silo that has become Active since counts as one that reaches the suspect.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Call {
    /// The silos that had just failed to reach the suspect, the caller included.
    pub failed: Vec<SiloAddress>,
    /// How many reached it.
    pub reached: u32,
    /// How many silos were asked, if not all: then a majority of them is not enough; of 256 drawn from
    /// very many silos, two thirds are.
    #[serde(default)]
    pub sample: Option<u32>,
}

/// The result of an intent.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Answer {
    /// The intent is in the commit that makes this version.
    Applied {
        /// That version.
        version: u64,
    },
    /// There is nothing to do: the table already has the change, or the change no longer matters.
    Moot,
    /// The intent is not allowed.
    Refused(Refusal),
    /// The intent did not fit and waits for the next commit.
    Queued,
}

/// Why an intent is not allowed.
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
    /// The table has a newer epoch of the same endpoint.
    #[error("{0} is a newer incarnation at the same address")]
    Superseded(SiloAddress),
    /// The row that the intent would change cannot be decoded.
    #[error("row {0} cannot be decoded; run `membership doctor`")]
    Undecodable(String),
    /// These Active silos have not been contacted.
    #[error("not every Active silo was contacted: {} missing", .0.len())]
    NotContacted(Vec<SiloAddress>),
    /// Only Active silos may vote (a Joining silo only when there is no live Active silo).
    #[error("{0} may not vote: it is not Active")]
    NotAVoter(SiloAddress),
    /// The status of the silo does not allow it.
    #[error("{silo} is {status}")]
    WrongStatus {
        /// The silo.
        silo: SiloAddress,
        /// Its status.
        status: crate::SiloStatus,
    },
    /// The silo stopped, or its table is no longer the one it knew, before the intent was settled.
    #[error("the silo stopped, or lost its table, before this was settled: look at the table")]
    Abandoned,
    /// The intent exceeds a limit of this store even in a commit of its own.
    #[error("it exceeds a limit of the store: {0}")]
    TooLarge(String),
}
