//! The status of a silo, and how it ended.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use super::address::SiloAddress;
use super::text::quoted;
use super::time::WallTime;

/// The status of a silo. It only moves forward; a restarted process is a new silo.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[non_exhaustive]
pub enum SiloStatus {
    /// In memory only: the silo has no row yet.
    Created,
    /// The silo has a row. It checks two-way contact with the Active silos.
    Joining,
    /// A full member of the cluster.
    Active,
    /// The silo is leaving: it drains and takes no new work.
    ShuttingDown,
    /// The silo is leaving at once, without draining.
    Stopping,
    /// The silo has ended. This status is final.
    Dead,
}

impl SiloStatus {
    /// All statuses, in order.
    pub const ALL: [Self; 6] = [
        Self::Created,
        Self::Joining,
        Self::Active,
        Self::ShuttingDown,
        Self::Stopping,
        Self::Dead,
    ];

    /// The word for this status in the table, logs, metrics and the program.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Created => "Created",
            Self::Joining => "Joining",
            Self::Active => "Active",
            Self::ShuttingDown => "ShuttingDown",
            Self::Stopping => "Stopping",
            Self::Dead => "Dead",
        }
    }

    /// Whether this is ShuttingDown, Stopping or Dead.
    #[must_use]
    pub const fn is_terminating(self) -> bool {
        matches!(self, Self::ShuttingDown | Self::Stopping | Self::Dead)
    }

    /// Whether a silo may change from this status to `next`: only forward. (ShuttingDown may become
    /// Stopping.)
    #[must_use]
    pub fn may_become(self, next: Self) -> bool {
        next > self
    }
}

impl fmt::Display for SiloStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

crate::debug_as_display!(ParseStatusError);

/// The error for a word that is not a status.
#[derive(Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not a silo status")]
pub struct ParseStatusError(String);

impl FromStr for SiloStatus {
    type Err = ParseStatusError;
    fn from_str(text: &str) -> Result<Self, ParseStatusError> {
        Self::ALL
            .into_iter()
            .find(|s| s.as_str() == text)
            .ok_or_else(|| ParseStatusError(quoted(text, 40)))
    }
}

/// How a Dead silo ended.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
#[non_exhaustive]
pub enum CauseOfDeath {
    /// It left, or its join failed.
    Left,
    /// Enough Active silos voted against it because it did not answer.
    Voted,
    /// A newer process took its address.
    Superseded,
    /// A person or a program ended it without a vote.
    Evicted {
        /// Who requested it: a silo address or the name of an operator.
        by: String,
        /// The reason that the requester gave.
        reason: String,
    },
    /// It stayed Joining for too long and was voted out.
    Stuck,
}

impl CauseOfDeath {
    /// The word for this cause in the table, logs, metrics and the program: `left`, `voted`,
    /// `superseded`, `evicted` or `stuck`.
    #[must_use]
    pub const fn as_str(&self) -> &'static str {
        match self {
            Self::Left => "left",
            Self::Voted => "voted",
            Self::Superseded => "superseded",
            Self::Evicted { .. } => "evicted",
            Self::Stuck => "stuck",
        }
    }
}

impl fmt::Display for CauseOfDeath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Evicted { by, reason } => write!(f, "evicted by {by}: {reason}"),
            other => f.pad(other.as_str()),
        }
    }
}

/// The end of a silo as its row describes it.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Death {
    /// How it ended.
    pub cause: CauseOfDeath,
    /// The time by the clock of the writer.
    pub at: WallTime,
    /// The silo that wrote it; `None` if it was not a silo.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<SiloAddress>,
    /// The version of the commit that wrote it.
    #[serde(default)]
    pub version: u64,
    /// Fields of newer builds, kept unchanged.
    #[serde(flatten)]
    pub extra: super::entry::Extra,
}

impl Death {
    /// The death that the commit of this version writes.
    #[must_use]
    pub fn new(cause: CauseOfDeath, at: WallTime, by: Option<SiloAddress>, version: u64) -> Self {
        Self {
            cause,
            at,
            by,
            version,
            extra: super::entry::Extra::default(),
        }
    }
}
