//! chitchat: scuttlebutt reconciliation and a phi accrual failure detector on each member, the crate itself over a transport of this
//! world, on a runtime of its own whose clock stands still whenever somebody has something to do.
//!
//! First detection is the first moment at which a member drops from the live nodes that another one publishes to its watchers; a false
//! death is that of a member that was running. A member comes back by itself once it is heard of again. Settings are those of chitchat's
//! own defaults: gossip every second with three members, phi 8, first interval 5 s, longest 10 s. It draws whom to gossip with from a
//! generator of its thread: the faults and the network repeat with a seed, its choices do not, so that figures of it come with their
//! spread. Timers of the runtime have a resolution of 1 ms, so that messages take up to 1 ms longer than elsewhere.

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
use membership_core::testing::{Dice, Latency, Network};
use tokio::sync::{Notify, mpsc};
use tokio::time::Instant;

use crate::arena::{Arena, Member, Record, Traffic, Trouble};

/// One message in so many of each member is encoded; what it takes stands for those until the next one.
const MEASURED: u64 = 7;
/// What a datagram holds at most.
const LARGEST: usize = 65_507;

struct Mail {
    at: Instant,
    number: u64,
    to: Member,
    /// Whose mail it is; none: what was held is released.
    letter: Option<Letter>,
}

struct Letter {
    from: SocketAddr,
    envelope: ChitchatEnvelope,
    bytes: usize,
}

impl PartialEq for Mail {
    fn eq(&self, other: &Self) -> bool {
        self.number == other.number
    }
}
impl Eq for Mail {}
impl PartialOrd for Mail {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}
impl Ord for Mail {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (self.at, self.number).cmp(&(other.at, other.number))
    }
}

struct Place {
    /// Where it takes its mail; none when it does not run.
    door: Option<mpsc::UnboundedSender<Letter>>,
    held_until: Option<Instant>,
    outbox: Vec<(Member, Letter)>,
    inbox: Vec<Letter>,
    traffic: Traffic,
}

struct Post {
    began: Instant,
    network: Network,
    dice: Dice,
    heap: BinaryHeap<Reverse<Mail>>,
    number: u64,
    places: Vec<Place>,
    record: Record,
}

impl Post {
    fn plan(&mut self, at: Instant, to: Member, letter: Option<Letter>) {
        self.number += 1;
        self.heap.push(Reverse(Mail {
            at,
            number: self.number,
            to,
            letter,
        }));
    }

    fn held(&self, member: Member, now: Instant) -> bool {
        self.places
            .get(member)
            .and_then(|place| place.held_until)
            .is_some_and(|until| until > now)
    }

    fn send(&mut self, from: Member, to: Member, letter: Letter, now: Instant) {
        if self.held(from, now) {
            if let Some(place) = self.places.get_mut(from) {
                place.outbox.push((to, letter));
            }
            return;
        }
        if let Some(place) = self.places.get_mut(from) {
            place.traffic = place.traffic.plus(Traffic {
                messages: 1,
                bytes: letter.bytes as u64,
            });
        }
        if let Some(after) = self.network.carry(from, to, &mut self.dice) {
            self.plan(now + after, to, Some(letter));
        }
    }

    fn arrive(&mut self, mail: Mail, now: Instant) {
        let held = self.held(mail.to, now);
        let Some(place) = self.places.get_mut(mail.to) else {
            return;
        };
        match mail.letter {
            Some(letter) if held => place.inbox.push(letter),
            Some(letter) => place.take(letter),
            None if held => {}
            None => {
                for letter in std::mem::take(&mut place.inbox) {
                    place.take(letter);
                }
                for (to, letter) in std::mem::take(&mut place.outbox) {
                    self.send(mail.to, to, letter, now);
                }
            }
        }
    }
}

impl Place {
    fn take(&self, letter: Letter) {
        if let Some(door) = &self.door {
            // Whoever has just stopped takes nothing.
            let _ = door.send(letter);
        }
    }
}

#[derive(Clone)]
struct Office {
    post: Arc<Mutex<Post>>,
    more: Arc<Notify>,
}

impl Office {
    fn post(&self) -> MutexGuard<'_, Post> {
        self.post.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Delivers what is due, for ever.
    async fn deliver(self) {
        loop {
            let next = {
                let mut post = self.post();
                let now = Instant::now();
                while post.heap.peek().is_some_and(|Reverse(mail)| mail.at <= now) {
                    if let Some(Reverse(mail)) = post.heap.pop() {
                        post.arrive(mail, now);
                    }
                }
                post.heap.peek().map(|Reverse(mail)| mail.at)
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

struct Wire {
    office: Office,
    member: Member,
    coder: ChannelTransport,
}

struct Line {
    office: Office,
    member: Member,
    mail: mpsc::UnboundedReceiver<Letter>,
    /// Encoding is not public, but the crate's own transport between channels does it: a message to oneself comes back with its length.
    coder: Box<dyn Socket>,
    sent: u64,
    /// Of the message that was measured last.
    bytes: usize,
}

#[async_trait]
impl Transport for Wire {
    async fn open(&self, _: SocketAddr) -> anyhow::Result<Box<dyn Socket>> {
        let (door, mail) = mpsc::unbounded_channel();
        if let Some(place) = self.office.post().places.get_mut(self.member) {
            place.door = Some(door);
        }
        // Any port that is free: an earlier life of this member may not have let go of its own yet.
        let coder = self
            .coder
            .open((address(self.member).ip(), 0).into())
            .await?;
        Ok(Box::new(Line {
            office: self.office.clone(),
            member: self.member,
            mail,
            coder,
            sent: 0,
            bytes: 0,
        }))
    }
}

#[async_trait]
impl Socket for Line {
    fn local_addr(&self) -> anyhow::Result<SocketAddr> {
        Ok(address(self.member))
    }

    async fn send(
        &mut self,
        to: SocketAddr,
        envelope: ChitchatEnvelope,
    ) -> anyhow::Result<SendOutcome> {
        let mut letter = Letter {
            from: address(self.member),
            envelope,
            bytes: self.bytes,
        };
        if self.sent.is_multiple_of(MEASURED) {
            let myself = self.coder.local_addr()?;
            letter.bytes = self
                .coder
                .send(myself, letter.envelope)
                .await?
                .num_bytes_sent;
            letter.envelope = self.coder.recv().await?.envelope;
            self.bytes = letter.bytes;
        }
        self.sent += 1;
        let bytes = letter.bytes;
        self.office
            .post()
            .send(self.member, member(to), letter, Instant::now());
        self.office.more.notify_one();
        Ok(SendOutcome {
            num_bytes_sent: bytes,
        })
    }

    async fn recv(&mut self) -> anyhow::Result<RecvOutcome> {
        match self.mail.recv().await {
            Some(letter) => Ok(RecvOutcome {
                from_addr: letter.from,
                envelope: letter.envelope,
                num_bytes_received: letter.bytes,
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

/// A world of chitchat.
pub struct World {
    runtime: tokio::runtime::Runtime,
    office: Office,
    nodes: Vec<(ChitchatHandle, u64)>,
    coder: ChannelTransport,
    /// Why a member could not be started: whoever lets time pass next hears of it.
    trouble: Option<Trouble>,
}

impl World {
    /// One without anybody.
    ///
    /// # Errors
    /// When there is no runtime.
    pub fn new(seed: u64) -> Result<Self, Trouble> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .start_paused(true)
            .build()?;
        let began = {
            let _inside = runtime.enter();
            Instant::now()
        };
        let network = Network::new(Latency::default());
        let (dice, places) = (Dice::new(seed), Vec::new());
        let post = Post {
            began,
            network,
            dice,
            heap: BinaryHeap::new(),
            number: 0,
            places,
            record: Record::default(),
        };
        let office = Office {
            post: Arc::new(Mutex::new(post)),
            more: Arc::new(Notify::new()),
        };
        runtime.spawn(office.clone().deliver());
        Ok(Self {
            runtime,
            office,
            nodes: Vec::new(),
            coder: ChannelTransport::with_mtu(LARGEST),
            trouble: None,
        })
    }

    /// Lets time pass.
    fn pass(&self, time: Duration) {
        self.runtime
            .block_on(async { tokio::time::sleep(time).await });
    }

    fn clock(&self) -> Instant {
        let _inside = self.runtime.enter();
        Instant::now()
    }

    fn spawn(&self, member: Member, generation: u64) -> Result<ChitchatHandle, Trouble> {
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
        let wire = Wire {
            office: self.office.clone(),
            member,
            coder: self.coder.clone(),
        };
        let handle = self
            .runtime
            .block_on(spawn_chitchat(config, Vec::new(), &wire))
            .map_err(|e| Trouble::new(e.to_string()))?;
        let (office, node) = (self.office.clone(), handle.chitchat());
        self.runtime.spawn(async move {
            let mut watcher = node.lock().await.live_nodes_watcher();
            drop(node);
            let mut known: BTreeSet<ChitchatId> = BTreeSet::new();
            while watcher.changed().await.is_ok() {
                let live: BTreeSet<ChitchatId> =
                    watcher.borrow_and_update().keys().cloned().collect();
                let mut post = office.post();
                let now = post.began.elapsed();
                for gone in known.difference(&live) {
                    post.record
                        .died(now, member, self::member(gone.gossip_advertise_addr));
                }
                if live != known {
                    post.record.counts(now, member, live.len());
                }
                drop(post);
                known = live;
            }
        });
        Ok(handle)
    }
}

impl Arena for World {
    fn now(&self) -> Duration {
        let began = self.office.post().began;
        self.clock() - began
    }

    fn start(&mut self, members: usize, within: Duration) -> Range<Member> {
        let first = self.nodes.len();
        let step = within / u32::try_from(members).unwrap_or(u32::MAX).max(1);
        for member in first..first + members {
            let place = Place {
                door: None,
                held_until: None,
                outbox: Vec::new(),
                inbox: Vec::new(),
                traffic: Traffic::default(),
            };
            self.office.post().places.push(place);
            match self.spawn(member, 1) {
                Ok(node) => self.nodes.push((node, 1)),
                Err(trouble) => {
                    self.trouble = Some(trouble);
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
        if let Some(place) = self.office.post().places.get_mut(member) {
            place.door = None;
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
            (Err(trouble), _) => self.trouble = Some(trouble),
        }
    }

    fn hold(&mut self, member: Member, time: Duration) {
        let until = self.clock() + time;
        let mut post = self.office.post();
        if let Some(place) = post.places.get_mut(member) {
            place.held_until = Some(until);
        }
        post.plan(until, member, None);
        drop(post);
        self.office.more.notify_one();
    }

    fn pause(&mut self, member: Member, time: Duration) {
        // Its one loop needs its state for whatever it does: whoever holds that stops the loop.
        let Some(state) = self.nodes.get(member).map(|(node, _)| node.chitchat()) else {
            return;
        };
        self.runtime.spawn(async move {
            let _state = state.lock().await;
            tokio::time::sleep(time).await;
        });
    }

    fn loss(&mut self, member: Member, egress: f64, ingress: f64) {
        let mut post = self.office.post();
        post.network.set_egress_loss(member, egress);
        post.network.set_ingress_loss(member, ingress);
    }

    fn partition(&mut self, groups: &[Vec<Member>]) {
        let mut post = self.office.post();
        crate::peers::world::split(&mut post.network, self.nodes.len(), groups);
    }

    fn run_for(&mut self, time: Duration) -> Result<(), Trouble> {
        if let Some(trouble) = &self.trouble {
            return Err(trouble.clone());
        }
        self.pass(time);
        Ok(())
    }

    fn record(&self) -> Record {
        self.office.post().record.clone()
    }

    fn all_count(&self, members: Range<Member>, size: usize) -> Option<Duration> {
        self.record().all_count(members, size)
    }

    fn forget(&mut self) {
        self.office.post().record.forget();
    }

    fn sent(&self, member: Member) -> Traffic {
        self.office
            .post()
            .places
            .get(member)
            .map_or_else(Traffic::default, |place| place.traffic)
    }
}
