//! G2, G3, G5, G6, G7, G14: what a state is, and how it may change.

use std::collections::{BTreeMap, BTreeSet};

use membership_core::{FoundingId, MonoTime, SiloAddress};
use membership_gossip::GossipView;
use membership_gossip::state::{Flag, MemberStatus, Reachability, State, Version};

use super::Facts;
use crate::gossip::NodeId;

type Known = BTreeMap<SiloAddress, (MemberStatus, Option<u64>)>;

#[derive(Debug, Default)]
pub(super) struct History {
    /// By incarnation and founding: one that leaves a cluster that never began, or was left behind by
    /// its beginning, starts over.
    known: BTreeMap<(SiloAddress, Option<FoundingId>), Known>,
    /// A version is a hash of the whole state: each is looked at once.
    versions: BTreeSet<Version>,
    contents: BTreeMap<String, (Version, String)>,
    flags: BTreeMap<(SiloAddress, u64), BTreeMap<SiloAddress, Flag>>,
    foundings: BTreeMap<SiloAddress, FoundingId>,
}

impl Facts {
    pub(super) fn forward(&mut self, at: MonoTime, node: NodeId, view: &GossipView) {
        let place = (view.me(), view.founding());
        let before = self.history.known.remove(&place).unwrap_or_default();
        let mut now: Known = view
            .members()
            .map(|m| (m.address(), (m.status(), m.up_number())))
            .collect();
        for (address, (status, up)) in &before {
            match now.get(address) {
                Some((next, _)) if next < status => {
                    let what = format!("{address} went from {status} to {next}");
                    let rule = if *status == MemberStatus::Removed {
                        "G3"
                    } else {
                        "G2"
                    };
                    self.broken(rule, at, node, &what);
                }
                Some((_, next)) if up.is_some() && next > up => {
                    let what = format!("{address} was number {up:?} and is {next:?}");
                    self.broken("G2", at, node, &what);
                }
                Some((next, _)) => {
                    if next != status {
                        self.count("steps");
                    }
                }
                None => {
                    // The view says so itself.
                    if view.status(address) != Some(MemberStatus::Removed) {
                        let what = format!("{address} vanished without a tombstone");
                        self.broken("G3", at, node, &what);
                    }
                    if *status != MemberStatus::Removed {
                        self.count("removals");
                    }
                    now.insert(*address, (MemberStatus::Removed, *up));
                }
            }
        }
        self.history.known.insert(place, now);
    }

    /// What is true of a state wherever it is.
    pub(super) fn content(&mut self, at: MonoTime, node: NodeId, view: &GossipView) {
        self.one_founding(at, node, view);
        if !self.history.versions.insert(view.version()) {
            self.count("states held by several");
            return;
        }
        self.same_content(at, node, view);
        self.same_flags(at, node, view);
        self.up_numbers(at, node, view);
    }

    fn same_content(&mut self, at: MonoTime, node: NodeId, view: &GossipView) {
        let state = view.state();
        let clock: Vec<_> = state.clock().iter().collect();
        let stones: Vec<_> = state.tombstones().iter().collect();
        let (founding, floor) = (view.founding(), state.tombstones().floor());
        let key = format!("{founding:?} {clock:?} {stones:?} {floor}");
        let members: Vec<_> = state
            .members()
            .iter()
            .map(|m| (m.address(), m.status(), m.stamp()))
            .collect();
        let content = format!("{members:?} {:?}", state.reachability());
        let (version, known) = self
            .history
            .contents
            .entry(key)
            .or_insert((view.version(), content.clone()));
        if *version != view.version() {
            let parts = |text: &str| {
                text.split("), (")
                    .map(str::to_owned)
                    .collect::<BTreeSet<_>>()
            };
            let (one, two) = (parts(known), parts(&content));
            let differ: Vec<_> = one.symmetric_difference(&two).collect();
            let what = format!("one clock, two states: {differ:?}");
            self.broken("G5", at, node, &what);
        }
    }

    fn same_flags(&mut self, at: MonoTime, node: NodeId, view: &GossipView) {
        self.flags_of(at, node, view.state(), view.state().reachability());
    }

    /// The flags that a state has.
    pub fn flags_of(&mut self, at: MonoTime, node: NodeId, state: &State, flags: &Reachability) {
        for (observer, rows) in flags.observers() {
            if state.is_gone(observer) || rows.rows().keys().any(|s| state.is_gone(s)) {
                self.broken("G7", at, node, "a flag of or about one that is gone");
            }
            let key = (*observer, rows.version());
            let known = self.history.flags.entry(key);
            let known = known.or_insert_with(|| rows.rows().clone());
            // Where a subject is gone its flag is dropped.
            let differs = |(subject, flag): (&SiloAddress, &Flag)| {
                known.get(subject).is_some_and(|known| known != flag)
            };
            let lacks = |(subject, _): (&SiloAddress, &Flag)| {
                !rows.rows().contains_key(subject) && state.members().contains(subject)
            };
            let wrong = rows.rows().iter().any(differs) || known.iter().any(lacks);
            known.extend(rows.rows());
            self.count("sets of flags");
            if wrong {
                self.broken("G6", at, node, "two sets of flags with one version");
            }
        }
    }

    fn one_founding(&mut self, at: MonoTime, node: NodeId, view: &GossipView) {
        let Some(founding) = view.founding() else {
            return;
        };
        let foundings = &mut self.history.foundings;
        foundings.insert(view.me(), founding);
        // Who joined twice may be a member of one that it never heard of again; it changes nothing
        // there.
        let clock = view.state().clock();
        let wrote = clock.iter().filter_map(|(origin, _)| foundings.get(origin));
        let other = wrote.copied().find(|other| *other != founding);
        if let Some(other) = other {
            let what = format!("a change of a member of {other} in the state of {founding}");
            self.broken("G14", at, node, &what);
        }
    }

    /// How many foundings have had members.
    #[must_use]
    pub fn foundings(&self) -> usize {
        let all = self.history.foundings.values();
        all.collect::<BTreeSet<_>>().len()
    }
}
