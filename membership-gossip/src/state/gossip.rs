//! A state together with those who are known to have had it: what members send each other.
//!
//! The pair is a semilattice, too: the merge of states is the new state, and its seen set is that of
//! the sides whose state it is.

use std::sync::Arc;

use membership_core::SiloAddress;

use super::{Delta, Edit, Roster, Seen, State, Version};

/// A state, and who has seen it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Gossip {
    state: Arc<State>,
    version: Version,
    roster: Roster,
    seen: Seen,
}

/// What a merge found and did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Merged {
    /// Whether the state changed.
    pub changed: bool,
    /// Whether the state, or who has seen it, changed.
    pub news: bool,
    /// Whether the other side lacks something that this one has, or has not heard of somebody who
    /// has seen it.
    pub they_lack: bool,
}

impl Gossip {
    /// A state that nobody is known to have seen.
    #[must_use]
    pub fn new(state: State) -> Self {
        let (version, roster) = (state.version(), Roster::of(&state));
        Self {
            state: Arc::new(state),
            version,
            roster,
            seen: Seen::default(),
        }
    }

    /// A state that those with these bits have seen.
    #[must_use]
    pub fn with_seen(state: State, bits: Vec<u8>) -> Self {
        let mut gossip = Self::new(state);
        gossip.seen = Seen::from_bits(bits, gossip.roster.addresses().len());
        gossip
    }

    /// The state.
    #[must_use]
    pub const fn state(&self) -> &Arc<State> {
        &self.state
    }

    /// The hash of the state.
    #[must_use]
    pub const fn version(&self) -> Version {
        self.version
    }

    /// The members in order.
    #[must_use]
    pub const fn roster(&self) -> &Roster {
        &self.roster
    }

    /// Who has seen the state.
    #[must_use]
    pub const fn seen(&self) -> &Seen {
        &self.seen
    }

    /// Whether a member is known to have seen the state.
    #[must_use]
    pub fn has_seen(&self, member: &SiloAddress) -> bool {
        let place = self.roster.place(member);
        place.is_some_and(|place| self.seen.contains(place))
    }

    /// Those who have seen the state.
    pub fn seen_by(&self) -> impl Iterator<Item = &SiloAddress> {
        let all = self.roster.addresses().iter().enumerate();
        all.filter(|(place, _)| self.seen.contains(*place))
            .map(|(_, address)| address)
    }

    /// Records that a member has seen the state; whether that is news.
    pub fn mark_seen(&mut self, member: &SiloAddress) -> bool {
        let place = self.roster.place(member);
        place.is_some_and(|place| self.seen.insert(place))
    }

    /// Makes changes as `me`; whether anything changed. Then only `me` has seen the state.
    pub fn edit<T>(&mut self, me: SiloAddress, changes: impl FnOnce(&mut Edit<'_>) -> T) -> bool {
        let changed = Arc::make_mut(&mut self.state).edit(me, changes);
        if changed {
            self.moved();
            self.mark_seen(&me);
        }
        changed
    }

    fn moved(&mut self) {
        self.version = self.state.version();
        self.roster = Roster::of(&self.state);
        self.seen = Seen::default();
    }

    /// Merges another state with those who have seen it.
    pub fn merge(&mut self, other: &Self) -> Merged {
        let changed =
            self.version != other.version && Arc::make_mut(&mut self.state).merge(&other.state);
        if changed {
            self.moved();
        }
        self.learn_seen(changed, other.version, &other.seen)
    }

    /// Applies a delta whose base this state has been, with those who have seen the state that it
    /// was made from.
    pub fn apply(&mut self, delta: &Delta, seen: &Seen) -> Merged {
        let mut changed = self.version != delta.version;
        if changed {
            let state = Arc::make_mut(&mut self.state);
            state.apply(delta);
            state.forget_strangers(delta.part().named());
            changed = state.version() != self.version;
        }
        if changed {
            self.moved();
        }
        self.learn_seen(changed, delta.version, seen)
    }

    /// Takes over who has seen `version`, if that is the version of this state.
    pub fn learn_seen(&mut self, changed: bool, version: Version, seen: &Seen) -> Merged {
        if self.version != version {
            return Merged {
                changed,
                news: changed,
                they_lack: true,
            };
        }
        let news = self.seen.merge(seen);
        Merged {
            changed,
            news: changed || news,
            they_lack: self.seen != *seen,
        }
    }
}
