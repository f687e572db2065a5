//! The checkers. Each looks at what members believe and do, and at what is true of them.
//!
//! | | rule | file |
//! |---|---|---|
//! | G1 | the merge of states that members have is associative, commutative and idempotent | `merges` |
//! | G2 | a member only moves forward, and its up number is set once | `history` |
//! | G3 | one that was removed is never a member again where that was known | `history` |
//! | G4 | who claims agreement is right: all that must have had the state had it | `agreement` |
//! | G5 | equal clocks and tombstones: equal members and flags | `history` |
//! | G6 | the flags of an observer at a version are the same everywhere | `history` |
//! | G7 | no flags of or about those that are gone; nobody else has seen a state | `history` |
//! | G8 | one leader acts on an agreed state; up numbers are unique | `agreement` |
//! | G9 | a flag follows real silence, and no pause of its observer; none while all is well | `flags` |
//! | G10 | the same facts are the same decision on every member of a side | `decisions` |
//! | G11 | a clean split leaves one side; with a lease, every split does | `decisions` |
//! | G12 | who is downed has ended before its heir may begin | `decisions` |
//! | G13 | after the faults all agree on exactly the living, all up | the campaign |
//! | G14 | members of two foundings are never in one state | `history` |
//! | G15 | who is gone and knows it is silent; who meets somebody who knows it, ends | `ends` |
//! | G16 | what a member sends while all is well, and the states that reach one, are bounded | `traffic` |
//!
//! G17 is that each of them finds a planted bug, and that the campaign counts what each judged.

mod agreement;
mod decisions;
mod ends;
mod flags;
mod history;
mod merges;
mod traffic;

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;

use membership_core::{MonoTime, SiloAddress};
use membership_gossip::downing::Decision;
use membership_gossip::protocol::{Header, Message};
use membership_gossip::{Config, GossipView};

use super::net::{NodeId, Watcher};

/// What was seen so far.
#[derive(Debug, Default)]
pub struct Facts {
    /// Every broken rule: its name, when, where and how.
    pub violations: Vec<String>,
    /// How often something happened that a rule judges.
    pub counts: BTreeMap<&'static str, u64>,
    history: history::History,
    agreement: agreement::Agreement,
    flags: flags::Flags,
    decisions: decisions::Decisions,
    ends: ends::Ends,
    traffic: traffic::Traffic,
}

impl Facts {
    /// Facts about members with this configuration.
    #[must_use]
    pub fn new(config: &Config) -> Self {
        let mut facts = Self::default();
        facts.flags.configure(config);
        facts.traffic.configure(config);
        facts
    }

    /// Counts something.
    pub fn count(&mut self, what: &'static str) {
        *self.counts.entry(what).or_default() += 1;
    }

    fn broken(&mut self, rule: &str, at: MonoTime, node: NodeId, what: &str) {
        self.violations
            .push(format!("{rule} {at} node {node}: {what}"));
    }
}

/// Facts that a network and a test share.
#[derive(Clone, Debug, Default)]
pub struct Checks(pub Rc<RefCell<Facts>>);

impl Checks {
    /// Checks of members with this configuration.
    #[must_use]
    pub fn new(config: &Config) -> Self {
        Self(Rc::new(RefCell::new(Facts::new(config))))
    }
}

impl Watcher for Checks {
    fn changed(&mut self, at: MonoTime, node: NodeId, view: &GossipView) {
        self.0.borrow_mut().state(at, node, view);
    }

    fn published(&mut self, at: MonoTime, node: NodeId, view: &GossipView) {
        self.0.borrow_mut().view(at, node, view);
    }

    fn sent(&mut self, at: MonoTime, header: &Header, message: &Message) {
        self.0.borrow_mut().sent(at, header, message);
    }

    fn delivered(
        &mut self,
        at: MonoTime,
        node: NodeId,
        header: &Header,
        message: &Message,
        waited: Duration,
    ) {
        let mut facts = self.0.borrow_mut();
        facts.delivered(at, header, message);
        if is_state(message) {
            facts.state_arrived(at, node, !waited.is_zero());
        }
    }

    fn resumed(&mut self, at: MonoTime, node: NodeId, paused: Duration) {
        self.0.borrow_mut().resumed(at, node, paused);
    }

    fn decided(
        &mut self,
        at: MonoTime,
        who: (NodeId, SiloAddress),
        told: &Decision,
        same: &[Decision],
    ) {
        self.0.borrow_mut().decided(at, who, told, same);
    }

    fn goes_on(&mut self, at: MonoTime, node: NodeId) {
        self.0.borrow_mut().knows_and_goes_on(at, node);
    }
}

impl Facts {
    /// A member's state has changed.
    pub fn state(&mut self, at: MonoTime, node: NodeId, view: &GossipView) {
        self.count("states");
        self.held(view.version(), view.me());
        self.forward(at, node, view);
        self.content(at, node, view);
        self.new_flags(at, node, view);
    }

    /// A member has sent a message.
    pub fn sent(&mut self, at: MonoTime, header: &Header, message: &Message) {
        let version = match message {
            Message::Status { version, .. } | Message::Seen { version, .. } => Some(*version),
            Message::State(gossip) | Message::Welcome(gossip) => Some(gossip.version()),
            Message::Delta { delta, .. } => Some(delta.version),
            _ => None,
        };
        if let Some(version) = version {
            self.held(version, header.from);
        }
        if let (Message::Heartbeat { .. }, Some(to)) = (message, header.to) {
            self.asked(at, header.from, to);
        }
        self.load(at, header.from);
    }

    /// A member handles a message.
    pub fn delivered(&mut self, at: MonoTime, header: &Header, message: &Message) {
        if let (Message::HeartbeatReply { .. }, Some(to)) = (message, header.to) {
            self.heard(at, to, header.from);
        }
    }
}

const fn is_state(message: &Message) -> bool {
    matches!(
        message,
        Message::State(_) | Message::Delta { .. } | Message::Welcome(_)
    )
}
