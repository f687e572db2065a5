//! What all tasks of one transport share: its bounds, its counters, and every connection it has.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use membership_core::protocol::{LinkId, PeerIdentity};
use membership_core::{ClusterView, InstanceId, SiloAddress};
use tokio::runtime::Handle;
use tokio::sync::watch;

use super::config::TcpConfig;
use super::counters::{Counters, sub};
use super::handshake::Me;
use super::link::Link;
use super::queue::{Bounds, Queue};
use crate::transport::tls::Tls;
use crate::transport::{Hello, Inbox};

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
    /// Incoming connections, including those in their handshake.
    pub(super) incoming: Arc<AtomicUsize>,
    pub(super) in_handshake: Arc<AtomicUsize>,
    /// Bytes of unfinished messages on all connections.
    pub(super) reassembly: AtomicUsize,
    pub(super) fresh_dials: Arc<AtomicUsize>,
    pub(super) fresh: Arc<AtomicUsize>,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
pub(super) struct State {
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
        Self {
            config,
            tls,
            counters: Arc::default(),
            incoming: Arc::default(),
            in_handshake: Arc::default(),
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
        if let Some(tls) = &self.tls {
            me.instance = tls.instance();
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
        if let Some(me) = &mut self.state().me {
            (me.silo, me.view) = (silo, Some(view.clone()));
        }
    }

    /// What a handshake needs to know now; none before the start.
    pub(super) fn me(&self) -> Option<Me> {
        self.state().me.clone()
    }

    pub(super) fn new_queue(&self) -> Arc<Queue> {
        let bounds = Bounds {
            messages: self.config.max_queued_messages,
            bytes: self.config.max_queued_bytes,
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

    pub(super) fn forget(&self, link: &Link) {
        self.state().take_out(link.id);
        link.queue.close();
        sub(&self.counters.open, 1);
    }
}

impl State {
    pub(super) fn add(
        &mut self,
        instance: InstanceId,
        peer: PeerIdentity,
        queue: Arc<Queue>,
        idle: Duration,
    ) -> Arc<Link> {
        self.last_link += 1;
        let link = Arc::new(Link::new(
            LinkId(self.last_link),
            instance,
            peer,
            queue,
            idle,
        ));
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
