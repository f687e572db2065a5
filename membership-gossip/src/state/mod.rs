//! What members agree on: who is a member and how far, who does not reach whom, and who was removed.
//!
//! States form a join-semilattice: [`State::merge`] is associative, commutative and idempotent, so
//! the order and the number of the messages that carried a change do not matter (specification: the
//! state is a CRDT). The property tests of this module show that on random histories. Rules that
//! make it one:
//!
//! * Of two values of one member the one that is further wins, whole; see [`Member`].
//! * An endpoint has one incarnation, the newest. A removed one leaves a tombstone, which wins over
//!   the member. Nothing that a message lacks is taken as removed.
//! * Each observer alone changes its flags, with a rising version; the higher version wins, whole.
//! * Counters of the vector clock only rise.

mod clock;
mod delta;
mod edit;
mod gossip;
mod member;
mod members;
mod merge;
mod reachability;
mod seen;
mod status;
#[cfg(test)]
mod tests;
mod tombstones;
pub(crate) mod wire;

use std::fmt;
use std::net::SocketAddr;

use membership_core::SiloAddress;

pub use clock::{Causality, VectorClock};
pub use delta::{Base, Delta};
pub use edit::Edit;
pub use gossip::{Gossip, Merged};
pub use member::{DEFAULT_DATA_CENTRE, Member, Profile, Stamp};
pub use members::Members;
pub use reachability::{Flag, ObserverRows, Reachability, Unreachable};
pub use seen::{Roster, Seen};
pub use status::MemberStatus;
pub use tombstones::{Tombstone, Tombstones};

/// A fixed 128-bit hash of a whole state: states with the same version are the same state.
#[derive(
    Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize, serde::Deserialize,
)]
#[serde(from = "[u8; 16]", into = "[u8; 16]")]
pub struct Version(u128);

impl From<[u8; 16]> for Version {
    fn from(bytes: [u8; 16]) -> Self {
        Self(u128::from_be_bytes(bytes))
    }
}

impl From<Version> for [u8; 16] {
    fn from(version: Version) -> Self {
        version.0.to_be_bytes()
    }
}

impl Version {
    /// The version as a number.
    #[must_use]
    pub const fn get(self) -> u128 {
        self.0
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", self.0)
    }
}

impl fmt::Debug for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Version({self})")
    }
}

/// The state that members agree on.
///
/// ```
/// use membership_core::{InstanceId, SiloInfo};
/// use membership_gossip::state::{MemberStatus, Profile, State};
/// let (a, b) = ("10.0.0.1:7100@1".parse()?, "10.0.0.2:7100@1".parse()?);
/// let mut state = State::default();
/// state.edit(a, |edit| edit.admit(a, InstanceId::new(1), Profile::new(SiloInfo::default())));
/// let mut other = state.clone();
/// state.edit(a, |edit| edit.advance(&a, MemberStatus::Up, Some(1)));
/// other.edit(b, |edit| edit.admit(b, InstanceId::new(2), Profile::new(SiloInfo::default())));
/// let mut merged = state.clone();
/// merged.merge(&other);
/// other.merge(&state);
/// assert_eq!(merged, other);
/// # Ok::<(), membership_core::ParseSiloError>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct State {
    members: Members,
    tombstones: Tombstones,
    reachability: Reachability,
    clock: VectorClock,
}

impl State {
    /// The members.
    #[must_use]
    pub const fn members(&self) -> &Members {
        &self.members
    }

    /// Who was removed.
    #[must_use]
    pub const fn tombstones(&self) -> &Tombstones {
        &self.tombstones
    }

    /// Who flags whom.
    #[must_use]
    pub const fn reachability(&self) -> &Reachability {
        &self.reachability
    }

    /// Which changes it contains.
    #[must_use]
    pub const fn clock(&self) -> &VectorClock {
        &self.clock
    }

    /// A member by its whole address.
    #[must_use]
    pub fn member(&self, address: &SiloAddress) -> Option<&Member> {
        self.members.get(address)
    }

    /// The status of an incarnation: that of the member, [`MemberStatus::Removed`] if it is gone, or
    /// none if this state has not heard of it.
    #[must_use]
    pub fn status(&self, address: &SiloAddress) -> Option<MemberStatus> {
        match self.member(address) {
            Some(member) => Some(member.status()),
            None => self.is_gone(address).then_some(MemberStatus::Removed),
        }
    }

    /// Whether an incarnation is no member and will never be one: it was removed, or a newer one of
    /// its endpoint has joined.
    #[must_use]
    pub fn is_gone(&self, address: &SiloAddress) -> bool {
        match self.members.at(&address.endpoint()) {
            Some(member) if member.address() == *address => false,
            Some(member) if member.address().epoch() > address.epoch() => true,
            _ => self.tombstones.covers(address),
        }
    }

    /// The smallest epoch that a process at this endpoint may join with.
    #[must_use]
    pub fn least_epoch(&self, endpoint: &SocketAddr) -> u64 {
        let member = self.members.at(endpoint).map(|m| m.address().epoch());
        let stone = self.tombstones.get(endpoint).map(|stone| stone.epoch);
        let last = member.max(stone).unwrap_or(0);
        last.max(self.tombstones.floor()).saturating_add(1)
    }

    /// The hash of the whole state.
    #[must_use]
    pub fn version(&self) -> Version {
        let parts = [
            self.members.sum(),
            self.tombstones.sum(),
            self.reachability.sum(),
            self.clock.sum(),
        ];
        Version(parts.into_iter().fold(0, u128::wrapping_add))
    }

    /// How this state relates in time to one that another member has. Entries of the clocks about
    /// members that are gone here do not count: they disappear at different times.
    #[must_use]
    pub fn compare_clock(&self, theirs: &VectorClock) -> Causality {
        self.clock.compare(theirs, |origin| self.is_gone(origin))
    }
}
