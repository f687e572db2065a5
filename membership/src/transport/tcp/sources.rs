//! Which handshakes may be under way: a host that floods the port must not keep the others out, and
//! connections that say nothing must not keep out anybody.
//!
//! Where there is no room, an older handshake ends, not the one that begins: first one whose other
//! side has said nothing for a while, then one that has not had its turn, last one that has had it
//! for a while. Within these, the network with the most of them makes room, and within it the
//! address with the most. Addresses of silos in the view have places of their own.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::Instant;

/// How many handshakes there may be.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bounds {
    /// Under way at a time, of all addresses.
    pub(super) all: usize,
    /// Under way at a time, of one address.
    pub(super) open: usize,
    /// How long a handshake that has had its turn makes no room for others, and one that has said
    /// nothing is like one that waits. Otherwise many who begin at once on a slow machine would end
    /// each other, for ever.
    pub(super) grace: Duration,
}

#[derive(Debug, Default)]
pub(super) struct Sources(Mutex<Known>);

#[derive(Debug, Default)]
struct Known {
    networks: HashMap<IpAddr, Network>,
    open: usize,
    last: u64,
}

#[derive(Debug, Default)]
struct Network {
    open: usize,
    /// The handshakes of each address, oldest first.
    hosts: HashMap<IpAddr, Vec<Place>>,
}

#[derive(Debug)]
struct Place {
    number: u64,
    stage: Stage,
    evicted: Arc<Notify>,
}

/// How far a handshake is.
#[derive(Clone, Copy, Debug)]
enum Stage {
    /// Its other side has not said what it wants since then.
    Silent(Instant),
    /// It waits until it may compute.
    Waits,
    /// It computes, or waits for the other side, since then.
    Goes(Instant),
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

    pub(super) const fn from(&self) -> IpAddr {
        self.from
    }

    /// Its other side has said what it wants.
    pub(super) fn waits(&self) {
        self.set(Stage::Waits);
    }

    /// Its turn has come.
    pub(super) fn goes_on(&self) {
        self.set(Stage::Goes(Instant::now()));
    }

    fn set(&self, stage: Stage) {
        let mut known = self.sources.lock();
        let network = known.networks.get_mut(&network(self.from));
        let places = network.and_then(|network| network.hosts.get_mut(&self.from));
        let place = places.and_then(|all| all.iter_mut().find(|p| p.number == self.number));
        if let Some(place) = place {
            place.stage = stage;
        }
    }
}

impl Sources {
    fn lock(&self) -> MutexGuard<'_, Known> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Begins a handshake, if there is room or an older one can make some.
    pub(super) fn begin(
        self: &Arc<Self>,
        from: IpAddr,
        bounds: Bounds,
        now: Instant,
    ) -> Option<Handshake> {
        let from = host(from);
        let mut known = self.lock();
        if known.of(from) >= bounds.open {
            known.evict(Some(from), bounds.grace, now)?;
        } else if known.open >= bounds.all {
            known.evict(None, bounds.grace, now)?;
        }
        known.last += 1;
        known.open += 1;
        let (number, evicted) = (known.last, Arc::new(Notify::new()));
        let network = known.networks.entry(network(from)).or_default();
        network.open += 1;
        network.hosts.entry(from).or_default().push(Place {
            number,
            stage: Stage::Silent(now),
            evicted: evicted.clone(),
        });
        Some(Handshake {
            sources: self.clone(),
            from,
            number,
            evicted,
        })
    }
}

impl Known {
    fn of(&self, from: IpAddr) -> usize {
        let network = self.networks.get(&network(from));
        let places = network.and_then(|network| network.hosts.get(&from));
        places.map_or(0, Vec::len)
    }

    /// Ends one handshake, of one address or of any.
    fn evict(&mut self, of: Option<IpAddr>, grace: Duration, now: Instant) -> Option<()> {
        let mut worst = None;
        for network in self.networks.values() {
            for (host, places) in &network.hosts {
                if of.is_some_and(|of| of != *host) {
                    continue;
                }
                for place in places {
                    let stage = match place.stage {
                        Stage::Silent(since) if now.duration_since(since) > grace => 0,
                        Stage::Silent(_) | Stage::Waits => 1,
                        Stage::Goes(since) if now.duration_since(since) > grace => 2,
                        Stage::Goes(_) => continue,
                    };
                    let (of_network, of_host) = (Reverse(network.open), Reverse(places.len()));
                    let rank = (stage, of_network, of_host, place.number);
                    if worst.is_none_or(|(least, _)| rank < least) {
                        worst = Some((rank, *host));
                    }
                }
            }
        }
        let ((.., number), from) = worst?;
        self.remove(from, number)?.evicted.notify_one();
        Some(())
    }

    fn remove(&mut self, from: IpAddr, number: u64) -> Option<Place> {
        let of_network = self.networks.get_mut(&network(from))?;
        let places = of_network.hosts.get_mut(&from)?;
        let at = places.iter().position(|place| place.number == number)?;
        let place = places.remove(at);
        if places.is_empty() {
            of_network.hosts.remove(&from);
        }
        of_network.open -= 1;
        if of_network.open == 0 {
            self.networks.remove(&network(from));
        }
        self.open -= 1;
        Some(place)
    }
}

impl Drop for Handshake {
    fn drop(&mut self) {
        self.sources.lock().remove(self.from, self.number);
    }
}

/// What counts as one address: an IPv6 host has all addresses of its /64.
pub(super) fn host(address: IpAddr) -> IpAddr {
    first_bits(address, 32, 64)
}

/// What counts as one network: whoever has one address of it often has more.
pub(super) fn network(address: IpAddr) -> IpAddr {
    first_bits(address, 16, 48)
}

fn first_bits(address: IpAddr, of_v4: u32, of_v6: u32) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V4(v4) => Ipv4Addr::from_bits(v4.to_bits() & (u32::MAX << (32 - of_v4))).into(),
        IpAddr::V6(v6) => Ipv6Addr::from_bits(v6.to_bits() & (u128::MAX << (128 - of_v6))).into(),
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt as _;

    use super::*;

    const BOUNDS: Bounds = Bounds {
        all: 100,
        open: 2,
        grace: Duration::from_millis(250),
    };

    fn begin(sources: &Arc<Sources>, from: &str, bounds: Bounds) -> Option<Handshake> {
        sources.begin(from.parse().unwrap(), bounds, Instant::now())
    }

    fn is_evicted(handshake: &Handshake) -> bool {
        handshake.evicted().now_or_never().is_some()
    }

    #[tokio::test(start_paused = true)]
    async fn the_oldest_of_a_full_address_makes_room_those_that_say_nothing_first() {
        let later = || tokio::time::advance(BOUNDS.grace + Duration::from_millis(1));
        let sources = Arc::new(Sources::default());
        let spoken = begin(&sources, "10.0.0.1", BOUNDS).unwrap();
        let silent = begin(&sources, "::ffff:10.0.0.1", BOUNDS).unwrap();
        spoken.waits();
        later().await;
        let third = begin(&sources, "10.0.0.1", BOUNDS).unwrap();
        assert!(is_evicted(&silent) && !is_evicted(&spoken));
        let fourth = begin(&sources, "10.0.0.1", BOUNDS).unwrap();
        assert!(is_evicted(&spoken) && !is_evicted(&third));
        drop((spoken, silent));
        // Those whose turn has come are left alone for a while.
        third.goes_on();
        fourth.goes_on();
        assert!(begin(&sources, "10.0.0.1", BOUNDS).is_none());
        assert!(begin(&sources, "10.0.0.2", BOUNDS).is_some());
        later().await;
        assert!(begin(&sources, "10.0.0.1", BOUNDS).is_some());
        assert!(is_evicted(&third));
        drop((third, fourth));
        let known = sources.lock();
        assert!(known.open == 0 && known.networks.is_empty());
    }

    #[tokio::test]
    async fn an_ipv6_host_counts_once_for_all_its_addresses() {
        let sources = Arc::new(Sources::default());
        let held = ["2001:db8::1", "2001:db8::2", "2001:db8:0:1::3"]
            .map(|from| begin(&sources, from, BOUNDS).unwrap());
        let next = begin(&sources, "2001:db8::4", BOUNDS);
        assert!(next.is_some() && is_evicted(&held[0]) && !is_evicted(&held[2]));
    }

    #[tokio::test]
    async fn the_busiest_network_makes_room() {
        let sources = Arc::new(Sources::default());
        let bounds = Bounds { all: 4, ..BOUNDS };
        let froms = ["10.1.0.1", "10.0.0.1", "10.0.0.2", "10.0.0.2"];
        let held = froms.map(|from| begin(&sources, from, bounds).unwrap());
        let _next = begin(&sources, "10.2.0.1", bounds).unwrap();
        assert_eq!(held.each_ref().map(is_evicted), [false, false, true, false]);
        assert_eq!(sources.lock().open, 4);
    }
}
