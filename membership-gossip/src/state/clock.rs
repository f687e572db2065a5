//! The vector clock: how many changes of each member a state contains (specification, vector
//! clocks).

use std::collections::BTreeMap;

use membership_core::SiloAddress;
use xxhash_rust::xxh3::xxh3_128;

use super::member::{Stamp, address_bytes};

/// How two states relate in time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Causality {
    /// Both contain the same changes.
    Same,
    /// The first lacks changes of the second, and not the other way round.
    Before,
    /// The second lacks changes of the first, and not the other way round.
    After,
    /// Each lacks changes of the other.
    Concurrent,
}

/// For each member, how many of its changes a state contains.
///
/// A state with the counter `n` for a member contains all changes of that member up to the `n`th.
///
/// ```
/// use membership_gossip::state::{Causality, VectorClock};
/// let (a, b) = ("10.0.0.1:1@1".parse()?, "10.0.0.2:1@1".parse()?);
/// let (mut one, mut two) = (VectorClock::default(), VectorClock::default());
/// one.raise(a, 1);
/// assert_eq!(one.compare(&two, |_| false), Causality::After);
/// two.raise(b, 1);
/// assert_eq!(one.compare(&two, |_| false), Causality::Concurrent);
/// # Ok::<(), membership_core::ParseSiloError>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct VectorClock {
    counters: BTreeMap<SiloAddress, u64>,
    /// The sum of the hashes of all entries.
    sum: u128,
}

fn hash(origin: &SiloAddress, counter: u64) -> u128 {
    let mut bytes = Vec::with_capacity(40);
    address_bytes(origin, &mut bytes);
    bytes.extend(counter.to_le_bytes());
    bytes.push(b'c');
    xxh3_128(&bytes)
}

impl VectorClock {
    /// The counter of a member; 0 if the clock does not name it.
    #[must_use]
    pub fn get(&self, origin: &SiloAddress) -> u64 {
        self.counters.get(origin).copied().unwrap_or(0)
    }

    /// All members with their counters.
    pub fn iter(&self) -> impl Iterator<Item = (&SiloAddress, u64)> {
        self.counters.iter().map(|(origin, n)| (origin, *n))
    }

    /// Number of members that the clock names.
    #[must_use]
    pub fn len(&self) -> usize {
        self.counters.len()
    }

    /// Whether it names nobody.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.counters.is_empty()
    }

    /// Whether the change with this stamp is contained.
    #[must_use]
    pub fn contains(&self, stamp: &Stamp) -> bool {
        self.get(&stamp.origin) >= stamp.counter
    }

    /// Raises the counter of a member to at least `counter`.
    pub fn raise(&mut self, origin: SiloAddress, counter: u64) {
        let now = self.get(&origin);
        if counter > now {
            if now > 0 {
                self.sum = self.sum.wrapping_sub(hash(&origin, now));
            }
            self.sum = self.sum.wrapping_add(hash(&origin, counter));
            self.counters.insert(origin, counter);
        }
    }

    /// Raises every counter to at least that of `other`.
    pub fn merge(&mut self, other: &Self) {
        for (origin, counter) in other.iter() {
            self.raise(*origin, counter);
        }
    }

    /// Forgets a member.
    pub(crate) fn forget(&mut self, origin: &SiloAddress) {
        if let Some(n) = self.counters.remove(origin) {
            self.sum = self.sum.wrapping_sub(hash(origin, n));
        }
    }

    /// The sum of the hashes of all entries.
    pub(crate) const fn sum(&self) -> u128 {
        self.sum
    }

    /// Compares two clocks without the entries of those that are `gone`. Entries of removed members
    /// disappear at different times on different members, so that they say nothing about the order.
    #[must_use]
    pub fn compare(&self, other: &Self, gone: impl Fn(&SiloAddress) -> bool) -> Causality {
        let lacks = |this: &Self, that: &Self| {
            that.iter()
                .any(|(origin, n)| n > this.get(origin) && !gone(origin))
        };
        match (lacks(self, other), lacks(other, self)) {
            (false, false) => Causality::Same,
            (true, false) => Causality::Before,
            (false, true) => Causality::After,
            (true, true) => Causality::Concurrent,
        }
    }
}
