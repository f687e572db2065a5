//! The public type of the proxy.

use std::fmt;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use crate::fault::{Away, Fault, Way};
use crate::listener::Listener;
use crate::shared::{Shared, State};

/// A proxy in front of one server or of several. Clones are the same proxy. Dropping the last clone
/// ends it and cuts its connections.
///
/// Servers that announce their addresses to clients (Redis Sentinel and Cluster, replica sets,
/// Cassandra) must announce proxies: open each at a fixed address with [`on`](Self::on) and
/// [`also`](Self::also), start the servers, and name them with
/// [`set_target_of`](Self::set_target_of). Counts and faults then apply to all of them together.
/// Links between the servers are not counted.
#[derive(Clone)]
pub struct Proxy(Arc<Inner>);

struct Inner {
    shared: Arc<Shared>,
    address: SocketAddr,
    listeners: Mutex<Vec<Listener>>,
}

impl fmt::Debug for Proxy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Proxy")
            .field("addresses", &self.addresses())
            .finish_non_exhaustive()
    }
}

impl Proxy {
    /// Listens on a free port of 127.0.0.1 for connections to this server.
    ///
    /// # Errors
    /// No port is free, or the caller is outside of a tokio runtime.
    pub fn to(target: SocketAddr) -> io::Result<Self> {
        Self::on((Ipv4Addr::LOCALHOST, 0).into(), target)
    }

    /// Listens on this address. Without a target every connection is cut until
    /// [`set_target`](Self::set_target) names one.
    ///
    /// # Errors
    /// The address is taken or not of this machine, or the caller is outside of a tokio runtime.
    pub fn on(listen: SocketAddr, target: impl Into<Option<SocketAddr>>) -> io::Result<Self> {
        let shared = Arc::new(Shared::new());
        let listener = Listener::open(shared.clone(), listen, target.into())?;
        Ok(Self(Arc::new(Inner {
            shared,
            address: listener.address,
            listeners: Mutex::new(vec![listener]),
        })))
    }

    /// Listens on one more address, for one more server. Port 0 means any free port; the result is
    /// the address with its port.
    ///
    /// # Errors
    /// As [`on`](Self::on).
    pub fn also(
        &self,
        listen: SocketAddr,
        target: impl Into<Option<SocketAddr>>,
    ) -> io::Result<SocketAddr> {
        let listener = Listener::open(self.0.shared.clone(), listen, target.into())?;
        let address = listener.address;
        self.0
            .listeners
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .push(listener);
        Ok(address)
    }

    /// Whether the two are clones of each other.
    #[must_use]
    pub fn is(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    /// The first address on which it listens.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.0.address
    }

    /// Every address, in the order of their opening.
    #[must_use]
    pub fn addresses(&self) -> Vec<SocketAddr> {
        self.0
            .listeners
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .iter()
            .map(|d| d.address)
            .collect()
    }

    /// Sends new connections to the first address to this server. Existing connections stay.
    pub fn set_target(&self, target: SocketAddr) {
        self.set_target_of(self.0.address, target);
    }

    /// Sends new connections to this address to this server. Returns false if the proxy does not
    /// listen there.
    pub fn set_target_of(&self, address: SocketAddr, target: SocketAddr) -> bool {
        let listeners = self
            .0
            .listeners
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let listener = listeners.iter().find(|d| d.address == address);
        listener.map(|d| d.set_target(target)).is_some()
    }

    /// The number of connections of clients.
    #[must_use]
    pub fn connections(&self) -> usize {
        self.0.shared.state().exchanges.connections()
    }

    /// The number of links between servers.
    #[must_use]
    pub fn links(&self) -> usize {
        self.0.shared.state().exchanges.links()
    }

    /// Round trips so far, without monitoring.
    #[must_use]
    pub fn round_trips(&self) -> u64 {
        self.0.shared.state().exchanges.answered()
    }

    /// Counts the round trips that begin from now on.
    #[must_use]
    pub fn count(&self) -> Counter {
        Counter {
            counter: self.0.shared.change(|state| state.exchanges.count()),
            proxy: self.clone(),
        }
    }

    /// Finds the connections of the client's own monitoring: those that send something, or wait for
    /// an answer, during the window, in which nothing is requested of the client. They are excluded
    /// from every count and from the faults of single exchanges from now on. Returns their number.
    pub async fn learn_monitoring(&self, window: Duration) -> usize {
        self.0.shared.change(|state| state.exchanges.begin_idle());
        tokio::time::sleep(window).await;
        self.0.shared.change(|state| state.exchanges.end_idle())
    }

    /// From now on also identifies the client's own monitoring by the first bytes on a connection:
    /// for clients that open new monitoring connections after every fault. The function must tell
    /// them from connections that carry requests to the store.
    pub fn set_monitoring(&self, is_monitoring: fn(first: &[u8]) -> bool) {
        self.0
            .shared
            .change(|state| state.monitoring = Some(is_monitoring));
    }

    /// From now on new connections of other processes are clients', too: for tests of a program,
    /// and servers without links between them.
    pub fn serve_other_processes(&self) {
        self.0.shared.change(|state| state.other_processes = true);
    }

    /// Waits until every request is answered, at most this long. Returns whether that is so.
    /// Requests of clients that are gone count too: once this returns true, nothing arrives late.
    pub async fn settled(&self, at_most: Duration) -> bool {
        // Polled, because a byte that passes is not reported as a change.
        let settled = async {
            while self.under_way() {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        };
        tokio::time::timeout(at_most, settled).await.is_ok()
    }

    /// Hits the next exchange. Replaces an earlier fault.
    pub fn set_fault(&self, fault: Fault) {
        self.set_fault_after(0, fault);
    }

    /// Hits the exchange after the next `skip` ones. Replaces an earlier fault.
    pub fn set_fault_after(&self, skip: u64, fault: Fault) {
        self.0
            .shared
            .change(|state| state.exchanges.arm(skip, fault));
    }

    /// Whether the newest fault has hit an exchange.
    #[must_use]
    pub fn has_fired(&self) -> bool {
        self.0.shared.state().exchanges.fired()
    }

    /// Waits until the newest fault has hit an exchange, at most this long. Returns whether it has.
    pub async fn fired(&self, at_most: Duration) -> bool {
        let fired = self.0.shared.until(|state| state.exchanges.fired());
        tokio::time::timeout(at_most, fired).await.is_ok()
    }

    /// Whether a request waits for its answer.
    #[must_use]
    pub fn under_way(&self) -> bool {
        self.0.shared.state().exchanges.under_way()
    }

    /// How the requests begin that wait for their answers: the first line if that is text, else the
    /// first bytes. For messages of tests; it may contain what a client sends first.
    #[must_use]
    pub fn open_requests(&self) -> Vec<String> {
        self.0.shared.state().exchanges.open_requests()
    }

    /// Waits until the proxy holds bytes of a client's exchange, at most this long. Returns whether
    /// it does; monitoring does not count.
    pub async fn holds(&self, at_most: Duration) -> bool {
        let held = self.0.shared.until(|state| state.held > 0);
        tokio::time::timeout(at_most, held).await.is_ok()
    }

    /// Holds all bytes in both directions, those of links between servers too. Connections stay,
    /// and new ones are accepted.
    pub fn freeze(&self) {
        self.0.shared.change(|state| state.frozen = true);
    }

    /// Holds all bytes of the connections that clients have now, in both directions. They stay, and
    /// new ones work: as if the address led to another server now.
    pub fn freeze_connections(&self) {
        self.0
            .shared
            .change(|state| state.frozen_up_to = state.exchanges.newest());
    }

    /// Holds the bytes of one direction between clients and servers.
    pub fn freeze_way(&self, way: Way) {
        self.0.shared.change(|state| match way {
            Way::Requests => state.exchanges.hold_requests = true,
            Way::Answers => state.exchanges.hold_answers = true,
        });
    }

    /// Releases held bytes in their order.
    pub fn thaw(&self) {
        self.0.shared.change(State::release);
    }

    /// Delays everything between clients and servers. Each piece waits by itself, so throughput is
    /// low.
    pub fn set_delay(&self, requests: Duration, answers: Duration) {
        self.0
            .shared
            .change(|state| state.delays = (requests, answers));
    }

    /// Cuts every connection, links between servers too, and accepts none until
    /// [`heal`](Self::heal).
    pub fn set_away(&self, away: Away) {
        self.0.shared.change(|state| {
            state.away = Some(away);
            state.outages += 1;
        });
    }

    /// Cuts every connection of a client, and accepts new ones. Returns how many there were.
    pub fn cut_connections(&self) -> usize {
        self.0.shared.change(|state| {
            state.cuts += 1;
            state.exchanges.connections()
        })
    }

    /// Ends all faults: no fault, no delay, nothing held, and connections are accepted again.
    pub fn heal(&self) {
        self.0.shared.change(|state| {
            state.exchanges.disarm();
            state.release();
            state.delays = Default::default();
            state.away = None;
        });
    }
}

/// A running count; see [`Proxy::count`].
#[derive(Debug)]
pub struct Counter {
    proxy: Proxy,
    counter: u64,
}

impl Counter {
    /// The number of round trips since it began.
    #[must_use]
    pub fn so_far(&self) -> u64 {
        self.proxy.0.shared.state().exchanges.counted(self.counter)
    }
}

impl Drop for Counter {
    fn drop(&mut self) {
        self.proxy
            .0
            .shared
            .state()
            .exchanges
            .stop_counting(self.counter);
    }
}
