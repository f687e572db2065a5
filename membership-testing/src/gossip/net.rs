//! A network of members in one thread: virtual time, seeded chance, latency, loss, cuts, pauses.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use membership_core::{FoundingId, MonoTime, SiloAddress};
use membership_gossip::downing::{Decision, Grants};
use membership_gossip::protocol::{Command, Header, Input, Message, Notice, Protocol, Termination};
use membership_gossip::state::MemberStatus;
use membership_gossip::{Config, GossipView};
use rand_core::{Rng as _, SeedableRng as _};
use rand_xoshiro::Xoshiro256PlusPlus;

use super::run::{self, Event};

/// A process of a [`Net`], in the order of their starts.
pub type NodeId = usize;

/// A message: when, from whom, where to.
pub type Sent = (MonoTime, SiloAddress, SocketAddr, Arc<Message>);

/// One process.
#[derive(Debug)]
pub struct Node {
    /// Its state machine.
    pub protocol: Protocol,
    /// Its configuration.
    pub config: Config,
    /// How it has ended by itself.
    pub ended: Option<Termination>,
    /// Whether it was killed.
    pub killed: bool,
    /// What it reported, and when.
    pub notices: Vec<(MonoTime, Notice)>,
    /// How many messages of each kind it has sent.
    pub sent: BTreeMap<&'static str, u64>,
    /// Where messages reach it: usually at the endpoint that it advertises.
    pub listens: SocketAddr,
    pub(super) paused_until: MonoTime,
    pub(super) held_until: MonoTime,
    pub(super) wake_at: Option<MonoTime>,
}

impl Node {
    /// Whether it runs.
    #[must_use]
    pub const fn lives(&self) -> bool {
        !self.killed && self.ended.is_none()
    }
}

/// Who looks at everything that members do.
pub trait Watcher: std::fmt::Debug {
    /// The state of a member has changed.
    fn changed(&mut self, at: MonoTime, node: NodeId, view: &GossipView);
    /// A member published a view.
    fn published(&mut self, at: MonoTime, node: NodeId, view: &GossipView);
    /// A member sent a message.
    fn sent(&mut self, at: MonoTime, header: &Header, message: &Message);
    /// A member is about to handle a message that has waited while it was paused.
    fn delivered(
        &mut self,
        _at: MonoTime,
        _node: NodeId,
        _header: &Header,
        _message: &Message,
        _waited: Duration,
    ) {
    }
    /// A member handles inputs again after a pause.
    fn resumed(&mut self, _at: MonoTime, _node: NodeId, _paused: Duration) {}
    /// A member decided: what it announced, what follows from the state that it had, and what follows
    /// for each other member that had the same state.
    fn decided(
        &mut self,
        _at: MonoTime,
        _who: (NodeId, SiloAddress),
        _told: &Decision,
        _same: &[Decision],
    ) {
    }
    /// A member is down or gone in its own state, and has not ended.
    fn goes_on(&mut self, _at: MonoTime, _node: NodeId) {}
}

/// Members and the network between them.
#[derive(Debug)]
pub struct Net {
    /// The virtual time.
    pub now: MonoTime,
    /// All processes that ever ran.
    pub nodes: Vec<Node>,
    pub(super) queue: BinaryHeap<Reverse<Event>>,
    pub(super) order: u64,
    rng: Xoshiro256PlusPlus,
    /// The shortest and the longest latency.
    pub latency: (Duration, Duration),
    /// The share of messages that are lost, 0 to 1.
    pub loss: f64,
    /// The share of messages that arrive twice, 0 to 1.
    pub duplicates: f64,
    /// The share of messages, 0 to 1, that take up to so much longer.
    pub delayed: (f64, Duration),
    /// Directed links that carry nothing, by endpoint.
    pub cut: BTreeSet<(SocketAddr, SocketAddr)>,
    /// Who cannot dial whom, by endpoint: the address leads nowhere from there. Answers pass on the
    /// connection by which the question came.
    pub unroutable: BTreeSet<(SocketAddr, SocketAddr)>,
    /// Who has the lease, where there is a plain one.
    pub lease: Option<NodeId>,
    /// What an arbiter remembers, by founding; none: the lease is a plain one.
    pub grants: Option<BTreeMap<Option<FoundingId>, Grants>>,
    /// How long a question takes to the arbiter, and its answer back.
    pub arbiter: (Duration, Duration),
    /// Which messages are lost besides, by the endpoint that they are for.
    pub loses: Option<fn(SocketAddr, &Message) -> bool>,
    /// Who looks at everything.
    pub watcher: Option<Box<dyn Watcher>>,
    /// The bytes of all messages, where they are written.
    pub bytes: u64,
    /// Whether messages are written and read as bytes.
    pub encode: bool,
    /// How many messages could not be written or read. There must be none.
    pub unreadable: u64,
    /// Keeps every message to look at.
    pub log: Option<Vec<Sent>>,
    /// Whether applications that hand over take for ever.
    pub hold_exit: bool,
}

/// The endpoint with this number.
#[must_use]
pub fn endpoint(n: usize) -> SocketAddr {
    let number = u32::try_from(n + 1).unwrap_or(u32::MAX);
    let [_, a, b, c] = number.to_be_bytes();
    SocketAddr::from(([10, a, b, c], 7100))
}

impl Net {
    /// A network without members.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self {
            now: MonoTime::ZERO + Duration::from_secs(1),
            nodes: Vec::new(),
            queue: BinaryHeap::new(),
            order: 0,
            rng: Xoshiro256PlusPlus::seed_from_u64(seed),
            latency: (Duration::from_micros(200), Duration::from_millis(3)),
            loss: 0.0,
            duplicates: 0.0,
            delayed: (0.0, Duration::ZERO),
            cut: BTreeSet::new(),
            unroutable: BTreeSet::new(),
            lease: None,
            grants: None,
            arbiter: (Duration::ZERO, Duration::from_millis(5)),
            loses: None,
            watcher: None,
            bytes: 0,
            encode: false,
            unreadable: 0,
            log: None,
            hold_exit: false,
        }
    }

    /// A random number.
    pub fn random(&mut self) -> u64 {
        self.rng.next_u64()
    }

    /// A random number below `n`, or 0.
    pub fn below(&mut self, n: usize) -> usize {
        usize::try_from(self.random() % n.max(1) as u64).unwrap_or(0)
    }

    /// True with probability `p`. Draws no number when it is 0.
    pub fn chance(&mut self, p: f64) -> bool {
        p > 0.0 && ((self.random() >> 11) as f64 / (1_u64 << 53) as f64) < p
    }

    /// These processes join, with the first three endpoints as contact points.
    pub fn join_all(&mut self, nodes: &[NodeId]) {
        let points: Vec<_> = (0..3.min(self.nodes.len())).map(endpoint).collect();
        for node in nodes {
            self.join(*node, points.clone());
        }
    }

    /// A process joins.
    pub fn join(&mut self, node: NodeId, contact_points: Vec<SocketAddr>) {
        self.command(node, Command::Join { contact_points });
    }

    /// A process gets a command.
    pub fn command(&mut self, node: NodeId, command: Command) {
        self.push(self.now, run::What::Command(node, command));
    }

    /// A process handles an input at once.
    pub fn input(&mut self, node: NodeId, input: Input) {
        self.handle(node, input);
    }

    /// Kills a process.
    pub fn kill(&mut self, node: NodeId) {
        self.nodes[node].killed = true;
    }

    /// A process does not run for a time. What arrives and what is due waits.
    pub fn pause(&mut self, node: NodeId, time: Duration) {
        // A shorter pause within another one does not end that.
        let until = self.nodes[node].paused_until.max(self.now + time);
        self.nodes[node].paused_until = until;
        if self.nodes[node].lives() {
            self.push(self.now + time, run::What::Resume(node, time));
        }
    }

    /// Nothing that a process sends leaves it for a time, and nothing reaches it; its timers run. Then
    /// all of it goes on: the anomaly of Lifeguard.
    pub fn hold(&mut self, node: NodeId, time: Duration) {
        self.nodes[node].held_until = self.now + time;
    }

    /// Whether a process does not run now, but will.
    #[must_use]
    pub fn is_paused(&self, node: NodeId) -> bool {
        self.now < self.nodes[node].paused_until
    }

    /// The address of a process.
    #[must_use]
    pub fn me(&self, node: NodeId) -> SiloAddress {
        self.nodes[node].protocol.me()
    }

    /// What a process sees.
    #[must_use]
    pub fn view(&self, node: NodeId) -> GossipView {
        self.nodes[node].protocol.view()
    }

    /// How far one process sees another one.
    #[must_use]
    pub fn status(&self, by: NodeId, of: NodeId) -> Option<MemberStatus> {
        self.view(by).status(&self.me(of))
    }

    /// The processes that run.
    #[must_use]
    pub fn living(&self) -> Vec<NodeId> {
        (0..self.nodes.len())
            .filter(|n| self.nodes[*n].lives())
            .collect()
    }

    /// Nothing passes between these sets, in both directions.
    pub fn split(&mut self, left: &[NodeId], right: &[NodeId]) {
        for a in left {
            for b in right {
                let (a, b) = (self.me(*a).endpoint(), self.me(*b).endpoint());
                self.cut.insert((a, b));
                self.cut.insert((b, a));
            }
        }
    }

    /// Ends all faults of the network.
    pub fn heal(&mut self) {
        self.cut.clear();
        self.unroutable.clear();
        self.loss = 0.0;
        self.duplicates = 0.0;
        self.delayed = (0.0, Duration::ZERO);
    }

    /// Whether all living processes have one state in which exactly they are members, all up.
    #[must_use]
    pub fn is_agreed(&self) -> bool {
        let living = self.living();
        let Some(first) = living.first() else {
            return false;
        };
        let version = self.nodes[*first].protocol.gossip().version();
        if living
            .iter()
            .any(|node| self.nodes[*node].protocol.gossip().version() != version)
        {
            return false;
        }
        let due: BTreeSet<_> = living.iter().map(|n| self.me(*n)).collect();
        living.iter().all(|node| {
            let view = self.view(*node);
            let up = |s: MemberStatus| s == MemberStatus::Up;
            view.converged()
                && view.members().all(|m| up(m.status()))
                && view.members().map(|m| m.address()).collect::<BTreeSet<_>>() == due
        })
    }

    /// Runs until `done`, looked at four times per second; the time it took.
    ///
    /// # Errors
    /// What every process believed, if that took longer than `most`.
    pub fn try_run_until(
        &mut self,
        most: Duration,
        done: impl Fn(&Self) -> bool,
    ) -> Result<Duration, String> {
        let begun = self.now;
        while !done(self) {
            if self.now.since(begun) >= most {
                return Err(format!("not after {most:?}:\n{}", self.describe()));
            }
            self.run(Duration::from_millis(250));
        }
        Ok(self.now.since(begun))
    }

    /// Advances virtual time.
    pub fn run(&mut self, time: Duration) {
        let end = self.now + time;
        while self
            .queue
            .peek()
            .is_some_and(|Reverse(event)| event.at <= end)
        {
            let Some(Reverse(event)) = self.queue.pop() else {
                break;
            };
            self.now = self.now.max(event.at);
            self.take(event);
        }
        self.now = end;
    }

    /// Every living process and what it believes.
    #[must_use]
    pub fn describe(&self) -> String {
        let mut text = String::new();
        for node in self.living() {
            let view = self.view(node);
            text += &format!(
                "{node} {} {:?} v{:.8} leader {:?} blocked {:?}\n",
                self.me(node),
                self.nodes[node].protocol.founding().is_some(),
                view.version().to_string(),
                view.leader(),
                view.blocked_by(),
            );
            for m in view.members() {
                text += &format!("    {} {} {:?}\n", m.address(), m.status(), m.up_number());
            }
        }
        text
    }
}
