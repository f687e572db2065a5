//! Who is connected indirectly: reached by some of those that speak with each other, and not by
//! others.

use std::collections::{BTreeMap, BTreeSet};

use membership_core::SiloAddress;

/// Who is to blame for links that do not work between members that have both seen the current state:
/// there is a way from each to the other. A flag changes the state, so whoever is flagged because nothing
/// reaches it cannot have seen that.
///
/// * Of members that several flag those that most flag: they come and go, or are not heard, and those who
///   say so are well.
/// * If nobody is left whom several flag: those with the most such links. One that alone flags many others
///   does not hear; they are well, or somebody else would flag them, too.
/// * And so on without what those say, and what is said of them. Where nobody has more of it than another
///   one, as at the two ends of a link, or in two groups that do not reach each other, it is all of them.
///
/// The best-known implementation takes both ends of each link, and everybody who flags and is flagged. One
/// member that does not hear takes all with it that it flags. And after a split that finds those on the
/// other side whose flags are old: they are counted as reached, and both sides go on.
#[must_use]
pub fn indirectly_connected(
    flags: &[(SiloAddress, SiloAddress)],
    has_seen: impl Fn(&SiloAddress) -> bool,
) -> BTreeSet<SiloAddress> {
    let ends = flags.iter().filter(|(o, s)| has_seen(o) && has_seen(s));
    let mut left: BTreeSet<_> = ends.copied().collect();
    let mut to_blame = BTreeSet::new();
    while !left.is_empty() {
        let mut accusers = BTreeMap::<SiloAddress, BTreeSet<SiloAddress>>::new();
        let mut links = accusers.clone();
        for (observer, subject) in &left {
            accusers.entry(*subject).or_default().insert(*observer);
            links.entry(*subject).or_default().insert(*observer);
            links.entry(*observer).or_default().insert(*subject);
        }
        let several = accusers.values().any(|by| by.len() > 1);
        let counted = if several { accusers } else { links };
        let most = counted.values().map(BTreeSet::len).max();
        let worst = counted
            .iter()
            .filter(|(_, others)| Some(others.len()) == most);
        to_blame.extend(worst.map(|(member, _)| *member));
        left.retain(|(o, s)| !to_blame.contains(o) && !to_blame.contains(s));
    }
    to_blame
}
