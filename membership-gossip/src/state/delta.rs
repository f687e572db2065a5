//! What one state lacks of another: what was written since a vector clock.

use std::sync::Arc;

use membership_core::SiloAddress;

use super::{Member, ObserverRows, Stamp, State, Tombstone, VectorClock, Version};

/// What a peer has, as far as a delta for it depends on that: its version, its clock and its floor.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Base {
    /// The version of the peer's state.
    pub version: Version,
    /// Its vector clock.
    pub clock: Arc<VectorClock>,
    /// The floor of its tombstones.
    pub floor: u64,
}

/// The part of a state that another one lacks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Delta {
    /// The version of the state that it completes. A receiver that never had it must not apply the
    /// delta: it would believe to have changes that it has not.
    pub base: Version,
    /// The version of the state that it was made from.
    pub version: Version,
    /// Whether that state contains all changes of `base`. Then it is known what it contains.
    pub contains_base: bool,
    /// The content, as a state of which the rest is missing.
    part: State,
}

impl State {
    /// What this state has and its receiver lacks.
    #[must_use]
    pub fn base(&self) -> Base {
        Base {
            version: self.version(),
            clock: Arc::new(self.clock.clone()),
            floor: self.tombstones.floor(),
        }
    }

    /// What was written since `base`. None where the floors differ: then what is missing has a
    /// meaning, and only the whole state says it.
    #[must_use]
    pub fn delta_since(&self, base: &Base) -> Option<Delta> {
        if base.floor != self.tombstones.floor() {
            return None;
        }
        let mut part = Self::default();
        let lacks = |stamp: Stamp| !base.clock.contains(&stamp);
        for member in self.members.iter().filter(|m| lacks(m.stamp())) {
            part.members.put(Arc::clone(member));
        }
        for (address, stone) in self.tombstones.iter().filter(|(_, s)| lacks(s.stamp)) {
            part.tombstones.add(address.endpoint(), *stone);
        }
        for (observer, rows) in self.reachability.observers() {
            if rows.version() > base.clock.get(observer) {
                part.reachability.set(*observer, (**rows).clone());
            }
        }
        for (origin, counter) in self.clock.iter() {
            if counter > base.clock.get(origin) {
                part.clock.raise(*origin, counter);
            }
        }
        let contains_base = base.clock.iter().all(|(o, n)| n <= self.clock.get(o));
        Some(Delta {
            base: base.version,
            version: self.version(),
            contains_base,
            part,
        })
    }

    /// Applies a delta whose base this state has been; whether that changed this state.
    pub fn apply(&mut self, delta: &Delta) -> bool {
        self.join(&delta.part, false)
    }

    /// Those whose counters and flags it has, and who is flagged.
    pub(crate) fn named(&self) -> Vec<SiloAddress> {
        let origins = self.clock.iter().map(|(origin, _)| *origin);
        let rows = self.reachability.observers();
        let flags = rows.flat_map(|(o, rows)| rows.rows.keys().chain([o]).copied());
        origins.chain(flags).collect()
    }
}

impl Delta {
    /// Number of members, tombstones and observers that it carries.
    #[must_use]
    pub fn len(&self) -> usize {
        let observers = self.part.reachability.observers().count();
        self.part.members.len() + self.part.tombstones.len() + observers
    }

    /// Whether it carries nothing but counters.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The changed members.
    pub fn members(&self) -> impl Iterator<Item = &Arc<Member>> {
        self.part.members.iter()
    }

    /// The new tombstones.
    pub fn tombstones(&self) -> impl Iterator<Item = (SiloAddress, &Tombstone)> {
        self.part.tombstones.iter()
    }

    /// The changed flags.
    pub fn observers(&self) -> impl Iterator<Item = (&SiloAddress, &Arc<ObserverRows>)> {
        self.part.reachability.observers()
    }

    pub(crate) const fn part(&self) -> &State {
        &self.part
    }

    pub(crate) const fn from_parts(
        base: Version,
        version: Version,
        contains_base: bool,
        part: State,
    ) -> Self {
        Self {
            base,
            version,
            contains_base,
            part,
        }
    }
}
