//! How many handshakes one address may have under way, and how many it may begin: a host that
//! floods the port must not keep the others out.
//!
//! Addresses of silos in the view have places of their own.

use std::collections::{HashMap, VecDeque};
use std::net::{IpAddr, Ipv6Addr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::Instant;

/// How many addresses are remembered. Beyond it those without a handshake under way are forgotten.
const MOST: usize = 1024;
/// The time over which begun handshakes are counted.
const WINDOW: Duration = Duration::from_secs(1);

/// How many handshakes there may be.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bounds {
    /// Under way at a time, of all addresses. Beyond it, one of the busiest address ends.
    pub(super) all: usize,
    /// Under way at a time, of one address.
    pub(super) open: usize,
    /// Begun within a second, of one address.
    pub(super) begun: usize,
}

#[derive(Debug, Default)]
pub(super) struct Sources(Mutex<Known>);

#[derive(Debug, Default)]
struct Known {
    sources: HashMap<IpAddr, Source>,
    open: usize,
    last: u64,
}

#[derive(Debug)]
struct Source {
    /// The handshakes under way, oldest first.
    open: VecDeque<(u64, Arc<Notify>)>,
    begun: usize,
    since: Instant,
}

/// A handshake under way; dropping it ends it.
#[derive(Debug)]
pub(super) struct Handshake {
    sources: Arc<Sources>,
    from: IpAddr,
    number: u64,
    evicted: Arc<Notify>,
}

impl Handshake {
    /// Waits until it must make room for another one.
    pub(super) async fn evicted(&self) {
        self.evicted.notified().await;
    }
}

impl Sources {
    fn lock(&self) -> MutexGuard<'_, Known> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Begins a handshake, unless its address has enough of them.
    pub(super) fn begin(
        self: &Arc<Self>,
        from: IpAddr,
        bounds: Bounds,
        now: Instant,
    ) -> Option<Handshake> {
        let from = host(from);
        let mut known = self.lock();
        if known.sources.len() >= MOST && !known.sources.contains_key(&from) {
            known.sources.retain(|_, source| !source.open.is_empty());
            if known.sources.len() >= MOST {
                return None;
            }
        }
        let is_full = known.open >= bounds.all;
        let source = known.sources.entry(from).or_insert(Source {
            open: VecDeque::new(),
            begun: 0,
            since: now,
        });
        if now - source.since >= WINDOW {
            (source.begun, source.since) = (0, now);
        }
        let open = source.open.len();
        if open >= bounds.open || source.begun >= bounds.begun {
            return None;
        }
        source.begun += 1;
        if is_full && !known.evict(open) {
            return None;
        }
        known.last += 1;
        known.open += 1;
        let (number, evicted) = (known.last, Arc::new(Notify::new()));
        let source = known.sources.get_mut(&from)?;
        source.open.push_back((number, evicted.clone()));
        Some(Handshake {
            sources: self.clone(),
            from,
            number,
            evicted,
        })
    }
}

impl Known {
    /// Ends the oldest handshake of the address with the most, if it has more than `open`.
    fn evict(&mut self, open: usize) -> bool {
        let oldest = |source: &Source| source.open.front().map_or(u64::MAX, |(n, _)| *n);
        let busiest = self
            .sources
            .values_mut()
            .max_by_key(|source| (source.open.len(), std::cmp::Reverse(oldest(source))));
        let Some(busiest) = busiest.filter(|source| source.open.len() > open) else {
            return false;
        };
        if let Some((_, evicted)) = busiest.open.pop_front() {
            evicted.notify_one();
            self.open = self.open.saturating_sub(1);
        }
        true
    }
}

impl Drop for Handshake {
    fn drop(&mut self) {
        let mut known = self.sources.lock();
        let Some(source) = known.sources.get_mut(&self.from) else {
            return;
        };
        let before = source.open.len();
        source.open.retain(|(number, _)| *number != self.number);
        let ended = before - source.open.len();
        known.open = known.open.saturating_sub(ended);
    }
}

/// The network of an IPv6 host: it has all addresses of it.
fn host(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(v6) => {
            let network = v6.to_bits() & (u128::MAX << 64);
            IpAddr::V6(Ipv6Addr::from_bits(network))
        }
        v4 => v4,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BOUNDS: Bounds = Bounds {
        all: 2 * MOST,
        open: 2,
        begun: 3,
    };

    fn at(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    #[test]
    fn an_address_has_so_many_handshakes_and_no_more() {
        let (sources, now) = (Arc::new(Sources::default()), Instant::now());
        let one = sources.begin(at("10.0.0.1"), BOUNDS, now);
        let two = sources.begin(at("::ffff:10.0.0.1"), BOUNDS, now);
        assert!(one.is_some() && two.is_some());
        assert!(sources.begin(at("10.0.0.1"), BOUNDS, now).is_none());
        assert!(sources.begin(at("10.0.0.2"), BOUNDS, now).is_some());
        drop(one);
        let three = sources.begin(at("10.0.0.1"), BOUNDS, now);
        assert!(three.is_some());
        // Three were begun within this second.
        drop((two, three));
        assert!(sources.begin(at("10.0.0.1"), BOUNDS, now).is_none());
        let later = now + WINDOW;
        assert!(sources.begin(at("10.0.0.1"), BOUNDS, later).is_some());
    }

    #[test]
    fn an_ipv6_host_counts_once_for_all_its_addresses() {
        let (sources, now) = (Arc::new(Sources::default()), Instant::now());
        let _held: Vec<_> = ["2001:db8::1", "2001:db8::2"]
            .map(|from| sources.begin(at(from), BOUNDS, now).unwrap())
            .into();
        assert!(sources.begin(at("2001:db8::3"), BOUNDS, now).is_none());
        assert!(sources.begin(at("2001:db8:0:1::3"), BOUNDS, now).is_some());
    }

    #[test]
    fn remembered_addresses_are_bounded() {
        let (sources, now) = (Arc::new(Sources::default()), Instant::now());
        let address = |n: u32| IpAddr::from(n.to_be_bytes());
        let held: Vec<_> = (0..u32::try_from(MOST).unwrap())
            .map(|n| sources.begin(address(n), BOUNDS, now).unwrap())
            .collect();
        assert!(sources.begin(address(1 << 20), BOUNDS, now).is_none());
        drop(held);
        assert!(sources.begin(address(1 << 20), BOUNDS, now).is_some());
        assert_eq!(sources.lock().sources.len(), 1);
    }

    #[tokio::test]
    async fn the_busiest_address_makes_room() {
        let (sources, now) = (Arc::new(Sources::default()), Instant::now());
        let bounds = Bounds { all: 3, ..BOUNDS };
        let [one, two] = [(); 2].map(|()| sources.begin(at("10.0.0.1"), bounds, now).unwrap());
        let three = sources.begin(at("10.0.0.2"), bounds, now).unwrap();
        let four = sources.begin(at("10.0.0.3"), bounds, now).unwrap();
        one.evicted().await;
        drop(one);
        // All have one: the oldest makes room, but not for an address that has as many.
        assert!(sources.begin(at("10.0.0.3"), bounds, now).is_none());
        let five = sources.begin(at("10.0.0.4"), bounds, now).unwrap();
        two.evicted().await;
        drop((two, three, four, five));
        assert_eq!(sources.lock().open, 0);
    }
}
