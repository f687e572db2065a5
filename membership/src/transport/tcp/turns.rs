//! When a handshake may compute: keys and signatures cost time, and whoever sends the first message
//! of TLS asks for them. So many may go on within a second; the others wait, and next comes one of
//! the network, and within it of the address, that has had the fewest turns of late.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::oneshot;
use tokio::time::{Instant, sleep};

use super::sources::network;

/// How often those who wait are looked at.
const TICK: Duration = Duration::from_millis(5);
/// After this time a turn counts half of what it did.
const HALF: Duration = Duration::from_secs(1);
const TURN: u32 = 256;

/// How many turns there are within a second.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pace {
    /// For all addresses.
    pub(super) all: usize,
    /// For one address.
    pub(super) each: usize,
}

#[derive(Debug)]
pub(super) struct Turns {
    pace: Pace,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    /// Oldest first.
    waiting: Vec<Waiting>,
    /// Turns that may be had at once, at most a tenth of a second's.
    left: f64,
    counted: Instant,
    networks: HashMap<IpAddr, u32>,
    hosts: HashMap<IpAddr, Host>,
    halved: Instant,
    /// A task gives turns to those who wait.
    gives: bool,
}

#[derive(Debug)]
struct Waiting {
    from: IpAddr,
    turn: oneshot::Sender<()>,
}

#[derive(Debug)]
struct Host {
    turns: u32,
    /// Turns within the second that began then.
    count: usize,
    since: Instant,
}

impl Turns {
    pub(super) fn new(pace: Pace) -> Self {
        let now = Instant::now();
        Self {
            pace,
            state: Mutex::new(State {
                waiting: Vec::new(),
                left: pace.burst(),
                counted: now,
                networks: HashMap::new(),
                hosts: HashMap::new(),
                halved: now,
                gives: false,
            }),
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for a turn. Who no longer waits needs none.
    pub(super) async fn take(self: &Arc<Self>, from: IpAddr) {
        let (turn, comes) = oneshot::channel();
        {
            let mut state = self.lock();
            state.waiting.push(Waiting { from, turn });
            state.give(self.pace, Instant::now());
            if !state.waiting.is_empty() && !state.gives {
                state.gives = true;
                tokio::spawn(self.clone().give_all());
            }
        }
        let _ = comes.await;
    }

    /// Gives turns until nobody waits.
    async fn give_all(self: Arc<Self>) {
        loop {
            sleep(TICK).await;
            let mut state = self.lock();
            state.give(self.pace, Instant::now());
            if state.waiting.is_empty() {
                state.gives = false;
                return;
            }
        }
    }
}

impl Pace {
    fn burst(self) -> f64 {
        (self.all as f64 / 10.0).max(1.0)
    }
}

impl State {
    fn give(&mut self, pace: Pace, now: Instant) {
        self.count(pace, now);
        self.waiting.retain(|waiting| !waiting.turn.is_closed());
        while self.left >= 1.0 {
            let Some(at) = self.next(pace, now) else {
                return;
            };
            let Waiting { from, turn } = self.waiting.remove(at);
            if turn.send(()).is_err() {
                continue;
            }
            self.left -= 1.0;
            *self.networks.entry(network(from)).or_default() += TURN;
            let host = self.hosts.entry(from).or_insert(Host {
                turns: 0,
                count: 0,
                since: now,
            });
            if now.duration_since(host.since) >= Duration::from_secs(1) {
                (host.count, host.since) = (0, now);
            }
            host.turns += TURN;
            host.count += 1;
        }
    }

    fn count(&mut self, pace: Pace, now: Instant) {
        let more = now.duration_since(self.counted).as_secs_f64() * pace.all as f64;
        self.left = (self.left + more).min(pace.burst());
        self.counted = now;
        let passed = now.duration_since(self.halved).as_secs() / HALF.as_secs();
        if passed == 0 {
            return;
        }
        self.halved = now;
        let halve = |turns: &mut u32| {
            *turns = turns.checked_shr(passed as u32).unwrap_or(0);
            *turns > 0
        };
        self.networks.retain(|_, turns| halve(turns));
        self.hosts.retain(|_, host| halve(&mut host.turns));
    }

    /// Who comes next: of those with the fewest turns, who came last. Those before may have given up.
    fn next(&self, pace: Pace, now: Instant) -> Option<usize> {
        let may = |from: &IpAddr| {
            let host = self.hosts.get(from);
            let now = host.filter(|host| now.duration_since(host.since) < Duration::from_secs(1));
            now.is_none_or(|host| host.count < pace.each)
        };
        let rank = |from: &IpAddr| {
            let of_network = self.networks.get(&network(*from)).copied();
            let of_host = self.hosts.get(from).map(|host| host.turns);
            (of_network.unwrap_or(0), of_host.unwrap_or(0))
        };
        let waiting = self.waiting.iter().enumerate();
        let waiting = waiting.filter(|(_, waiting)| may(&waiting.from));
        waiting
            .max_by_key(|(_, waiting)| Reverse(rank(&waiting.from)))
            .map(|(at, _)| at)
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt as _;

    use super::*;

    fn at(n: u32) -> IpAddr {
        IpAddr::from(n.to_be_bytes())
    }

    #[tokio::test(start_paused = true)]
    async fn so_many_go_on_within_a_second() {
        let turns = Arc::new(Turns::new(Pace { all: 100, each: 20 }));
        let begun = Instant::now();
        let all = (0..300).map(|n| turns.take(at(n << 16)));
        futures_util::future::join_all(all).await;
        let took = begun.elapsed();
        assert!(took > Duration::from_millis(2800) && took < Duration::from_millis(3100));
        let begun = Instant::now();
        let all = (0..60).map(|_| turns.take(at(7)));
        futures_util::future::join_all(all).await;
        assert!(begun.elapsed() >= Duration::from_secs(2));
        sleep(Duration::from_secs(10)).await;
        let mut state = turns.lock();
        state.give(turns.pace, Instant::now());
        assert!(state.hosts.len() <= 1 && state.networks.len() <= 1 && !state.gives);
    }

    #[tokio::test(start_paused = true)]
    async fn a_network_that_asks_seldom_comes_first() {
        let turns = Arc::new(Turns::new(Pace { all: 10, each: 10 }));
        let mut many: Vec<_> = (0..1000).map(|n| Box::pin(turns.take(at(n)))).collect();
        let before = many.iter_mut().filter_map(|m| m.now_or_never()).count();
        assert_eq!(before, 1);
        let begun = Instant::now();
        turns.take(at(1 << 24)).await;
        assert!(begun.elapsed() < Duration::from_millis(120));
    }
}
