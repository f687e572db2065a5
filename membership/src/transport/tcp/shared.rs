//! What all tasks of one transport share: its bounds, its counters, and every connection it has.

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use membership_core::protocol::{LinkId, PeerIdentity};
use membership_core::{ClusterView, InstanceId, SiloAddress};
use tokio::runtime::Handle;
use tokio::sync::watch;
use tokio::time::Instant;

use super::config::TcpConfig;
use super::counters::{Counters, sub};
use super::handshake::Me;
use super::link::{Ends, Link};
use super::queue::{Bounds, Queue};
use super::recent::Recent;
use super::refusals::Refusals;
use super::roll::{Roll, Standing};
use super::sources::{self, Handshake, Sources};
use super::turns::{Pace, Turns};
use crate::transport::tls::{Secret, Tls};
use crate::transport::{Hello, Inbox, Kind};

/// Incoming connections of one process. A silo has one, and for some seconds a few that it dialled
/// afresh.
const MAX_LINKS_OF_A_PEER: usize = 16;
/// Handshakes that an address of silos may begin to compute within a second, and that all of them
/// may: twice as many. Hundreds of silos may start on one machine.
const NEIGHBOURS_PACE: usize = 1000;
/// The part of the time of a handshake in which it makes no room for others, once its turn has
/// come. A stranger's address has too few turns to fill its places for as long.
const GRACE: u32 = 8;
/// A time that timers never reach.
const LONGEST_IDLE: Duration = Duration::from_secs(365 * 24 * 3600);

/// Where a transport is in its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    Running,
    /// Queued messages are sent; nothing new begins.
    Draining,
    /// Everything ends at once.
    Closed,
}

/// What all tasks of one transport share.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) config: TcpConfig,
    /// None without TLS.
    pub(super) tls: Option<Tls>,
    pub(super) counters: Arc<Counters>,
    pub(super) refusals: Refusals,
    /// Incoming connections, including those in their handshake.
    pub(super) incoming: Arc<AtomicUsize>,
    /// Handshakes from addresses at which the view has no silo.
    strangers: Gate,
    /// Handshakes from the other addresses, and from those at which members were of late.
    neighbours: Gate,
    /// Bytes of unfinished messages on all connections.
    pub(super) reassembly: AtomicUsize,
    pub(super) fresh_dials: Arc<AtomicUsize>,
    pub(super) fresh: Arc<AtomicUsize>,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
pub(super) struct State {
    /// The rows of the confirmed view.
    roll: Arc<Roll>,
    recent: Recent,
    /// Kept to the end: a dial that began before the shutdown may still deliver a farewell.
    me: Option<Me>,
    pub(super) running: Option<Running>,
    /// Every open connection.
    pub(super) links: HashMap<LinkId, Arc<Link>>,
    /// Where messages to an endpoint go.
    pub(super) peers: HashMap<SocketAddr, Peer>,
    last_link: u64,
}

#[derive(Debug)]
pub(super) struct Running {
    pub(super) inbox: Arc<dyn Inbox>,
    pub(super) phase: watch::Receiver<Phase>,
    pub(super) runtime: Handle,
}

#[derive(Debug, Default)]
pub(super) struct Peer {
    pub(super) link: Option<Arc<Link>>,
    /// What waits for the dial under way.
    pub(super) dial: Option<Arc<Queue>>,
}

impl Shared {
    pub(super) fn new(mut config: TcpConfig, tls: Option<Tls>) -> Self {
        config.idle_timeout = config.idle_timeout.min(LONGEST_IDLE);
        let counters: Arc<Counters> = Arc::default();
        let all = config.max_incoming_handshakes;
        let of_strangers = config.max_handshakes_of_strangers.min(all);
        let grace = config.handshake_timeout / GRACE;
        let strangers = Gate::new(
            sources::Bounds {
                all: of_strangers,
                open: config.max_handshakes_per_address,
                grace,
            },
            Pace {
                all: config.max_handshakes_of_strangers_per_second,
                each: config.max_handshakes_per_second,
            },
        );
        let neighbours = Gate::new(
            sources::Bounds {
                all: (all - of_strangers).max(1),
                open: config.max_handshakes_per_silo_address,
                grace,
            },
            Pace {
                all: 2 * NEIGHBOURS_PACE,
                each: NEIGHBOURS_PACE,
            },
        );
        Self {
            config,
            tls,
            refusals: Refusals::new(counters.clone()),
            counters,
            incoming: Arc::default(),
            strangers,
            neighbours,
            reassembly: AtomicUsize::new(0),
            fresh_dials: Arc::default(),
            fresh: Arc::default(),
            state: Mutex::default(),
        }
    }

    pub(super) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn begin(
        &self,
        hello: Hello,
        inbox: Arc<dyn Inbox>,
        phase: watch::Receiver<Phase>,
        runtime: Handle,
    ) {
        let mut state = self.state();
        let mut me = Me::from(&hello);
        if hello.kind == Kind::Gossip {
            state.roll = Arc::new(Roll::without_table(&[]));
            me.roll = state.roll.clone();
        }
        if let Some(tls) = &self.tls {
            me.instance = tls.instance();
            me.key = Some(tls.key().clone());
        }
        state.me = Some(me);
        state.running = Some(Running {
            inbox,
            phase,
            runtime,
        });
    }

    /// No new dials, and no new messages.
    pub(super) fn end(&self) {
        self.state().running = None;
    }

    pub(super) fn update(&self, silo: Option<SiloAddress>, view: &ClusterView) {
        self.know(silo, Some(view.clone()), Roll::new(view));
    }

    /// The same without a table.
    pub(super) fn update_members(&self, me: SiloAddress, members: &[(SiloAddress, InstanceId)]) {
        self.know(Some(me), None, Roll::without_table(members));
    }

    /// From which address the other side dialled a connection.
    pub(super) fn dialled_from(&self, link: LinkId) -> Option<IpAddr> {
        self.state().links.get(&link).and_then(|link| link.from())
    }

    fn know(&self, silo: Option<SiloAddress>, view: Option<ClusterView>, roll: Roll) {
        let roll = Arc::new(roll);
        let mut state = self.state();
        let mut revoked = false;
        if let Some(me) = &mut state.me {
            let before = me.cluster_keys();
            (me.silo, me.view, me.roll) = (silo, view, roll.clone());
            revoked = !me.cluster_keys().include(&before);
        }
        for link in state.links.values() {
            link.judge(roll.standing(link.instance), revoked);
        }
        let State { links, recent, .. } = &mut *state;
        for link in links.values() {
            link.note_source(recent);
        }
        state.roll = roll;
    }

    /// A place for the handshake of a connection from this address; none if there are too many.
    pub(super) fn admit(&self, from: IpAddr) -> Option<Admission> {
        let connection = Permit::take(&self.incoming, self.config.max_incoming)?;
        let now = Instant::now();
        let gate = if self.state().is_neighbour(from, now) {
            &self.neighbours
        } else {
            &self.strangers
        };
        let source = gate.sources.begin(from, gate.bounds, now)?;
        Some(Admission {
            connection,
            handshake: InHandshake {
                source,
                turns: gate.turns.clone(),
            },
        })
    }

    /// The certificate of somebody at this address was refused, before its process was known.
    pub(super) fn refuse_certificate_of(&self, from: IpAddr, why: &str) {
        if self.state().roll.has_host(from) {
            self.refusals.certificate_at(from, why);
        }
    }

    /// What a handshake needs to know now; none before the start.
    pub(super) fn me(&self) -> Option<Me> {
        let mut me = self.state().me.clone()?;
        me.secret = self.config.security.secret().map(Secret::keys);
        me.needs_certificates = self.tls.as_ref().is_some_and(Tls::needs_certificates);
        Some(me)
    }

    pub(super) fn new_queue(&self) -> Arc<Queue> {
        let bounds = Bounds {
            messages: self.config.max_queued_messages,
            bytes: self.config.max_queued_bytes,
            in_all: self.config.max_queued_bytes_in_all,
        };
        Arc::new(Queue::new(bounds, self.counters.clone()))
    }

    /// Takes an idle link out of use, unless a message waits in it. True = it takes no more
    /// messages.
    pub(super) fn retire(&self, link: &Link) -> bool {
        let mut state = self.state();
        let idle = link.queue.is_empty();
        if idle {
            state.take_out(link.id);
            link.queue.close();
        }
        idle
    }

    /// Closes the largest connection of the process whose unfinished messages hold the most bytes,
    /// so that one peer cannot have honest ones closed.
    pub(super) fn cut_the_largest(&self) {
        let state = self.state();
        let mut held: HashMap<InstanceId, usize> = HashMap::new();
        for link in state.links.values() {
            *held.entry(link.instance).or_default() += link.held.load(Relaxed);
        }
        let largest = held.into_iter().max_by_key(|(_, bytes)| *bytes);
        let link = largest.and_then(|(instance, _)| {
            let links = state.links.values().filter(|l| l.instance == instance);
            links.max_by_key(|link| link.held.load(Relaxed))
        });
        if let Some(link) = link {
            link.cut.notify_one();
        }
    }

    /// Counts a new incoming connection. If its peer has too many of them, the oldest is closed.
    pub(super) fn limit_links_of(&self, new: &Link) {
        if new.peer == PeerIdentity::Unproven {
            return;
        }
        let state = self.state();
        // One that is Dead needs none but for its farewell.
        let most = match new.standing() {
            Standing::Dead => 1,
            Standing::Newcomer | Standing::Member => MAX_LINKS_OF_A_PEER,
        };
        state.limit_incoming(most, |link| link.peer == new.peer);
        // Who has read the table once can be many processes: room for members is left.
        let most = self.config.max_incoming.div_ceil(2);
        state.limit_incoming(most, |link| link.standing() != Standing::Member);
    }

    pub(super) fn forget(&self, link: &Link) {
        self.state().take_out(link.id);
        link.queue.close();
        sub(&self.counters.open, 1);
    }
}

impl State {
    /// Whether a silo is at this address, or dials from there.
    fn is_neighbour(&mut self, from: IpAddr, now: Instant) -> bool {
        if self.roll.has_host(from) || self.recent.has(from, now) {
            return true;
        }
        if self.recent.knows(from) {
            // It was seen long ago. Its link may have lasted since.
            self.recent.forget(from);
            for link in self.links.values() {
                link.note_source(&mut self.recent);
            }
        }
        self.recent.has(from, now)
    }

    pub(super) fn add(&mut self, ends: Ends, queue: Arc<Queue>) -> Arc<Link> {
        self.last_link += 1;
        let keys = self.me.as_ref().map(Me::cluster_keys).unwrap_or_default();
        let revoked = !keys.include(&ends.keys);
        let link = Arc::new(Link::new(LinkId(self.last_link), ends, queue));
        // The view may have changed since the handshake.
        link.judge(self.roll.standing(link.instance), revoked);
        link.note_source(&mut self.recent);
        self.links.insert(link.id, link.clone());
        link
    }

    /// Closes the oldest of some incoming connections if there are more than `most`.
    fn limit_incoming(&self, most: usize, which: impl Fn(&Link) -> bool) {
        let some = self.links.values().filter(|l| l.incoming && which(l));
        let (count, oldest) = some.fold((0, None), |(count, oldest), link| {
            let older = oldest.filter(|old: &&Arc<Link>| old.id < link.id);
            (count + 1, older.or(Some(link)))
        });
        if let Some(link) = oldest.filter(|_| count > most) {
            link.surplus.notify_one();
        }
    }

    fn take_out(&mut self, id: LinkId) {
        if let Some(link) = self.links.remove(&id) {
            link.note_source(&mut self.recent);
        }
        self.peers.retain(|_, peer| {
            if peer.link.as_ref().is_some_and(|l| l.id == id) {
                peer.link = None;
            }
            peer.link.is_some() || peer.dial.is_some()
        });
    }
}

/// The places that a connection takes.
#[derive(Debug)]
pub(super) struct Admission {
    /// Until it is closed.
    pub(super) connection: Permit,
    /// Until its handshake has ended.
    pub(super) handshake: InHandshake,
}

/// A handshake of which the other side has proven nothing.
#[derive(Debug)]
pub(super) struct InHandshake {
    source: Handshake,
    turns: Arc<Turns>,
}

impl InHandshake {
    /// Waits until it must make room for another one.
    pub(super) async fn evicted(&self) {
        self.source.evicted().await;
    }

    /// Waits until it may compute, now that the other side has said what it wants.
    pub(super) async fn turn(&self) {
        self.source.waits();
        self.turns.take(self.source.from()).await;
        self.source.goes_on();
    }
}

/// What bounds the handshakes of some addresses.
#[derive(Debug)]
struct Gate {
    bounds: sources::Bounds,
    sources: Arc<Sources>,
    turns: Arc<Turns>,
}

impl Gate {
    fn new(bounds: sources::Bounds, pace: Pace) -> Self {
        Self {
            bounds,
            sources: Arc::default(),
            turns: Arc::new(Turns::new(pace)),
        }
    }
}

/// One of a bounded number of permits; dropping it gives it back.
#[derive(Debug)]
pub(super) struct Permit(Arc<AtomicUsize>);

impl Permit {
    /// A permit, unless all `limit` of them are taken.
    pub(super) fn take(taken: &Arc<AtomicUsize>, limit: usize) -> Option<Self> {
        if taken.fetch_add(1, Relaxed) < limit {
            return Some(Self(taken.clone()));
        }
        taken.fetch_sub(1, Relaxed);
        None
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Relaxed);
    }
}
