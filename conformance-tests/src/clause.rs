//! The clauses of the table contract: number and text. A failing case prints them.

use std::fmt;
use std::str::FromStr;

/// One clause of the contract of [`MembershipTable`](membership_core::MembershipTable).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[allow(missing_docs, reason = "each variant's meaning is its `text`")]
pub enum Clause {
    T1,
    T2,
    T3,
    T4,
    T5,
    T6,
    T7,
    T8,
    T9,
    T10,
    T11,
    T12,
    T13,
    T14,
    T15,
    T16,
}

impl Clause {
    /// Every clause.
    pub const ALL: [Self; 16] = [
        Self::T1,
        Self::T2,
        Self::T3,
        Self::T4,
        Self::T5,
        Self::T6,
        Self::T7,
        Self::T8,
        Self::T9,
        Self::T10,
        Self::T11,
        Self::T12,
        Self::T13,
        Self::T14,
        Self::T15,
        Self::T16,
    ];

    /// The text of the clause.
    #[must_use]
    pub const fn text(self) -> &'static str {
        match self {
            Self::T1 => {
                "the version is 0 after initialize, rises by exactly one with each commit, never falls, and is never used twice"
            }
            Self::T2 => "a commit happens whole or not at all, also when the client crashes",
            Self::T3 => {
                "a conflict is a stale token, an insert of a row that exists, an update or removal of one that does not, and changes nothing"
            }
            Self::T4 => "nothing else is a conflict, and a conflict is never an error",
            Self::T5 => {
                "an unknown outcome says so; a commit sent again is answered by its id; one's own success is never called a conflict"
            }
            Self::T6 => {
                "a read is atomic and as recent as promised, also while commits flow; with a barrier it is linearizable"
            }
            Self::T7 => "a heartbeat changes neither version, token nor rows",
            Self::T8 => {
                "a heartbeat creates no row, one without a row is an orphan, and a commit never moves a heartbeat back"
            }
            Self::T9 => "clusters that share a store are isolated, whatever their names",
            Self::T10 => {
                "every field survives the round trip, and so do fields that this build does not know"
            }
            Self::T11 => {
                "5,000 rows work unless limits says less; exceeding a limit is an error before anything is sent"
            }
            Self::T12 => {
                "an undecodable row is returned as such; no version row is not initialized, never empty; rows without one are damaged"
            }
            Self::T13 => {
                "unavailable never looks empty, every operation ends, and works again when the store is back"
            }
            Self::T14 => "dropping a future leaves one of the two legal states and a usable client",
            Self::T15 => "secrets never appear in errors, logs or debug output",
            Self::T16 => {
                "a table wiped, re-created or rolled back under a running client is reported as such, and no commit lands on it"
            }
        }
    }
}

impl fmt::Display for Clause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&format!("{self:?}"))
    }
}

/// A text that names no clause.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not a clause: write T1 to T16")]
pub struct ParseClauseError(String);

impl FromStr for Clause {
    type Err = ParseClauseError;
    fn from_str(text: &str) -> Result<Self, ParseClauseError> {
        let found = Self::ALL
            .into_iter()
            .find(|c| c.to_string().eq_ignore_ascii_case(text));
        found.ok_or_else(|| ParseClauseError(text.chars().take(20).collect()))
    }
}
