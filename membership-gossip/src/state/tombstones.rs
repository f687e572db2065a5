//! What is left of members that were removed, so that no message brings them back.
//!
//! Epochs rise per endpoint, so one tombstone per endpoint stands for all its removed incarnations.
//! Their number is bounded by the *floor*: every incarnation with an epoch up to it that is not a
//! member is gone, too. No clock is read: a tombstone never ends by time.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use membership_core::SiloAddress;
use xxhash_rust::xxh3::xxh3_128;

use super::member::{Stamp, address_bytes};

/// The newest removed incarnation of one endpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Tombstone {
    /// Its epoch. Older incarnations are gone as well.
    pub epoch: u64,
    /// The change that removed it.
    pub stamp: Stamp,
}

/// All tombstones and the floor.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tombstones {
    floor: u64,
    removed: BTreeMap<SocketAddr, Tombstone>,
    sum: u128,
}

fn hash(endpoint: SocketAddr, stone: &Tombstone) -> u128 {
    let mut bytes = Vec::with_capacity(80);
    address_bytes(&SiloAddress::at(endpoint, stone.epoch), &mut bytes);
    address_bytes(&stone.stamp.origin, &mut bytes);
    bytes.extend(stone.stamp.counter.to_le_bytes());
    bytes.push(b't');
    xxh3_128(&bytes)
}

impl Tombstones {
    /// Incarnations up to this epoch that are no members are gone.
    #[must_use]
    pub const fn floor(&self) -> u64 {
        self.floor
    }

    /// Number of tombstones.
    #[must_use]
    pub fn len(&self) -> usize {
        self.removed.len()
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.removed.is_empty()
    }

    /// All tombstones: the newest removed incarnation of each endpoint.
    pub fn iter(&self) -> impl Iterator<Item = (SiloAddress, &Tombstone)> {
        self.removed
            .iter()
            .map(|(endpoint, stone)| (SiloAddress::at(*endpoint, stone.epoch), stone))
    }

    /// The tombstone of an endpoint.
    #[must_use]
    pub fn get(&self, endpoint: &SocketAddr) -> Option<&Tombstone> {
        self.removed.get(endpoint)
    }

    /// Whether this incarnation was removed. Only for one that is no member: members may have epochs
    /// up to the floor.
    #[must_use]
    pub fn covers(&self, address: &SiloAddress) -> bool {
        let stone = self.removed.get(&address.endpoint());
        address.epoch() <= self.floor || stone.is_some_and(|s| s.epoch >= address.epoch())
    }

    /// Adds a tombstone unless a newer one or the floor stands for it.
    pub(crate) fn add(&mut self, endpoint: SocketAddr, stone: Tombstone) {
        let known = self.removed.get(&endpoint);
        if stone.epoch <= self.floor || known.is_some_and(|s| *s >= stone) {
            return;
        }
        self.take(&endpoint);
        self.sum = self.sum.wrapping_add(hash(endpoint, &stone));
        self.removed.insert(endpoint, stone);
    }

    /// Takes a tombstone away, because a newer member of the endpoint stands for it.
    pub(crate) fn take(&mut self, endpoint: &SocketAddr) -> Option<Tombstone> {
        let stone = self.removed.remove(endpoint)?;
        self.sum = self.sum.wrapping_sub(hash(*endpoint, &stone));
        Some(stone)
    }

    /// Raises the floor to at least `floor`; whether that changed anything.
    pub(crate) fn raise_floor(&mut self, floor: u64) -> bool {
        if floor <= self.floor {
            return false;
        }
        self.floor = floor;
        let below: Vec<SocketAddr> = self
            .removed
            .iter()
            .filter(|(_, stone)| stone.epoch <= floor)
            .map(|(endpoint, _)| *endpoint)
            .collect();
        for endpoint in below {
            self.take(&endpoint);
        }
        true
    }

    /// The floor that leaves at most half of `most` tombstones; none while there are at most `most`.
    #[must_use]
    pub(crate) fn next_floor(&self, most: usize) -> Option<u64> {
        if self.removed.len() <= most {
            return None;
        }
        let mut epochs: Vec<u64> = self.removed.values().map(|stone| stone.epoch).collect();
        epochs.sort_unstable();
        epochs.get(self.removed.len() - most / 2 - 1).copied()
    }

    pub(crate) fn sum(&self) -> u128 {
        self.sum.wrapping_add(xxh3_128(&self.floor.to_le_bytes()))
    }
}
