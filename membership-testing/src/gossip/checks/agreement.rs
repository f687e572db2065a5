//! G4 and G8: what members agree on, and who leads.

use std::collections::{BTreeMap, BTreeSet};

use membership_core::{MonoTime, SiloAddress};
use membership_gossip::GossipView;
use membership_gossip::state::Version;

use super::Facts;
use crate::gossip::NodeId;

#[derive(Debug, Default)]
pub(super) struct Agreement {
    held: BTreeMap<Version, BTreeSet<SiloAddress>>,
    leaders: BTreeMap<Version, SiloAddress>,
}

impl Facts {
    /// A member has, or had, this version of the state.
    pub(super) fn held(&mut self, version: Version, by: SiloAddress) {
        self.agreement.held.entry(version).or_default().insert(by);
    }

    /// A member published a view.
    pub fn view(&mut self, at: MonoTime, node: NodeId, view: &GossipView) {
        self.held(view.version(), view.me());
        if !view.converged() {
            return;
        }
        self.count("agreements");
        let held = self.agreement.held.get(&view.version());
        let had = |member: &SiloAddress| held.is_some_and(|held| held.contains(member));
        let mine = view.member(&view.me()).map(|m| m.data_centre());
        let missing = view
            .members()
            .filter(|m| Some(m.data_centre()) == mine && !m.end_confirmed())
            .filter(|m| m.status().counts_for_convergence())
            .find(|m| !had(&m.address()));
        if let Some(missing) = missing {
            let what = format!("{} never had the agreed state", missing.address());
            self.broken("G4", at, node, &what);
        }
        if view.leader() == Some(view.me()) {
            self.lead(at, node, view.version(), view.me());
        }
    }

    /// A member that believes in agreement on a version believes to lead.
    pub fn lead(&mut self, at: MonoTime, node: NodeId, version: Version, me: SiloAddress) {
        self.count("leaders");
        let leader = *self.agreement.leaders.entry(version).or_insert(me);
        if leader != me {
            let what = format!("{leader} and {me} lead one state");
            self.broken("G8", at, node, &what);
        }
    }

    /// No two members of one data centre have the same place in the order of age.
    pub(super) fn up_numbers(&mut self, at: MonoTime, node: NodeId, view: &GossipView) {
        let mut numbers = BTreeMap::new();
        for member in view.members() {
            let Some(number) = member.up_number() else {
                continue;
            };
            let place = (member.data_centre().to_owned(), number);
            if let Some(other) = numbers.insert(place, member.address()) {
                let what = format!("{other} and {} are both number {number}", member.address());
                self.broken("G8", at, node, &what);
            }
        }
    }
}
