//! What a side tells the arbiter when it asks for the lease.

use std::collections::BTreeSet;
use std::sync::Arc;

use membership_core::{FoundingId, SiloAddress};

use crate::state::{MemberStatus, State};

/// A side's claim to go on: if it is granted, exactly those are downed that it names.
///
/// An arbiter that gives a plain lease needs only [`by`](Self::by). One that remembers what it granted
/// can tell a side that follows an earlier decision from one on the other end of that split, without a
/// clock: the former [knows](Self::knows_gone) that those are gone who were downed.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Claim {
    /// The leader of the side.
    pub by: SiloAddress,
    /// The founding of the cluster.
    pub founding: Option<FoundingId>,
    /// Whom the side downs if the claim is granted.
    pub down: BTreeSet<SiloAddress>,
    state: Arc<State>,
}

impl Claim {
    /// A claim of a member with this state.
    #[must_use]
    pub const fn new(
        by: SiloAddress,
        founding: Option<FoundingId>,
        down: BTreeSet<SiloAddress>,
        state: Arc<State>,
    ) -> Self {
        Self {
            by,
            founding,
            down,
            state,
        }
    }

    /// Whether this side knows that a member is down or gone.
    #[must_use]
    pub fn knows_gone(&self, member: &SiloAddress) -> bool {
        let status = self.state.status(member);
        matches!(status, Some(MemberStatus::Down | MemberStatus::Removed))
    }

    /// The members that go on if the claim is granted.
    #[must_use]
    pub fn side(&self) -> BTreeSet<SiloAddress> {
        let members = self.state.members().iter();
        let present = members.filter(|member| member.status() < MemberStatus::Down);
        let present = present.map(|member| member.address());
        present
            .filter(|member| !self.down.contains(member))
            .collect()
    }
}
