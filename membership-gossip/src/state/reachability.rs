//! Who does not reach whom: the flags that each observer keeps (specification, failure detector).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use membership_core::SiloAddress;
use serde::{Deserialize, Serialize};
use xxhash_rust::xxh3::xxh3_128;

use super::member::address_bytes;

/// What an observer says of a member that it does not reach.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Flag {
    /// It does not answer. The observer may take this back.
    Unreachable,
    /// It is quarantined: what had to arrive there did not. Never taken back.
    Terminated,
}

/// All flags of one observer. Only the observer changes them, each time with its next counter as the
/// version, so that the higher version is the newer one everywhere.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ObserverRows {
    pub(crate) version: u64,
    pub(crate) rows: BTreeMap<SiloAddress, Flag>,
}

impl ObserverRows {
    /// The observer's counter when it last changed them.
    #[must_use]
    pub const fn version(&self) -> u64 {
        self.version
    }

    /// The flagged members.
    #[must_use]
    pub const fn rows(&self) -> &BTreeMap<SiloAddress, Flag> {
        &self.rows
    }

    /// The newer of both. Two different sets with one version are not made by this build; their
    /// union keeps a merge independent of the order.
    fn merge(&mut self, other: &Self) {
        if other.version > self.version {
            *self = other.clone();
        } else if other.version == self.version {
            for (subject, flag) in &other.rows {
                let mine = self.rows.entry(*subject).or_insert(*flag);
                *mine = (*mine).max(*flag);
            }
        }
    }

    pub(crate) fn hash(&self, observer: &SiloAddress) -> u128 {
        let mut bytes = Vec::with_capacity(48 + self.rows.len() * 32);
        address_bytes(observer, &mut bytes);
        bytes.extend(self.version.to_le_bytes());
        for (subject, flag) in &self.rows {
            address_bytes(subject, &mut bytes);
            bytes.push(*flag as u8);
        }
        bytes.push(b'r');
        xxh3_128(&bytes)
    }
}

/// The flags of all observers. Observers that have flagged nobody since they joined have no entry.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Reachability {
    observers: BTreeMap<SiloAddress, Arc<ObserverRows>>,
}

impl Reachability {
    /// All observers with their flags, also those that have taken all of them back.
    pub fn observers(&self) -> impl Iterator<Item = (&SiloAddress, &Arc<ObserverRows>)> {
        self.observers.iter()
    }

    /// The flags of one observer.
    #[must_use]
    pub fn of(&self, observer: &SiloAddress) -> Option<&Arc<ObserverRows>> {
        self.observers.get(observer)
    }

    /// The flag of one observer about one member.
    #[must_use]
    pub fn flag(&self, observer: &SiloAddress, subject: &SiloAddress) -> Option<Flag> {
        self.of(observer)?.rows.get(subject).copied()
    }

    /// All flags: observer, subject, flag.
    pub fn flags(&self) -> impl Iterator<Item = (SiloAddress, SiloAddress, Flag)> {
        let of = |(observer, rows): (&SiloAddress, &Arc<ObserverRows>)| {
            let (observer, rows) = (*observer, Arc::clone(rows));
            let rows: Vec<_> = rows.rows.iter().map(|(s, f)| (*s, *f)).collect();
            rows.into_iter().map(move |(s, f)| (observer, s, f))
        };
        self.observers.iter().flat_map(of)
    }

    pub(crate) fn set(&mut self, observer: SiloAddress, rows: ObserverRows) {
        self.observers.insert(observer, Arc::new(rows));
    }

    /// Takes the newer flags of an observer.
    pub(crate) fn merge_of(&mut self, observer: &SiloAddress, theirs: &Arc<ObserverRows>) {
        match self.observers.get_mut(observer) {
            None => drop(self.observers.insert(*observer, Arc::clone(theirs))),
            Some(mine) if Arc::ptr_eq(mine, theirs) || mine.version > theirs.version => {}
            Some(mine) if mine == theirs => {}
            Some(mine) => Arc::make_mut(mine).merge(theirs),
        }
    }

    /// Forgets observers and subjects that are gone.
    pub(crate) fn retain(&mut self, gone: impl Fn(&SiloAddress) -> bool) {
        self.observers.retain(|observer, _| !gone(observer));
        for rows in self.observers.values_mut() {
            if rows.rows.keys().any(&gone) {
                Arc::make_mut(rows).rows.retain(|subject, _| !gone(subject));
            }
        }
    }

    pub(crate) fn sum(&self) -> u128 {
        let hashes = self.observers.iter().map(|(o, rows)| rows.hash(o));
        hashes.fold(0, u128::wrapping_add)
    }

    /// The flagged members, by the flags of the observers that `counts` accepts.
    #[must_use]
    pub fn unreachable(&self, counts: impl Fn(&SiloAddress) -> bool) -> Unreachable {
        let mut by = BTreeMap::<SiloAddress, BTreeSet<SiloAddress>>::new();
        let mut terminated = BTreeSet::new();
        for (observer, rows) in self.observers.iter().filter(|(o, _)| counts(o)) {
            for (subject, flag) in &rows.rows {
                by.entry(*subject).or_default().insert(*observer);
                if *flag == Flag::Terminated {
                    terminated.insert(*subject);
                }
            }
        }
        Unreachable { by, terminated }
    }
}

/// The members that some observers do not reach. One observer suffices (specification, failure
/// detector); whose flags count is the choice of who asks.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Unreachable {
    by: BTreeMap<SiloAddress, BTreeSet<SiloAddress>>,
    terminated: BTreeSet<SiloAddress>,
}

impl Unreachable {
    /// Whether somebody flags this member.
    #[must_use]
    pub fn contains(&self, member: &SiloAddress) -> bool {
        self.by.contains_key(member)
    }

    /// Whether nobody is flagged.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.by.is_empty()
    }

    /// Whether some observer has quarantined this member.
    #[must_use]
    pub fn is_terminated(&self, member: &SiloAddress) -> bool {
        self.terminated.contains(member)
    }

    /// The flagged members, each with its observers.
    pub fn iter(&self) -> impl Iterator<Item = (&SiloAddress, &BTreeSet<SiloAddress>)> {
        self.by.iter()
    }

    /// The flagged members.
    #[must_use]
    pub fn subjects(&self) -> BTreeSet<SiloAddress> {
        self.by.keys().copied().collect()
    }
}
