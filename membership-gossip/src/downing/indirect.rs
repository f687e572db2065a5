//! Who is connected indirectly: reached by some of those that speak with each other, and not by
//! others.

use std::collections::{BTreeMap, BTreeSet};

use membership_core::SiloAddress;

/// Both ends of each flag about a member that has seen the current state: somebody reaches it. A flag
/// changes the state, so whoever is flagged because nothing reaches it cannot have seen that.
///
/// Of a member that several flag only that member is taken: it comes and goes, and those who say so are
/// well. Where two groups do not reach each other, both are flagged.
///
/// The best-known implementation also takes everybody who flags and is flagged. After a split that
/// finds those on the other side whose flags are old: they are counted as reached, and both sides go
/// on.
///
/// An observer that all other observers flag, two at least, is not believed: it is the one that does
/// not hear, and those that it flags are well (the best-known implementation downs them, too).
#[must_use]
pub fn indirectly_connected(
    flags: &[(SiloAddress, SiloAddress)],
    has_seen: impl Fn(&SiloAddress) -> bool,
) -> BTreeSet<SiloAddress> {
    let believed = believed(flags);
    let accusers = |of: &SiloAddress| believed.iter().filter(|(_, s)| s == of).count();
    believed
        .iter()
        .filter(|(_, subject)| has_seen(subject))
        .flat_map(|(observer, subject)| {
            let alone = accusers(subject) < 2;
            alone.then_some(*observer).into_iter().chain([*subject])
        })
        .collect()
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
