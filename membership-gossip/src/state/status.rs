//! The states of a member and their order (specification, member states).

use std::fmt;

use serde::{Deserialize, Serialize};

/// How far a member is in its life. A member only moves forward in this order, and a merge takes the
/// one that is furthest.
///
/// Whether a member can be reached is no status: it is a flag beside it, which comes and goes.
///
/// ```
/// use membership_gossip::state::MemberStatus;
/// assert!(MemberStatus::Joining < MemberStatus::Up && MemberStatus::Up < MemberStatus::Removed);
/// assert!(!MemberStatus::Down.may_become(MemberStatus::Up));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum MemberStatus {
    /// A member took it in; the leader has not moved it up yet.
    Joining,
    /// The leader let it begin while agreement is blocked by a member that nobody reaches. Not in the
    /// specification; off in the preset `akka`.
    WeaklyUp,
    /// In service.
    Up,
    /// Asked to leave.
    Leaving,
    /// All know that it leaves; it hands over what it owns.
    Exiting,
    /// Ended against its will, by an operator or a resolver. No longer part of any decision.
    Down,
    /// No member any more: only a tombstone is left. Final.
    Removed,
}

impl MemberStatus {
    /// All of them in their order.
    pub const ALL: [Self; 7] = [
        Self::Joining,
        Self::WeaklyUp,
        Self::Up,
        Self::Leaving,
        Self::Exiting,
        Self::Down,
        Self::Removed,
    ];

    /// The name in logs, events and views.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Joining => "joining",
            Self::WeaklyUp => "weakly-up",
            Self::Up => "up",
            Self::Leaving => "leaving",
            Self::Exiting => "exiting",
            Self::Down => "down",
            Self::Removed => "removed",
        }
    }

    /// Whether it must have seen a state before that state counts as agreed, and may lead: up or
    /// leaving.
    #[must_use]
    pub const fn counts_for_convergence(self) -> bool {
        matches!(self, Self::Up | Self::Leaving)
    }

    /// Whether it has joined and is not on its way out for good: joining, weakly up, up or leaving.
    /// Its flags count; see [`Unreachable`](crate::state::Unreachable).
    #[must_use]
    pub const fn is_present(self) -> bool {
        matches!(
            self,
            Self::Joining | Self::WeaklyUp | Self::Up | Self::Leaving
        )
    }

    /// Whether the life of a member has this step.
    #[must_use]
    pub fn may_become(self, next: Self) -> bool {
        match next {
            Self::Joining => false,
            Self::WeaklyUp => self == Self::Joining,
            Self::Up => matches!(self, Self::Joining | Self::WeaklyUp),
            Self::Leaving => matches!(self, Self::Joining | Self::WeaklyUp | Self::Up),
            Self::Exiting => self == Self::Leaving,
            Self::Down => self < Self::Down,
            Self::Removed => matches!(self, Self::Exiting | Self::Down),
        }
    }
}

impl fmt::Display for MemberStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_step_is_forward() {
        for from in MemberStatus::ALL {
            for to in MemberStatus::ALL {
                assert!(!from.may_become(to) || from < to, "{from} -> {to}");
            }
        }
        assert!(
            MemberStatus::ALL
                .iter()
                .all(|to| !MemberStatus::Removed.may_become(*to))
        );
    }
}
