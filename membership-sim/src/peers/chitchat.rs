//! chitchat: scuttlebutt reconciliation and a phi accrual failure detector on each member. The
//! crate itself runs over a simulated transport, on a runtime of its own whose clock stops while
//! any task has work.
//!
//! First detection is the first time at which a member disappears from the live nodes that another
//! one publishes to its watchers; a false death is that of a member that was running. A member
//! returns when others receive its messages again. The settings are chitchat's defaults: gossip
//! every second with three members, phi 8, first interval 5 s, longest 10 s. chitchat draws its
//! gossip partners from a generator of the thread: the faults and the network repeat with a seed,
//! its choices do not, so its figures have a spread. Timers of the runtime have a resolution of 1
//! ms, so messages take up to 1 ms longer than in the other systems.

use std::cmp::Reverse;
use std::collections::{BTreeSet, BinaryHeap};
use std::net::SocketAddr;
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use chitchat::transport::{ChannelTransport, RecvOutcome, SendOutcome, Socket, Transport};
use chitchat::{
    ChitchatConfig, ChitchatEnvelope, ChitchatHandle, ChitchatId, FailureDetectorConfig,
    ProtocolVersion, spawn_chitchat,
};
use membership_testing::{Latency, Network, Rng};
use tokio::sync::{Notify, mpsc};
use tokio::time::Instant;

use crate::arena::{Arena, Failure, Member, Record, Traffic};

/// Of each member, one message in this many is encoded; its size stands for the messages until the
/// next one.
const MEASURED: u64 = 7;
/// The largest datagram.
const LARGEST: usize = 65_507;

struct Delivery {
    at: Instant,
    number: u64,
    to: Member,
    /// The packet; none: the hold of the receiver ends.
    packet: Option<Packet>,
}

struct Packet {
    from: SocketAddr,
    envelope: ChitchatEnvelope,
    bytes: usize,
}

impl PartialEq for Delivery {
    fn eq(&self, other: &Self) -> bool {
        self.number == other.number
    }
}
impl Eq for Delivery {}
impl PartialOrd for Delivery {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}
impl Ord for Delivery {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (self.at, self.number).cmp(&(other.at, other.number))
    }
}

struct Host {
    /// Where it receives packets; none when it does not run.
    packet_tx: Option<mpsc::UnboundedSender<Packet>>,
    held_until: Option<Instant>,
    outbox: Vec<(Member, Packet)>,
    inbox: Vec<Packet>,
    traffic: Traffic,
}

struct State {
    began: Instant,
    network: Network,
    rng: Rng,
    heap: BinaryHeap<Reverse<Delivery>>,
    number: u64,
    hosts: Vec<Host>,
    record: Record,
}

impl State {
    fn schedule(&mut self, at: Instant, to: Member, packet: Option<Packet>) {
        self.number += 1;
        self.heap.push(Reverse(Delivery {
            at,
            number: self.number,
            to,
            packet,
        }));
    }

    fn held(&self, member: Member, now: Instant) -> bool {
        self.hosts
            .get(member)
            .and_then(|host| host.held_until)
            .is_some_and(|until| until > now)
    }

    fn send(&mut self, from: Member, to: Member, packet: Packet, now: Instant) {
        if self.held(from, now) {
            if let Some(host) = self.hosts.get_mut(from) {
                host.outbox.push((to, packet));
            }
            return;
        }
        if let Some(host) = self.hosts.get_mut(from) {
            host.traffic = host.traffic.plus(Traffic {
                messages: 1,
                bytes: packet.bytes as u64,
            });
        }
        if let Some(after) = self.network.delay(from, to, &mut self.rng) {
            self.schedule(now + after, to, Some(packet));
        }
    }

    fn arrive(&mut self, delivery: Delivery, now: Instant) {
        let held = self.held(delivery.to, now);
        let Some(host) = self.hosts.get_mut(delivery.to) else {
            return;
        };
        match delivery.packet {
            Some(packet) if held => host.inbox.push(packet),
            Some(packet) => host.take(packet),
            None if held => {}
            None => {
                for packet in std::mem::take(&mut host.inbox) {
                    host.take(packet);
                }
                for (to, packet) in std::mem::take(&mut host.outbox) {
                    self.send(delivery.to, to, packet, now);
                }
            }
        }
    }
}

impl Host {
    fn take(&self, packet: Packet) {
        if let Some(packet_tx) = &self.packet_tx {
            // A member that has just stopped receives nothing.
            let _ = packet_tx.send(packet);
        }
    }
}

#[derive(Clone)]
struct SharedState {
    state: Arc<Mutex<State>>,
    more: Arc<Notify>,
}

impl SharedState {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Delivers packets when they are due, without end.
    async fn deliver(self) {
        loop {
            let next = {
                let mut state = self.state();
                let now = Instant::now();
                while state
                    .heap
                    .peek()
                    .is_some_and(|Reverse(delivery)| delivery.at <= now)
                {
                    if let Some(Reverse(delivery)) = state.heap.pop() {
                        state.arrive(delivery, now);
                    }
                }
                state.heap.peek().map(|Reverse(delivery)| delivery.at)
            };
            match next {
                Some(at) => tokio::select! {
                    () = tokio::time::sleep_until(at) => {}
                    () = self.more.notified() => {}
                },
                None => self.more.notified().await,
            }
        }
    }
}

struct SimTransport {
    shared: SharedState,
    member: Member,
    encoder: ChannelTransport,
}

struct SimSocket {
    shared: SharedState,
    member: Member,
    packets: mpsc::UnboundedReceiver<Packet>,
    /// The encoding is not public, but the crate's own channel transport uses it: a message to
    /// oneself returns with its length.
    encoder: Box<dyn Socket>,
    sent: u64,
    /// The size of the last measured message.
    bytes: usize,
}

#[async_trait]
impl Transport for SimTransport {
    async fn open(&self, _: SocketAddr) -> anyhow::Result<Box<dyn Socket>> {
        let (packet_tx, packets) = mpsc::unbounded_channel();
        if let Some(host) = self.shared.state().hosts.get_mut(self.member) {
            host.packet_tx = Some(packet_tx);
        }
        // Any free port, because an earlier incarnation of this member may not have released its
        // port yet.
        let encoder = self
            .encoder
            .open((address(self.member).ip(), 0).into())
            .await?;
        Ok(Box::new(SimSocket {
            shared: self.shared.clone(),
            member: self.member,
            packets,
            encoder,
            sent: 0,
            bytes: 0,
        }))
    }
}

#[async_trait]
impl Socket for SimSocket {
    fn local_addr(&self) -> anyhow::Result<SocketAddr> {
        Ok(address(self.member))
    }

    async fn send(
        &mut self,
        to: SocketAddr,
        envelope: ChitchatEnvelope,
    ) -> anyhow::Result<SendOutcome> {
        let mut packet = Packet {
            from: address(self.member),
            envelope,
            bytes: self.bytes,
        };
        if self.sent.is_multiple_of(MEASURED) {
            let myself = self.encoder.local_addr()?;
            packet.bytes = self
                .encoder
                .send(myself, packet.envelope)
                .await?
                .num_bytes_sent;
            packet.envelope = self.encoder.recv().await?.envelope;
            self.bytes = packet.bytes;
        }
        self.sent += 1;
        let bytes = packet.bytes;
        self.shared
            .state()
            .send(self.member, member(to), packet, Instant::now());
        self.shared.more.notify_one();
        Ok(SendOutcome {
            num_bytes_sent: bytes,
        })
    }

    async fn recv(&mut self) -> anyhow::Result<RecvOutcome> {
        match self.packets.recv().await {
            Some(packet) => Ok(RecvOutcome {
                from_addr: packet.from,
                envelope: packet.envelope,
                num_bytes_received: packet.bytes,
            }),
            None => std::future::pending().await,
        }
    }
}

fn address(member: Member) -> SocketAddr {
    let number = u32::try_from(member).unwrap_or(u32::MAX >> 8) | 10 << 24;
    SocketAddr::from((std::net::Ipv4Addr::from(number), 7100))
}

fn member(address: SocketAddr) -> Member {
    match address {
        SocketAddr::V4(v4) => {
            usize::try_from(u32::from(*v4.ip()) & (u32::MAX >> 8)).unwrap_or(usize::MAX)
        }
        SocketAddr::V6(_) => usize::MAX,
    }
}

/// A simulation of chitchat.
pub struct World {
    runtime: tokio::runtime::Runtime,
    shared: SharedState,
    nodes: Vec<(ChitchatHandle, u64)>,
    encoder: ChannelTransport,
    /// Why a member could not be started; the next [`run_for`](Arena::run_for) returns it.
    failure: Option<Failure>,
}

impl World {
    /// A simulation without members.
    ///
    /// # Errors
    /// When the runtime cannot be created.
    pub fn new(seed: u64) -> Result<Self, Failure> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .start_paused(true)
            .build()?;
        let began = {
            let _inside = runtime.enter();
            Instant::now()
        };
        let network = Network::new(Latency::default());
        let (rng, hosts) = (Rng::new(seed), Vec::new());
        let state = State {
            began,
            network,
            rng,
            heap: BinaryHeap::new(),
            number: 0,
            hosts,
            record: Record::default(),
        };
        let shared = SharedState {
            state: Arc::new(Mutex::new(state)),
            more: Arc::new(Notify::new()),
        };
        runtime.spawn(shared.clone().deliver());
        Ok(Self {
            runtime,
            shared,
            nodes: Vec::new(),
            encoder: ChannelTransport::with_mtu(LARGEST),
            failure: None,
        })
    }

    /// Advances virtual time.
    fn pass(&self, time: Duration) {
        self.runtime
            .block_on(async { tokio::time::sleep(time).await });
    }

    fn clock(&self) -> Instant {
        let _inside = self.runtime.enter();
        Instant::now()
    }

    fn spawn(&self, member: Member, generation: u64) -> Result<ChitchatHandle, Failure> {
        let me = address(member);
        let config = ChitchatConfig {
            chitchat_id: ChitchatId::new(format!("node-{member}"), generation, me),
            cluster_id: "default-cluster".to_owned(),
            gossip_interval: Duration::from_secs(1),
            listen_addr: me,
            seed_nodes: if member == 0 {
                Vec::new()
            } else {
                vec![address(0).to_string()]
            },
            failure_detector_config: FailureDetectorConfig::default(),
            marked_for_deletion_grace_period: Duration::from_secs(15 * 60),
            catchup_callback: None,
            extra_liveness_predicate: None,
            protocol_version: ProtocolVersion::V0,
        };
        let transport = SimTransport {
            shared: self.shared.clone(),
            member,
            encoder: self.encoder.clone(),
        };
        let handle = self
            .runtime
            .block_on(spawn_chitchat(config, Vec::new(), &transport))
            .map_err(|e| Failure::new(e.to_string()))?;
        let (shared, node) = (self.shared.clone(), handle.chitchat());
        self.runtime.spawn(async move {
            let mut watcher = node.lock().await.live_nodes_watcher();
            drop(node);
            let mut known: BTreeSet<ChitchatId> = BTreeSet::new();
            while watcher.changed().await.is_ok() {
                let live: BTreeSet<ChitchatId> =
                    watcher.borrow_and_update().keys().cloned().collect();
                let mut state = shared.state();
                let now = state.began.elapsed();
                for gone in known.difference(&live) {
                    state
                        .record
                        .died(now, member, self::member(gone.gossip_advertise_addr));
                }
                if live != known {
                    state.record.counts(now, member, live.len());
                }
                drop(state);
                known = live;
            }
        });
        Ok(handle)
    }
}

impl Arena for World {
    fn now(&self) -> Duration {
        let began = self.shared.state().began;
        self.clock() - began
    }

    fn start(&mut self, members: usize, within: Duration) -> Range<Member> {
        let first = self.nodes.len();
        let step = within / u32::try_from(members).unwrap_or(u32::MAX).max(1);
        for member in first..first + members {
            let host = Host {
                packet_tx: None,
                held_until: None,
                outbox: Vec::new(),
                inbox: Vec::new(),
                traffic: Traffic::default(),
            };
            self.shared.state().hosts.push(host);
            match self.spawn(member, 1) {
                Ok(node) => self.nodes.push((node, 1)),
                Err(failure) => {
                    self.failure = Some(failure);
                    break;
                }
            }
            self.pass(step);
        }
        first..self.nodes.len()
    }

    fn kill(&mut self, member: Member) {
        if let Some((node, _)) = self.nodes.get(member) {
            node.abort();
        }
        if let Some(host) = self.shared.state().hosts.get_mut(member) {
            host.packet_tx = None;
        }
    }

    fn restart(&mut self, member: Member) {
        self.kill(member);
        let Some(generation) = self.nodes.get(member).map(|(_, generation)| generation + 1) else {
            return;
        };
        match (self.spawn(member, generation), self.nodes.get_mut(member)) {
            (Ok(node), Some(slot)) => *slot = (node, generation),
            (Ok(_), None) => {}
            (Err(failure), _) => self.failure = Some(failure),
        }
    }

    fn hold(&mut self, member: Member, time: Duration) {
        let until = self.clock() + time;
        let mut state = self.shared.state();
        if let Some(host) = state.hosts.get_mut(member) {
            host.held_until = Some(until);
        }
        state.schedule(until, member, None);
        drop(state);
        self.shared.more.notify_one();
    }

    fn pause(&mut self, member: Member, time: Duration) {
        // The member's loop locks its state for everything, so a lock on the state pauses the
        // member.
        let Some(state) = self.nodes.get(member).map(|(node, _)| node.chitchat()) else {
            return;
        };
        self.runtime.spawn(async move {
            let _state = state.lock().await;
            tokio::time::sleep(time).await;
        });
    }

    fn loss(&mut self, member: Member, egress: f64, ingress: f64) {
        let mut state = self.shared.state();
        state.network.set_egress_loss(member, egress);
        state.network.set_ingress_loss(member, ingress);
    }

    fn partition(&mut self, groups: &[Vec<Member>]) {
        let mut state = self.shared.state();
        crate::peers::world::split(&mut state.network, self.nodes.len(), groups);
    }

    fn run_for(&mut self, time: Duration) -> Result<(), Failure> {
        if let Some(failure) = &self.failure {
            return Err(failure.clone());
        }
        self.pass(time);
        Ok(())
    }

    fn record(&self) -> Record {
        self.shared.state().record.clone()
    }

    fn all_count(&self, members: Range<Member>, size: usize) -> Option<Duration> {
        self.record().all_count(members, size)
    }

    fn forget(&mut self) {
        self.shared.state().record.forget();
    }

    fn sent(&self, member: Member) -> Traffic {
        self.shared
            .state()
            .hosts
            .get(member)
            .map_or_else(Traffic::default, |host| host.traffic)
    }
}
