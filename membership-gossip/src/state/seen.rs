//! Who is known to have had the current state (specification, gossip convergence: the seen set).

use std::sync::Arc;

use membership_core::SiloAddress;
use xxhash_rust::xxh3::xxh3_64;

use super::State;

/// The addresses of all members in order: what the bits of a [`Seen`] stand for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Roster(Arc<[SiloAddress]>);

impl Roster {
    /// The roster of a state.
    #[must_use]
    pub fn of(state: &State) -> Self {
        Self(state.members().iter().map(|m| m.address()).collect())
    }

    /// The addresses, in order.
    #[must_use]
    pub fn addresses(&self) -> &[SiloAddress] {
        &self.0
    }

    /// The place of a member.
    #[must_use]
    pub fn place(&self, address: &SiloAddress) -> Option<usize> {
        self.0.binary_search(address).ok()
    }
}

/// One bit for each member of one state: whether that member is known to have had this very state.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Seen {
    bits: Vec<u8>,
}

impl Seen {
    /// A set from the bits of a message: the lowest bit of the first byte is the first member. Bits
    /// beyond the members do not count.
    #[must_use]
    pub fn from_bits(mut bits: Vec<u8>, members: usize) -> Self {
        bits.truncate(members.div_ceil(8));
        if !members.is_multiple_of(8)
            && bits.len() == members.div_ceil(8)
            && let Some(last) = bits.last_mut()
        {
            *last &= (1 << (members % 8)) - 1;
        }
        let used = bits.iter().rposition(|byte| *byte != 0);
        bits.truncate(used.map_or(0, |last| last + 1));
        Self { bits }
    }

    /// The bits, without zeros at the end.
    #[must_use]
    pub fn bits(&self) -> &[u8] {
        &self.bits
    }

    /// Whether the member at this place is in the set.
    #[must_use]
    pub fn contains(&self, place: usize) -> bool {
        let byte = self.bits.get(place / 8).copied().unwrap_or(0);
        byte & (1 << (place % 8)) != 0
    }

    /// Adds the member at this place; whether it was missing.
    pub fn insert(&mut self, place: usize) -> bool {
        let missing = !self.contains(place);
        if self.bits.len() <= place / 8 {
            self.bits.resize(place / 8 + 1, 0);
        }
        if let Some(byte) = self.bits.get_mut(place / 8) {
            *byte |= 1 << (place % 8);
        }
        missing
    }

    /// Adds all of another set; whether one was missing.
    pub fn merge(&mut self, other: &Self) -> bool {
        if self.bits.len() < other.bits.len() {
            self.bits.resize(other.bits.len(), 0);
        }
        let mut changed = false;
        for (mine, theirs) in self.bits.iter_mut().zip(&other.bits) {
            changed |= theirs & !*mine != 0;
            *mine |= theirs;
        }
        changed
    }

    /// Number of members in the set.
    #[must_use]
    pub fn len(&self) -> usize {
        self.bits.iter().map(|b| b.count_ones() as usize).sum()
    }

    /// Whether nobody is.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.bits.is_empty()
    }

    /// A fixed hash of the set. Sets of one state with the same hash are the same.
    #[must_use]
    pub fn digest(&self) -> u64 {
        xxh3_64(&self.bits)
    }
}
