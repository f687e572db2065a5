//! What a side tells the arbiter when it asks for the lease.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::sync::Arc;

use membership_core::{FoundingId, SiloAddress};

use crate::state::{MemberStatus, State};

/// A side's claim to go on: if it is granted, exactly those are downed that it names.
///
/// An arbiter that gives a plain lease needs only [`by`](Self::by). One that remembers what it granted
/// can tell a side that follows an earlier decision from one on the other end of that split, without a
/// clock: the former [knows](Self::knows_gone) that those are gone who were downed. See [`Grants`].
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Claim {
    /// The leader of the side.
    pub by: SiloAddress,
    /// The founding of the cluster.
    pub founding: Option<FoundingId>,
    /// Whom the side downs if the claim is granted.
    pub down: BTreeSet<SiloAddress>,
    /// Others of this side that have seen the state: their word is in it.
    seen: BTreeSet<SiloAddress>,
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
            seen: BTreeSet::new(),
            state,
        }
    }

    /// Adds others of this side that have seen its state.
    #[must_use]
    pub fn seen_by(mut self, members: impl IntoIterator<Item = SiloAddress>) -> Self {
        self.seen.extend(members);
        self
    }

    /// Whether this side knows that a member is down or gone.
    #[must_use]
    pub fn knows_gone(&self, member: &SiloAddress) -> bool {
        let status = self.state.status(member);
        matches!(status, Some(MemberStatus::Down | MemberStatus::Removed))
    }

    /// Whether a member is one in the state of this side.
    fn knows(&self, member: &SiloAddress) -> bool {
        self.state.members().contains(member)
    }

    /// Whether somebody of this side is up. Who joins the other end of a split never is.
    fn has_begun(&self) -> bool {
        let side = self.side();
        let mut members = self.state.members().iter();
        members.any(|m| m.serves() && side.contains(&m.address()))
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

/// What an arbiter answers to a claim.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Lease {
    /// The side goes on, and downs these, too: a former leader of it got the lease for downing them, and
    /// ended before others knew.
    Granted {
        /// None, for an arbiter that does not remember what it granted.
        also_down: BTreeSet<SiloAddress>,
    },
    /// Another side has the lease, or the arbiter could not be asked. The side ends.
    Refused {
        /// The side that has the lease: its members are not downed, also if they are reached again. None,
        /// for an arbiter that could not be asked or does not remember.
        goes_on: BTreeSet<SiloAddress>,
    },
}

impl Lease {
    /// Not granted, and nothing is known of another side.
    #[must_use]
    pub const fn refused() -> Self {
        Self::Refused {
            goes_on: BTreeSet::new(),
        }
    }

    /// Whether the side goes on.
    #[must_use]
    pub const fn is_granted(&self) -> bool {
        matches!(self, Self::Granted { .. })
    }
}

/// What an arbiter remembers of the claims that it granted for one founding: enough to give the lease to
/// one side of every split, without a clock.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Grants {
    /// Who was downed: of each endpoint the newest.
    pub downed: BTreeMap<SocketAddr, u64>,
    /// The side that got the lease last.
    pub side: BTreeSet<SiloAddress>,
}

impl Grants {
    /// Answers a claim, and remembers it if it follows those granted before: if everybody who was downed
    /// is gone in the state of the claiming side and somebody of it is up, or if somebody of the last side
    /// has seen that state: the leader itself may have joined since. Then it downs them now: the network
    /// may have healed before anybody but the former leader knew of the grant.
    #[must_use]
    pub fn answer(&mut self, claim: &Claim) -> Lease {
        let downed = self.downed.iter();
        let downed = downed.map(|(endpoint, epoch)| SiloAddress::at(*endpoint, *epoch));
        let also_down: BTreeSet<_> = downed.filter(|one| !claim.knows_gone(one)).collect();
        let has_seen = |member: &SiloAddress| *member == claim.by || claim.seen.contains(member);
        let is_of_the_last = self.side.iter().any(has_seen);
        let follows = also_down
            .iter()
            .all(|one| is_of_the_last && (claim.down.contains(one) || claim.knows(one)));
        // On the other end all may have been restarted: then those who were downed are gone there, too.
        let follows = follows && (self.side.is_empty() || is_of_the_last || claim.has_begun());
        // Its own incarnation, or one that it replaced, is not among them: it would not be gone.
        let own = self.downed.get(&claim.by.endpoint());
        if !follows || own.is_some_and(|epoch| *epoch >= claim.by.epoch()) {
            let goes_on = self.side.clone();
            return Lease::Refused { goes_on };
        }
        for downed in &claim.down {
            let epoch = self.downed.entry(downed.endpoint()).or_default();
            *epoch = downed.epoch().max(*epoch);
        }
        self.side = &claim.side() - &also_down;
        Lease::Granted { also_down }
    }
}
