//! A network of members in one thread: virtual time, seeded chance, latency, loss, cuts, pauses.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use membership_core::{InstanceId, MonoTime, SiloAddress, SiloInfo};
use membership_gossip::protocol::{Command, Input, Message, Notice, Protocol, Setup, Termination};
use membership_gossip::state::{MemberStatus, Profile};
use membership_gossip::{Config, GossipView};
use rand_core::{Rng as _, SeedableRng as _};
use rand_xoshiro::Xoshiro256PlusPlus;

mod run;

use run::Event;

pub(crate) type NodeId = usize;

/// A message: when, from whom, where to.
pub(crate) type Sent = (MonoTime, SiloAddress, SocketAddr, Arc<Message>);

/// One process.
pub(crate) struct Node {
    pub(crate) protocol: Protocol,
    pub(crate) ended: Option<Termination>,
    pub(crate) killed: bool,
    pub(crate) notices: Vec<(MonoTime, Notice)>,
    paused_until: MonoTime,
    wake_at: Option<MonoTime>,
    pub(crate) sent: BTreeMap<&'static str, u64>,
}

impl Node {
    pub(crate) fn lives(&self) -> bool {
        !self.killed && self.ended.is_none()
    }
}

/// Who looks at everything that members publish.
pub(crate) trait Watcher {
    fn changed(&mut self, at: MonoTime, node: NodeId, view: &GossipView);
    fn published(&mut self, at: MonoTime, node: NodeId, view: &GossipView);
    fn sent(&mut self, from: SiloAddress, message: &Message);
}

pub(crate) struct Net {
    pub(crate) now: MonoTime,
    pub(crate) nodes: Vec<Node>,
    queue: BinaryHeap<Reverse<Event>>,
    order: u64,
    rng: Xoshiro256PlusPlus,
    pub(crate) latency: (Duration, Duration),
    pub(crate) loss: f64,
    /// Directed links that carry nothing, by endpoint.
    pub(crate) cut: BTreeSet<(SocketAddr, SocketAddr)>,
    pub(crate) lease: Option<NodeId>,
    pub(crate) watcher: Option<Box<dyn Watcher>>,
    pub(crate) bytes: u64,
    /// Whether messages are written and read as bytes.
    pub(crate) encode: bool,
    /// Keeps every message for a test to look at.
    pub(crate) log: Option<Vec<Sent>>,
    pub(crate) hold_exit: bool,
}

pub(crate) fn endpoint(n: usize) -> SocketAddr {
    let [_, a, b, c] = u32::try_from(n + 1).unwrap().to_be_bytes();
    SocketAddr::from(([10, a, b, c], 7100))
}

pub(crate) fn secs(s: u64) -> Duration {
    Duration::from_secs(s)
}

impl Net {
    pub(crate) fn new(seed: u64) -> Self {
        Self {
            now: MonoTime::ZERO + secs(1),
            nodes: Vec::new(),
            queue: BinaryHeap::new(),
            order: 0,
            rng: Xoshiro256PlusPlus::seed_from_u64(seed),
            latency: (Duration::from_micros(200), Duration::from_millis(3)),
            loss: 0.0,
            cut: BTreeSet::new(),
            lease: None,
            watcher: None,
            bytes: 0,
            encode: false,
            log: None,
            hold_exit: false,
        }
    }

    /// A cluster of `n` whose contact points are the first three, all up.
    pub(crate) fn cluster(seed: u64, n: usize, config: &Config) -> Self {
        let mut net = Self::new(seed);
        for i in 0..n {
            net.start(i, config);
        }
        net.join_all(&(0..n).collect::<Vec<_>>());
        net.run_until(secs(120), |net| net.is_agreed());
        net
    }

    pub(crate) fn random(&mut self) -> u64 {
        self.rng.next_u64()
    }

    pub(crate) fn below(&mut self, n: usize) -> usize {
        usize::try_from(self.random() % n.max(1) as u64).unwrap()
    }

    fn chance(&mut self, p: f64) -> bool {
        p > 0.0 && ((self.random() >> 11) as f64 / (1_u64 << 53) as f64) < p
    }

    /// Starts a process at the endpoint with this number.
    pub(crate) fn start(&mut self, at: usize, config: &Config) -> NodeId {
        let profile = Profile::new(SiloInfo::named(format!("m{at}")));
        self.start_as(at, config, profile)
    }

    pub(crate) fn start_as(&mut self, at: usize, config: &Config, profile: Profile) -> NodeId {
        let epoch = self.now.as_nanos() / 1_000_000;
        self.start_with_epoch(at, config, profile, epoch)
    }

    pub(crate) fn start_with_epoch(
        &mut self,
        at: usize,
        config: &Config,
        profile: Profile,
        epoch: u64,
    ) -> NodeId {
        let (seed, instance) = (self.random(), InstanceId::new(self.random().into()));
        let cluster = "test".parse().unwrap();
        let mut setup = Setup::new(cluster, endpoint(at), epoch, instance, profile, seed);
        config.validate().unwrap();
        setup.config = config.clone();
        self.nodes.push(Node {
            protocol: Protocol::new(setup),
            ended: None,
            killed: false,
            notices: Vec::new(),
            paused_until: MonoTime::ZERO,
            wake_at: None,
            sent: BTreeMap::new(),
        });
        self.nodes.len() - 1
    }

    /// These processes join, with the first three endpoints as contact points.
    pub(crate) fn join_all(&mut self, nodes: &[NodeId]) {
        let points: Vec<_> = (0..3.min(self.nodes.len())).map(endpoint).collect();
        for node in nodes {
            self.join(*node, points.clone());
        }
    }

    pub(crate) fn join(&mut self, node: NodeId, contact_points: Vec<SocketAddr>) {
        self.command(node, Command::Join { contact_points });
    }

    pub(crate) fn command(&mut self, node: NodeId, command: Command) {
        self.push(self.now, run::What::Command(node, command));
    }

    pub(crate) fn input(&mut self, node: NodeId, input: Input) {
        self.handle(node, input);
    }

    pub(crate) fn kill(&mut self, node: NodeId) {
        self.nodes[node].killed = true;
    }

    pub(crate) fn pause(&mut self, node: NodeId, time: Duration) {
        self.nodes[node].paused_until = self.now + time;
    }

    pub(crate) fn me(&self, node: NodeId) -> SiloAddress {
        self.nodes[node].protocol.me()
    }

    pub(crate) fn view(&self, node: NodeId) -> GossipView {
        self.nodes[node].protocol.view()
    }

    pub(crate) fn status(&self, by: NodeId, of: NodeId) -> Option<MemberStatus> {
        self.view(by).status(&self.me(of))
    }

    pub(crate) fn living(&self) -> Vec<NodeId> {
        (0..self.nodes.len())
            .filter(|n| self.nodes[*n].lives())
            .collect()
    }

    /// Nothing passes between these sets, in both directions.
    pub(crate) fn split(&mut self, left: &[NodeId], right: &[NodeId]) {
        for a in left {
            for b in right {
                let (a, b) = (self.me(*a).endpoint(), self.me(*b).endpoint());
                self.cut.insert((a, b));
                self.cut.insert((b, a));
            }
        }
    }

    pub(crate) fn heal(&mut self) {
        self.cut.clear();
        self.loss = 0.0;
    }

    /// Whether all living processes have one state in which exactly they are members, all up.
    pub(crate) fn is_agreed(&self) -> bool {
        let living = self.living();
        let Some(first) = living.first() else {
            return false;
        };
        let version = self.nodes[*first].protocol.gossip().version();
        let due: BTreeSet<_> = living.iter().map(|n| self.me(*n)).collect();
        living.iter().all(|node| {
            let view = self.view(*node);
            let up = |s: MemberStatus| s == MemberStatus::Up;
            view.version() == version
                && view.converged()
                && view.members().all(|m| up(m.status()))
                && view.members().map(|m| m.address()).collect::<BTreeSet<_>>() == due
        })
    }

    /// Runs until `done`, looked at four times per second; the time it took.
    #[track_caller]
    pub(crate) fn run_until(&mut self, most: Duration, done: impl Fn(&Self) -> bool) -> Duration {
        let begun = self.now;
        while !done(self) {
            assert!(
                self.now.since(begun) < most,
                "not after {most:?}:\n{}",
                self.describe()
            );
            self.run(Duration::from_millis(250));
        }
        self.now.since(begun)
    }

    pub(crate) fn run(&mut self, time: Duration) {
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

    /// Every living process and what it believes, for a failed test.
    pub(crate) fn describe(&self) -> String {
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
