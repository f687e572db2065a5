//! The checkers. Each looks at what members believe, and at what is true of them.
//!
//! | | rule |
//! |---|---|
//! | G2 | a member only moves forward, and its up number is set once |
//! | G3 | one that was removed is never a member again where that was known |
//! | G4 | who claims agreement is right: all that must have had the state had it |
//! | G5 | equal clocks and tombstones: equal members and flags |
//! | G6 | the flags of an observer at a version are the same everywhere |
//! | G7 | no flags of or about those that are gone |
//! | G8 | one leader acts on an agreed state |
//! | G14 | members of two foundings are never in one state |

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use membership_core::{FoundingId, MonoTime, SiloAddress};
use membership_gossip::GossipView;
use membership_gossip::protocol::Message;
use membership_gossip::state::{Flag, MemberStatus, Version};

use crate::net::{NodeId, Watcher};

type Known = BTreeMap<SiloAddress, (MemberStatus, Option<u64>)>;
type Flags = BTreeMap<SiloAddress, Flag>;

/// What was seen so far.
#[derive(Default)]
pub(crate) struct Facts {
    pub(crate) violations: Vec<String>,
    /// By node and founding: one that leaves a cluster that never began starts over.
    known: BTreeMap<(NodeId, Option<FoundingId>), Known>,
    held: BTreeMap<Version, BTreeSet<SiloAddress>>,
    contents: BTreeMap<String, (Version, String)>,
    flags: BTreeMap<(SiloAddress, u64), Flags>,
    leaders: BTreeMap<Version, SiloAddress>,
    foundings: BTreeMap<SiloAddress, FoundingId>,
    pub(crate) counts: BTreeMap<&'static str, u64>,
}

impl Facts {
    fn count(&mut self, what: &'static str) {
        *self.counts.entry(what).or_default() += 1;
    }

    fn broken(&mut self, rule: &str, at: MonoTime, node: NodeId, what: &str) {
        self.violations
            .push(format!("{rule} {at} node {node}: {what}"));
    }

    /// A member's state has changed.
    pub(crate) fn state(&mut self, at: MonoTime, node: NodeId, view: &GossipView) {
        self.count("states");
        self.held
            .entry(view.version())
            .or_default()
            .insert(view.me());
        self.forward(at, node, view);
        self.same_content(at, node, view);
        self.same_flags(at, node, view);
        self.one_founding(at, node, view);
    }

    fn forward(&mut self, at: MonoTime, node: NodeId, view: &GossipView) {
        let before = self
            .known
            .remove(&(node, view.founding()))
            .unwrap_or_default();
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
                Some(_) => {}
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
        self.known.insert((node, view.founding()), now);
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
        let known = self
            .contents
            .entry(key)
            .or_insert((view.version(), content.clone()));
        if known.0 != view.version() {
            let parts = |text: &str| {
                text.split("), (")
                    .map(str::to_owned)
                    .collect::<BTreeSet<_>>()
            };
            let (one, two) = (parts(&known.1), parts(&content));
            let differ: Vec<_> = one.symmetric_difference(&two).collect();
            let what = format!("one clock, two states: {differ:?}");
            self.broken("G5", at, node, &what);
        }
    }

    /// A member has sent something about a version of its state.
    pub(crate) fn sent(&mut self, from: SiloAddress, message: &Message) {
        let version = match message {
            Message::Status { version, .. } | Message::Seen { version, .. } => *version,
            Message::State(gossip) | Message::Welcome(gossip) => gossip.version(),
            Message::Delta { delta, .. } => delta.version,
            _ => return,
        };
        self.held.entry(version).or_default().insert(from);
    }

    fn same_flags(&mut self, at: MonoTime, node: NodeId, view: &GossipView) {
        let state = view.state();
        for (observer, rows) in state.reachability().observers() {
            if state.is_gone(observer) || rows.rows().keys().any(|s| state.is_gone(s)) {
                self.broken("G7", at, node, "a flag of or about one that is gone");
            }
            let key = (*observer, rows.version());
            let known = self.flags.entry(key).or_insert_with(|| rows.rows().clone());
            // Where a subject is gone its flag is dropped.
            let differs = |(subject, flag): (&SiloAddress, &Flag)| {
                known.get(subject).is_some_and(|known| known != flag)
            };
            let lacks = |(subject, _): (&SiloAddress, &Flag)| {
                !rows.rows().contains_key(subject) && state.members().contains(subject)
            };
            let wrong = rows.rows().iter().any(differs) || known.iter().any(lacks);
            known.extend(rows.rows());
            if wrong {
                self.broken("G6", at, node, "two sets of flags with one version");
            }
        }
    }

    fn one_founding(&mut self, at: MonoTime, node: NodeId, view: &GossipView) {
        let Some(founding) = view.founding() else {
            return;
        };
        self.foundings.insert(view.me(), founding);
        // Who joined twice may be a member of one that it never heard of again; it changes nothing
        // there.
        let clock = view.state().clock();
        let wrote = clock
            .iter()
            .filter_map(|(origin, _)| self.foundings.get(origin));
        let other = wrote.copied().find(|other| *other != founding);
        if let Some(other) = other {
            let what = format!("a change of a member of {other} in the state of {founding}");
            self.broken("G14", at, node, &what);
        }
    }

    /// A member published a view.
    pub(crate) fn view(&mut self, at: MonoTime, node: NodeId, view: &GossipView) {
        self.held
            .entry(view.version())
            .or_default()
            .insert(view.me());
        if !view.converged() {
            return;
        }
        self.count("agreements");
        let held = self.held.get(&view.version()).cloned().unwrap_or_default();
        let mine = view.member(&view.me()).map(|m| m.data_centre().to_owned());
        let missing = view
            .members()
            .filter(|m| Some(m.data_centre()) == mine.as_deref() && !m.end_confirmed())
            .filter(|m| m.status().counts_for_convergence())
            .find(|m| !held.contains(&m.address()));
        if let Some(missing) = missing {
            let what = format!("{} never had the agreed state", missing.address());
            self.broken("G4", at, node, &what);
        }
        if view.leader() == Some(view.me()) {
            self.lead(at, node, view.version(), view.me());
        }
    }

    /// A member that believes in agreement on a version believes to lead.
    pub(crate) fn lead(&mut self, at: MonoTime, node: NodeId, version: Version, me: SiloAddress) {
        let leader = *self.leaders.entry(version).or_insert(me);
        if leader != me {
            let what = format!("{leader} and {me} lead one state");
            self.broken("G8", at, node, &what);
        }
    }

    /// How many foundings have had members.
    pub(crate) fn foundings(&self) -> usize {
        self.foundings.values().collect::<BTreeSet<_>>().len()
    }
}

/// Facts that a network and a test share.
#[derive(Clone, Default)]
pub(crate) struct Checks(pub(crate) Rc<RefCell<Facts>>);

impl Watcher for Checks {
    fn changed(&mut self, at: MonoTime, node: NodeId, view: &GossipView) {
        self.0.borrow_mut().state(at, node, view);
    }

    fn published(&mut self, at: MonoTime, node: NodeId, view: &GossipView) {
        self.0.borrow_mut().view(at, node, view);
    }

    fn sent(&mut self, from: SiloAddress, message: &Message) {
        self.0.borrow_mut().sent(from, message);
    }
}
