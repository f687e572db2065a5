//! The merge of two states: their least upper bound.
//!
//! For one incarnation a state says nothing, a value, or *gone*, in this order. The merge takes the
//! furthest for each: what one side says nothing of is kept, what one side calls gone is gone.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::sync::Arc;

use membership_core::SiloAddress;

use super::{Member, State};

/// The new content of one endpoint; none: no member.
type Change = (SocketAddr, Option<Arc<Member>>);

impl State {
    /// Merges another state into this one; whether that changed this one. Associative, commutative
    /// and idempotent.
    pub fn merge(&mut self, other: &Self) -> bool {
        self.join(other, true)
    }

    /// Merges; `whole`: what the other lacks below its floor is gone. A part of a state lacks more
    /// than that.
    pub(super) fn join(&mut self, other: &Self, whole: bool) -> bool {
        let before = self.version();
        let changes = self.member_changes(other, whole);
        if whole {
            self.tombstones.raise_floor(other.tombstones.floor());
        }
        for (address, stone) in other.tombstones.iter() {
            self.tombstones.add(address.endpoint(), *stone);
        }
        for (endpoint, member) in changes {
            match member {
                Some(member) => self.members.put(member),
                None => drop(self.members.take(&endpoint)),
            }
        }
        for (observer, rows) in other.reachability.observers() {
            self.reachability.merge_of(observer, rows);
        }
        self.clock.merge(&other.clock);
        self.normalize();
        self.version() != before
    }

    fn member_changes(&self, other: &Self, whole: bool) -> Vec<Change> {
        let mut changes = Vec::new();
        let (mut mine, mut theirs) = (
            self.members.entries().peekable(),
            other.members.entries().peekable(),
        );
        // Both are sorted by endpoint.
        loop {
            let (left, right) = (mine.peek().copied(), theirs.peek().copied());
            let endpoint = match (left, right) {
                (None, None) => break,
                (Some((a, _)), None) => *a,
                (None, Some((b, _))) => *b,
                (Some((a, _)), Some((b, _))) => *a.min(b),
            };
            let left = left.filter(|(a, _)| **a == endpoint).map(|(_, m)| m);
            let right = right.filter(|(b, _)| **b == endpoint).map(|(_, m)| m);
            if left.is_some() {
                mine.next();
            }
            if right.is_some() {
                theirs.next();
            }
            if let Some(change) = self.change_of(other, whole, left, right) {
                changes.push((endpoint, change));
            }
        }
        changes
    }

    /// What becomes of one endpoint; none: it stays as it is.
    #[allow(clippy::option_option, reason = "no change, no member, a member")]
    fn change_of(
        &self,
        other: &Self,
        whole: bool,
        mine: Option<&Arc<Member>>,
        theirs: Option<&Arc<Member>>,
    ) -> Option<Option<Arc<Member>>> {
        if let (Some(mine), Some(theirs)) = (mine, theirs)
            && mine.address() == theirs.address()
        {
            let further = !Arc::ptr_eq(mine, theirs) && theirs.is_further_than(mine);
            return further.then(|| Some(Arc::clone(theirs)));
        }
        if let Some(theirs) = theirs.filter(|m| !self.is_gone(&m.address())) {
            return Some(Some(Arc::clone(theirs)));
        }
        let mine = mine?;
        let gone = other.is_gone_by(&mine.address(), whole);
        gone.then_some(None)
    }

    fn is_gone_by(&self, address: &SiloAddress, whole: bool) -> bool {
        if whole {
            return self.is_gone(address);
        }
        let newer = |m: &Arc<Member>| m.address().epoch() > address.epoch();
        self.members.at(&address.endpoint()).is_some_and(newer)
            || self
                .tombstones
                .get(&address.endpoint())
                .is_some_and(|stone| stone.epoch >= address.epoch())
    }

    /// Drops what is implied: tombstones below a newer member, members below a tombstone, flags of
    /// and about those that are gone, and counters of those that are gone and wrote nothing that is
    /// left.
    pub(super) fn normalize(&mut self) {
        let superseded: Vec<SocketAddr> = self
            .tombstones
            .iter()
            .map(|(address, _)| address)
            .filter(|address| self.is_superseded(address))
            .map(|address| address.endpoint())
            .collect();
        for endpoint in superseded {
            self.tombstones.take(&endpoint);
        }
        let mut reachability = std::mem::take(&mut self.reachability);
        reachability.retain(|address| self.is_gone(address));
        self.reachability = reachability;
        self.forget_counters();
    }

    /// Forgets counters and flags of those that are no members and are not gone: no state of this build
    /// has any, and they would be kept for ever. For a whole state.
    pub(crate) fn forget_strangers(&mut self, origins: impl IntoIterator<Item = SiloAddress>) {
        let strangers = origins.into_iter().filter(|o| self.status(o).is_none());
        let strangers: BTreeSet<_> = strangers.collect();
        for stranger in &strangers {
            self.clock.forget(stranger);
        }
        if !strangers.is_empty() {
            self.reachability.retain(|one| strangers.contains(one));
        }
    }

    fn is_superseded(&self, address: &SiloAddress) -> bool {
        self.members
            .at(&address.endpoint())
            .is_some_and(|m| m.address().epoch() > address.epoch())
    }

    fn forget_counters(&mut self) {
        let mut idle: BTreeSet<SiloAddress> = self
            .clock
            .iter()
            .map(|(origin, _)| *origin)
            .filter(|origin| self.is_gone(origin))
            .collect();
        if idle.is_empty() {
            return;
        }
        for member in self.members.iter() {
            idle.remove(&member.stamp().origin);
        }
        for (_, stone) in self.tombstones.iter() {
            idle.remove(&stone.stamp.origin);
        }
        for origin in idle {
            self.clock.forget(&origin);
        }
    }
}
