//! Which connection a message takes.
//!
//! Messages to an endpoint take a connection that this side dialled, never one that merely claims to come from there: a wrong or forged
//! claim can then not draw messages to itself. Incoming connections carry answers only. Two silos that probe each other have two.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::atomic::AtomicUsize;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use membership_core::protocol::{Destination, LinkId};
use membership_core::{InstanceId, SiloAddress, TableId};
use tokio::runtime::Handle;
use tokio::sync::watch;
use tokio::time::{Instant, sleep, timeout};

use super::TcpConfig;
use super::connect::{self, Connection, Place};
use super::counters::{Counters, add, sub};
use super::handshake::Introduction;
use super::link::{self, Link};
use super::queue::{Bounds, Item, Queue};
use crate::transport::{EncodeCache, Hello, Inbox};

/// A dead endpoint is dialled at most this often, however much is sent to it; a message waits for the next dial. Short, because the first
/// probe to a silo that came back should get through.
const DIAL_FLOOR: Duration = Duration::from_millis(100);
/// How long a connection that was dialled for one message stays open for answers, and how long a replaced one does.
const LINGER: Duration = Duration::from_secs(10);
/// How many fresh dials may be under way.
const MAX_FRESH_DIALS: usize = 256;
/// How many connections that were dialled for one message each may stand, and for how long, whatever the other side says on them.
const MAX_FRESH: usize = 16_384;
const FRESH_LIFE: Duration = Duration::from_secs(60);
/// Both sides close idle connections; the side that dialled does it first, because only it sends there unasked.
const INCOMING_IDLE_EXTRA: Duration = Duration::from_secs(30);

/// "Never", as far as timers are concerned.
const LONGEST_IDLE: Duration = Duration::from_secs(365 * 24 * 3600);

/// Where a transport is in its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    Running,
    /// What is queued is sent, nothing new begins.
    Draining,
    /// Everything ends now.
    Closed,
}

/// What all tasks of one transport share.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) config: TcpConfig,
    pub(super) counters: Arc<Counters>,
    pub(super) cache: EncodeCache,
    /// Incoming connections, those in their handshake among them.
    pub(super) incoming: Arc<AtomicUsize>,
    pub(super) in_handshake: Arc<AtomicUsize>,
    /// Bytes of unfinished messages on all connections.
    pub(super) reassembly: AtomicUsize,
    fresh_dials: Arc<AtomicUsize>,
    fresh: Arc<AtomicUsize>,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// Kept to the end: a dial that began before the shutdown may still deliver a farewell.
    hello: Option<Hello>,
    running: Option<Running>,
    /// Every open connection.
    links: HashMap<LinkId, Arc<Link>>,
    /// Where messages to an endpoint go.
    peers: HashMap<SocketAddr, Peer>,
    last_link: u64,
}

#[derive(Debug)]
struct Running {
    inbox: Inbox,
    phase: watch::Receiver<Phase>,
    runtime: Handle,
}

#[derive(Debug, Default)]
struct Peer {
    link: Option<Arc<Link>>,
    /// What waits for the dial under way.
    dial: Option<Arc<Queue>>,
}

impl Shared {
    pub(super) fn new(mut config: TcpConfig) -> Self {
        config.idle_timeout = config.idle_timeout.min(LONGEST_IDLE);
        Self {
            config,
            counters: Arc::default(),
            cache: EncodeCache::default(),
            incoming: Arc::default(),
            in_handshake: Arc::default(),
            reassembly: AtomicUsize::new(0),
            fresh_dials: Arc::default(),
            fresh: Arc::default(),
            state: Mutex::default(),
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn begin(
        &self,
        hello: Hello,
        inbox: Inbox,
        phase: watch::Receiver<Phase>,
        runtime: Handle,
    ) {
        let mut state = self.state();
        state.hello = Some(hello);
        state.running = Some(Running {
            inbox,
            phase,
            runtime,
        });
    }

    /// No new dials, and nothing more is taken to be sent.
    pub(super) fn end(&self) {
        self.state().running = None;
    }

    pub(super) fn update(&self, silo: SiloAddress, table_id: Option<TableId>, version: u64) {
        if let Some(hello) = &mut self.state().hello {
            (hello.silo, hello.table_id, hello.version) = (Some(silo), table_id, version);
        }
    }

    /// What a handshake says now; none before the start.
    pub(super) fn introduction(&self) -> Option<Introduction> {
        self.state().hello.as_ref().map(Introduction::from)
    }

    fn new_queue(&self) -> Arc<Queue> {
        let bounds = Bounds {
            messages: self.config.max_queued_messages,
            bytes: self.config.max_queued_bytes,
        };
        Arc::new(Queue::new(bounds, self.counters.clone()))
    }

    /// Hands a message to a connection, or begins to make one.
    pub(super) fn send(self: &Arc<Self>, to: Destination, item: Item) {
        let mut state = self.state();
        let State {
            running: Some(running),
            links,
            peers,
            ..
        } = &mut *state
        else {
            return add(&self.counters.dropped_no_connection, 1);
        };
        match to {
            Destination::Link(id) => match links.get(&id) {
                Some(link) => {
                    link.queue.push(item);
                }
                None => add(&self.counters.dropped_no_connection, 1),
            },
            Destination::Endpoint(to) => {
                let to = canonical(to);
                let peer = peers.entry(to).or_default();
                let dropped = match (&peer.link, &peer.dial) {
                    (Some(link), _) if !link.is_doubtful() => link.send(item),
                    (_, Some(waiting)) => waiting.push(item),
                    (_, None) => {
                        let queue = self.new_queue();
                        let dropped = queue.push(item);
                        peer.dial = Some(queue.clone());
                        let task = self.clone().connect(
                            to,
                            queue,
                            running.inbox.clone(),
                            running.phase.clone(),
                        );
                        running.runtime.spawn(task);
                        dropped
                    }
                };
                if dropped > 0 {
                    running.inbox.failed(to, format!("{to} does not take messages as fast as they are sent; the oldest were dropped"));
                }
            }
            Destination::Fresh(to) => {
                let to = canonical(to);
                let Some(place) = Place::take(&self.fresh_dials, MAX_FRESH_DIALS) else {
                    add(&self.counters.dropped_no_connection, 1);
                    return running.inbox.failed(
                        to,
                        format!("did not dial {to}: {MAX_FRESH_DIALS} dials are under way"),
                    );
                };
                let Some(life) = Place::take(&self.fresh, MAX_FRESH) else {
                    add(&self.counters.dropped_no_connection, 1);
                    return running
                        .inbox
                        .failed(to, format!("did not dial {to}: {MAX_FRESH} connections for one message each stand already"));
                };
                let queue = self.new_queue();
                queue.push(item);
                let places = (place, life);
                let task = self.clone().connect_fresh(
                    to,
                    queue,
                    places,
                    running.inbox.clone(),
                    running.phase.clone(),
                );
                running.runtime.spawn(task);
            }
        }
    }

    /// Reports that a message is too large to be sent at all.
    pub(super) fn refuse_too_large(&self, to: Destination, bytes: usize) {
        add(&self.counters.dropped_too_large, 1);
        tracing::warn!(
            bytes,
            limit = self.config.max_message_bytes,
            "message dropped: larger than any message may be"
        );
        if let (Destination::Endpoint(to) | Destination::Fresh(to), Some(running)) =
            (to, &self.state().running)
        {
            running.inbox.failed(
                to,
                format!("a message of {bytes} bytes is larger than any message may be"),
            );
        }
    }

    /// Dials until there is a connection or nothing to send, and then carries messages.
    async fn connect(
        self: Arc<Self>,
        to: SocketAddr,
        queue: Arc<Queue>,
        inbox: Inbox,
        phase: watch::Receiver<Phase>,
    ) {
        loop {
            let begun = Instant::now();
            // What dialling needs is gone after it: connections are many, and live long.
            match Box::pin(self.dial(to, &phase)).await {
                Ok(connection) => {
                    let link = self.add_outgoing(to, &queue, connection.instance);
                    link::run(&self, &link, connection, &inbox, &phase).await;
                    return self.forget(&link);
                }
                Err(reason) => {
                    match self.state().peers.get(&to).and_then(|p| p.link.clone()) {
                        // The old connection stands: nothing that waited is lost by a claim that it leads nowhere.
                        Some(old) => {
                            old.trust();
                            queue.pour_into(&old.queue);
                        }
                        None => queue.clear(),
                    }
                    if let Some(reason) = reason {
                        inbox.failed(to, reason);
                    }
                    let (mut end, rest) =
                        (phase.clone(), DIAL_FLOOR.saturating_sub(begun.elapsed()));
                    tokio::select! {
                        () = sleep(rest) => {}
                        _ = end.wait_for(|p| *p == Phase::Closed) => {}
                    }
                    let mut state = self.state();
                    if queue.is_empty()
                        || *phase.borrow() == Phase::Closed
                        || phase.has_changed().is_err()
                    {
                        queue.close();
                        if let Some(peer) = state.peers.get_mut(&to) {
                            peer.dial = None;
                            if peer.link.is_none() {
                                state.peers.remove(&to);
                            }
                        }
                        return;
                    }
                }
            }
        }
    }

    async fn connect_fresh(
        self: Arc<Self>,
        to: SocketAddr,
        queue: Arc<Queue>,
        (dial, _life): (Place, Place),
        inbox: Inbox,
        phase: watch::Receiver<Phase>,
    ) {
        let result = Box::pin(self.dial(to, &phase)).await;
        drop(dial);
        match result {
            Ok(connection) => {
                let link = self.state().add(
                    connection.instance,
                    queue,
                    LINGER.min(self.config.idle_timeout),
                );
                add(&self.counters.open, 1);
                // Pings alone would keep it for ever.
                let _ = timeout(
                    FRESH_LIFE,
                    link::run(&self, &link, connection, &inbox, &phase),
                )
                .await;
                self.forget(&link);
            }
            Err(reason) => {
                queue.close();
                if let Some(reason) = reason {
                    inbox.failed(to, reason);
                }
            }
        }
    }

    /// A connection, or why there is none; without a reason when the transport stops.
    async fn dial(
        &self,
        to: SocketAddr,
        phase: &watch::Receiver<Phase>,
    ) -> Result<Connection, Option<String>> {
        let Some(me) = self.introduction() else {
            return Err(None);
        };
        let mut end = phase.clone();
        tokio::select! {
            result = connect::dial(self, to, &me) => result.map_err(Some),
            _ = end.wait_for(|p| *p == Phase::Closed) => Err(None),
        }
    }

    fn add_outgoing(&self, to: SocketAddr, queue: &Arc<Queue>, instance: InstanceId) -> Arc<Link> {
        let mut state = self.state();
        let link = state.add(instance, queue.clone(), self.config.idle_timeout);
        let peer = state.peers.entry(to).or_default();
        peer.dial = None;
        if let Some(old) = peer.link.replace(link.clone()) {
            old.close_when_idle_for(LINGER.min(self.config.idle_timeout));
        }
        add(&self.counters.open, 1);
        link
    }

    pub(super) async fn run_incoming(
        &self,
        connection: Connection,
        inbox: &Inbox,
        phase: &watch::Receiver<Phase>,
    ) {
        let link = {
            let mut state = self.state();
            // Another process at that address than the one I am connected to: that connection leads nowhere any more. At worst the claim
            // is wrong, and costs one dial.
            let known = state
                .peers
                .get(&canonical(connection.advertise))
                .and_then(|p| p.link.as_ref());
            if let Some(other) = known.filter(|l| l.instance != connection.instance) {
                other.doubt();
            }
            state.add(
                connection.instance,
                self.new_queue(),
                self.config.idle_timeout + INCOMING_IDLE_EXTRA,
            )
        };
        add(&self.counters.open, 1);
        link::run(self, &link, connection, inbox, phase).await;
        self.forget(&link);
    }

    /// Takes an idle link out of use, unless something waits in it. True = nothing can be put into it any more.
    pub(super) fn retire(&self, link: &Link) -> bool {
        let mut state = self.state();
        let idle = link.queue.is_empty();
        if idle {
            state.take_out(link.id);
            link.queue.close();
        }
        idle
    }

    fn forget(&self, link: &Link) {
        self.state().take_out(link.id);
        link.queue.close();
        sub(&self.counters.open, 1);
    }
}

impl State {
    fn add(&mut self, instance: InstanceId, queue: Arc<Queue>, idle: Duration) -> Arc<Link> {
        self.last_link += 1;
        let link = Arc::new(Link::new(LinkId(self.last_link), instance, queue, idle));
        self.links.insert(link.id, link.clone());
        link
    }

    fn take_out(&mut self, id: LinkId) {
        self.links.remove(&id);
        self.peers.retain(|_, peer| {
            if peer.link.as_ref().is_some_and(|l| l.id == id) {
                peer.link = None;
            }
            peer.link.is_some() || peer.dial.is_some()
        });
    }
}

fn canonical(endpoint: SocketAddr) -> SocketAddr {
    SocketAddr::new(endpoint.ip().to_canonical(), endpoint.port())
}
