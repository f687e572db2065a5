//! Who is connected indirectly: reached by some of those that speak with each other, and not by
//! others.

use std::collections::{BTreeMap, BTreeSet};

use membership_core::SiloAddress;

/// Those who flag and are flagged, and both ends of a flag about a member that has seen the current
/// state: somebody reaches it.
///
/// An observer that all other observers flag, two at least, is not believed: it is the one that does
/// not hear, and those that it flags are well (the best-known implementation downs them, too).
#[must_use]
pub fn indirectly_connected(
    flags: &[(SiloAddress, SiloAddress)],
    has_seen: impl Fn(&SiloAddress) -> bool,
) -> BTreeSet<SiloAddress> {
    let flags = believed(flags);
    let observers: BTreeSet<_> = flags.iter().map(|(observer, _)| *observer).collect();
    let subjects: BTreeSet<_> = flags.iter().map(|(_, subject)| *subject).collect();
    let mut found: BTreeSet<SiloAddress> = &observers & &subjects;
    for (observer, subject) in &flags {
        if has_seen(subject) {
            found.extend([*observer, *subject]);
        }
    }
    found
}

/// The flags without those of observers that all other observers flag.
fn believed(flags: &[(SiloAddress, SiloAddress)]) -> Vec<(SiloAddress, SiloAddress)> {
    let mut accusers = BTreeMap::<SiloAddress, BTreeSet<SiloAddress>>::new();
    for (observer, subject) in flags {
        accusers.entry(*subject).or_default().insert(*observer);
    }
    let observers: BTreeSet<_> = flags.iter().map(|(observer, _)| *observer).collect();
    let is_believed = |observer: &SiloAddress| {
        let others = observers.len() - 1;
        let against = accusers.get(observer).map_or(0, BTreeSet::len);
        others < 2 || against < others
    };
    flags
        .iter()
        .filter(|(observer, _)| is_believed(observer))
        .copied()
        .collect()
}
