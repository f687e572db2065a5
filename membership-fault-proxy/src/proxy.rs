//! The proxy as its user sees it.

use std::fmt;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use crate::fault::{Away, Fault, Way};
use crate::listener::Door;
use crate::shared::{Shared, State};

/// A proxy in front of one server or of several. Clones are the same proxy; it ends, and its connections are cut, with the last one.
///
/// Servers that tell clients where they are (Redis Sentinel and Cluster, replica sets, Cassandra) are told to advertise proxies: open
/// each at a fixed address with [`on`](Self::on) and [`also`](Self::also), start the servers, and name them with
/// [`set_target_of`](Self::set_target_of). What is counted and what goes wrong is then common to all of them; that servers reach each other
/// through it changes neither.
#[derive(Clone)]
pub struct Proxy(Arc<Inner>);

struct Inner {
    shared: Arc<Shared>,
    address: SocketAddr,
    doors: Mutex<Vec<Door>>,
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
    /// No free port, or called outside of a tokio runtime.
    pub fn to(target: SocketAddr) -> io::Result<Self> {
        Self::on((Ipv4Addr::LOCALHOST, 0).into(), target)
    }

    /// Listens on this address. Without a target every connection is cut until there is one.
    ///
    /// # Errors
    /// The address is taken or is not of this machine, or called outside of a tokio runtime.
    pub fn on(listen: SocketAddr, target: impl Into<Option<SocketAddr>>) -> io::Result<Self> {
        let shared = Arc::new(Shared::new());
        let door = Door::open(shared.clone(), listen, target.into())?;
        Ok(Self(Arc::new(Inner {
            shared,
            address: door.address,
            doors: Mutex::new(vec![door]),
        })))
    }

    /// Listens on one more address, for one more server. Port 0 is a free one; the answer is the address it became.
    ///
    /// # Errors
    /// As [`on`](Self::on).
    pub fn also(
        &self,
        listen: SocketAddr,
        target: impl Into<Option<SocketAddr>>,
    ) -> io::Result<SocketAddr> {
        let door = Door::open(self.0.shared.clone(), listen, target.into())?;
        let address = door.address;
        self.0
            .doors
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .push(door);
        Ok(address)
    }

    /// Whether the two are the same one: clones of each other.
    #[must_use]
    pub fn is(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    /// Where it listens: the first address.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.0.address
    }

    /// Every address, in the order they were opened.
    #[must_use]
    pub fn addresses(&self) -> Vec<SocketAddr> {
        self.0
            .doors
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .iter()
            .map(|d| d.address)
            .collect()
    }

    /// New connections to the first address go to this server. Those that exist stay where they are.
    pub fn set_target(&self, target: SocketAddr) {
        self.set_target_of(self.0.address, target);
    }

    /// New connections to this one of its addresses go to this server; false where it does not listen there.
    pub fn set_target_of(&self, address: SocketAddr, target: SocketAddr) -> bool {
        let doors = self.0.doors.lock().unwrap_or_else(PoisonError::into_inner);
        let door = doors.iter().find(|d| d.address == address);
        door.map(|d| d.set_target(target)).is_some()
    }

    /// How many connections of clients there are.
    #[must_use]
    pub fn connections(&self) -> usize {
        self.0.shared.look().flights.connections()
    }

    /// How many links between servers go through it.
    #[must_use]
    pub fn links(&self) -> usize {
        self.0.shared.look().flights.links()
    }

    /// Round trips so far, monitoring left out.
    #[must_use]
    pub fn round_trips(&self) -> u64 {
        self.0.shared.look().flights.answered()
    }

    /// Counts the round trips that begin from now on.
    #[must_use]
    pub fn count(&self) -> Counter {
        Counter {
            counter: self.0.shared.change(|state| state.flights.count()),
            proxy: self.clone(),
        }
    }

    /// Takes this long to find out which connections are the client's own monitoring: those that speak, or wait for an answer, while
    /// nothing is asked of it. They are left out of every count and of the faults of single flights from now on. Gives their number.
    pub async fn learn_monitoring(&self, window: Duration) -> usize {
        self.0.shared.change(|state| state.flights.begin_idle());
        tokio::time::sleep(window).await;
        self.0.shared.change(|state| state.flights.end_idle())
    }

    /// From now on the client's own monitoring is also told by the first words that come on a connection: for clients that make such
    /// connections anew whenever something goes wrong. It must be told from what asks the store for something.
    pub fn set_monitoring(&self, is_monitoring: fn(first: &[u8]) -> bool) {
        self.0
            .shared
            .change(|state| state.monitoring = Some(is_monitoring));
    }

    /// Waits until no request is without an answer, but not longer than this. Gives whether there is none. Requests of clients that are gone
    /// are waited for as well: when there are none, nothing arrives late any more.
    pub async fn settled(&self, at_most: Duration) -> bool {
        // Polled, because a passing byte rings no bell.
        let settled = async {
            while self.under_way() {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        };
        tokio::time::timeout(at_most, settled).await.is_ok()
    }

    /// Hits the next flight, in place of a fault that was set before.
    pub fn set_fault(&self, fault: Fault) {
        self.set_fault_after(0, fault);
    }

    /// Hits the flight after so many others, in place of a fault that was set before.
    pub fn set_fault_after(&self, skip: u64, fault: Fault) {
        self.0.shared.change(|state| state.flights.arm(skip, fault));
    }

    /// Whether the fault that was set last has hit.
    #[must_use]
    pub fn has_fired(&self) -> bool {
        self.0.shared.look().flights.fired()
    }

    /// Waits until the fault that was set last has hit, but not longer than this. Gives whether it has.
    pub async fn fired(&self, at_most: Duration) -> bool {
        let fired = self.0.shared.until(|state| state.flights.fired());
        tokio::time::timeout(at_most, fired).await.is_ok()
    }

    /// Whether a request is without an answer.
    #[must_use]
    pub fn under_way(&self) -> bool {
        self.0.shared.look().flights.under_way()
    }

    /// Waits until something that a client said, or is to hear, is held, but not longer than this. Gives whether it is; monitoring does not
    /// count.
    pub async fn holds(&self, at_most: Duration) -> bool {
        let held = self.0.shared.until(|state| state.held > 0);
        tokio::time::timeout(at_most, held).await.is_ok()
    }

    /// Holds all bytes of both ways, those of links between servers too; connections stay, and new ones are taken.
    pub fn freeze(&self) {
        self.0.shared.change(|state| state.frozen = true);
    }

    /// Holds the bytes of one way between clients and servers.
    pub fn freeze_way(&self, way: Way) {
        self.0.shared.change(|state| match way {
            Way::Requests => state.flights.hold_requests = true,
            Way::Answers => state.flights.hold_answers = true,
        });
    }

    /// Lets go what is held, in the order it came.
    pub fn thaw(&self) {
        self.0.shared.change(State::let_go);
    }

    /// Adds so much to everything that passes between clients and servers. Each piece waits by itself, so that little passes in a time.
    pub fn set_delay(&self, requests: Duration, answers: Duration) {
        self.0
            .shared
            .change(|state| state.delays = (requests, answers));
    }

    /// Cuts every connection, links between servers too, and takes no new ones until [`heal`](Self::heal).
    pub fn set_away(&self, away: Away) {
        self.0.shared.change(|state| {
            state.away = Some(away);
            state.outages += 1;
        });
    }

    /// Cuts every connection of a client; new ones are taken. Gives how many there were.
    pub fn cut_connections(&self) -> usize {
        self.0.shared.change(|state| {
            state.cuts += 1;
            state.flights.connections()
        })
    }

    /// Nothing goes wrong any more: no fault, no delay, nothing held, and connections are taken again.
    pub fn heal(&self) {
        self.0.shared.change(|state| {
            state.flights.disarm();
            state.let_go();
            state.delays = Default::default();
            state.away = None;
        });
    }
}

/// A count that has begun; see [`Proxy::count`].
#[derive(Debug)]
pub struct Counter {
    proxy: Proxy,
    counter: u64,
}

impl Counter {
    /// How many since it began.
    #[must_use]
    pub fn so_far(&self) -> u64 {
        self.proxy.0.shared.look().flights.counted(self.counter)
    }
}

impl Drop for Counter {
    fn drop(&mut self) {
        self.proxy
            .0
            .shared
            .look()
            .flights
            .stop_counting(self.counter);
    }
}
