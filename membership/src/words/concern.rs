//! How much a row needs a person.

use std::time::Duration;

use membership_core::{CauseOfDeath, MembershipEntry, SharedSettings, SiloStatus, WallTime};

/// How much a row needs a person; the worst is the least. `membership status` and the page sort by it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Concern {
    /// Alive, and others have voted against it lately.
    Suspected,
    /// Declared dead by the others, or by a person, within the last hour.
    Lost,
    /// Alive, and its heartbeat is old.
    Stale,
    /// It is about to become Active, or to leave.
    Changing,
    /// Active.
    Fine,
    /// It left, a newer process took its address, or its death is old.
    Gone,
}

/// For how long a death stands out.
pub const LATELY: Duration = Duration::from_secs(3600);

impl Concern {
    /// That of a row. `settings` are those that silos follow, and `is_stale` says whether its
    /// heartbeat is old, as far as that is known. Compares clocks: a hint for people.
    #[must_use]
    pub fn of(
        entry: &MembershipEntry,
        settings: &SharedSettings,
        is_stale: bool,
        now: WallTime,
    ) -> Self {
        if let (SiloStatus::Dead, Some(death)) = (entry.status, &entry.death) {
            let by_others = matches!(
                death.cause,
                CauseOfDeath::Voted | CauseOfDeath::Stuck | CauseOfDeath::Evicted { .. }
            );
            return match by_others && now.since(death.at) < LATELY {
                true => Self::Lost,
                false => Self::Gone,
            };
        }
        let fresh = |at| now.since(at) <= settings.death_vote_expiration;
        match entry.status {
            SiloStatus::Dead => Self::Gone,
            _ if entry.suspicions.iter().any(|vote| fresh(vote.at)) => Self::Suspected,
            _ if is_stale => Self::Stale,
            SiloStatus::Active => Self::Fine,
            _ => Self::Changing,
        }
    }

    /// One word.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Suspected => "suspected",
            Self::Lost => "lost",
            Self::Stale => "stale",
            Self::Changing => "changing",
            Self::Fine => "fine",
            Self::Gone => "gone",
        }
    }
}
