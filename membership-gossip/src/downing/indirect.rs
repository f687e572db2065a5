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
    to_blame(ends, |worst| worst)
}

/// Who is to blame for these broken links if of those that have most of it only some are taken at once.
pub(super) fn to_blame<'a>(
    links: impl IntoIterator<Item = &'a (SiloAddress, SiloAddress)>,
    take: impl Fn(BTreeSet<SiloAddress>) -> BTreeSet<SiloAddress>,
) -> BTreeSet<SiloAddress> {
    let mut left = Links::default();
    for (observer, subject) in links {
        left.add(*observer, *subject);
    }
    let mut to_blame = BTreeSet::new();
    loop {
        let taken = take(left.worst());
        if taken.is_empty() {
            return to_blame;
        }
        taken.iter().for_each(|member| left.remove(member));
        to_blame.extend(taken);
    }
}

/// Broken links, by each end.
#[derive(Debug, Default)]
struct Links {
    accusers: BTreeMap<SiloAddress, BTreeSet<SiloAddress>>,
    others: BTreeMap<SiloAddress, BTreeSet<SiloAddress>>,
}

impl Links {
    fn add(&mut self, observer: SiloAddress, subject: SiloAddress) {
        self.accusers.entry(subject).or_default().insert(observer);
        self.others.entry(subject).or_default().insert(observer);
        self.others.entry(observer).or_default().insert(subject);
    }

    /// Those that have most of it.
    fn worst(&self) -> BTreeSet<SiloAddress> {
        let several = self.accusers.values().any(|by| by.len() > 1);
        let counted = if several {
            &self.accusers
        } else {
            &self.others
        };
        let most = counted.values().map(BTreeSet::len).max();
        let most = most.filter(|most| *most > 0);
        let worst = counted.iter().filter(|(_, by)| Some(by.len()) == most);
        worst.map(|(member, _)| *member).collect()
    }

    fn remove(&mut self, member: &SiloAddress) {
        self.accusers.remove(member);
        for other in self.others.remove(member).unwrap_or_default() {
            for by in [&mut self.accusers, &mut self.others] {
                by.entry(other).and_modify(|by| {
                    by.remove(member);
                });
            }
        }
    }
}
