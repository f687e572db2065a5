//! How many handshakes one address may have under way, and how many it may begin: a host that
//! floods the port must not keep the others out.
//!
//! Addresses of silos in the view are not limited here, and have places of their own: see
//! [`Sources::begin`].

use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

/// How many addresses are remembered. Further ones wait until others have no handshake under way.
const MOST: usize = 1024;
/// The time over which begun handshakes are counted.
const WINDOW: Duration = Duration::from_secs(1);

/// What one stranger's address may do.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bounds {
    /// Handshakes under way at a time.
    pub(super) open: usize,
    /// Handshakes begun within a second.
    pub(super) begun: usize,
}

#[derive(Debug, Default)]
pub(super) struct Sources(Mutex<HashMap<IpAddr, Source>>);

#[derive(Debug)]
struct Source {
    open: usize,
    begun: usize,
    since: Instant,
}

impl Source {
    fn is_forgotten(&self, now: Instant) -> bool {
        self.open == 0 && now - self.since >= WINDOW
    }
}

/// A handshake under way; dropping it ends it.
#[derive(Debug)]
pub(super) struct Handshake {
    sources: Arc<Sources>,
    from: IpAddr,
}

impl Sources {
    /// Begins a handshake of a stranger, unless its address has enough of them.
    pub(super) fn begin(
        self: &Arc<Self>,
        from: IpAddr,
        bounds: Bounds,
        now: Instant,
    ) -> Option<Handshake> {
        let from = host(from);
        let mut sources = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if sources.len() >= MOST && !sources.contains_key(&from) {
            sources.retain(|_, source| !source.is_forgotten(now));
            if sources.len() >= MOST {
                return None;
            }
        }
        let source = sources.entry(from).or_insert(Source {
            open: 0,
            begun: 0,
            since: now,
        });
        if now - source.since >= WINDOW {
            (source.begun, source.since) = (0, now);
        }
        if source.open >= bounds.open || source.begun >= bounds.begun {
            return None;
        }
        source.open += 1;
        source.begun += 1;
        Some(Handshake {
            sources: self.clone(),
            from,
        })
    }
}

impl Drop for Handshake {
    fn drop(&mut self) {
        let mut sources = self
            .sources
            .0
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        if let Some(source) = sources.get_mut(&self.from) {
            source.open = source.open.saturating_sub(1);
        }
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

    const BOUNDS: Bounds = Bounds { open: 2, begun: 3 };

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
        let later = now + WINDOW;
        assert!(sources.begin(address(1 << 20), BOUNDS, later).is_some());
        assert_eq!(sources.0.lock().unwrap().len(), 1);
    }
}
