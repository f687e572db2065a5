//! The simulated network: which host reaches which, and with what delay. It connects hosts, not
//! silos, so that other protocols can use the same network.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use crate::rng::Rng;

/// The latency of messages: between `low` and `high`, or with probability `slow_share` up to
/// `slow`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Latency {
    /// The shortest latency.
    pub low: Duration,
    /// The longest latency of messages that are not slow.
    pub high: Duration,
    /// The share of slow messages, 0 to 1.
    pub slow_share: f64,
    /// The longest latency of slow messages.
    pub slow: Duration,
}

impl Default for Latency {
    /// One data centre: 0.2 to 1.5 ms, one message in a hundred up to 20 ms.
    fn default() -> Self {
        Self {
            low: Duration::from_micros(200),
            high: Duration::from_micros(1_500),
            slow_share: 0.01,
            slow: Duration::from_millis(20),
        }
    }
}

impl Latency {
    /// Draws the latency of one message.
    pub fn draw(&self, rng: &mut Rng) -> Duration {
        if rng.chance(self.slow_share) {
            rng.between(self.high, self.slow)
        } else {
            rng.between(self.low, self.high)
        }
    }
}

/// A network between numbered hosts. All randomness comes from the generator that the caller passes
/// in; faults that are off draw no random number.
///
/// ```
/// use membership_testing::{Latency, Network, Rng};
/// let (mut network, mut rng) = (Network::new(Latency::default()), Rng::new(7));
/// assert!(network.delay(0, 1, &mut rng).is_some());
/// network.block(0, 1);
/// assert!(network.delay(0, 1, &mut rng).is_none());
/// assert!(network.delay(1, 0, &mut rng).is_some(), "one direction");
/// network.set_egress_loss(1, 1.0);
/// assert!(network.delay(1, 0, &mut rng).is_none());
/// ```
#[derive(Clone, Debug, Default)]
pub struct Network {
    latency: Latency,
    loss: f64,
    egress: BTreeMap<usize, f64>,
    ingress: BTreeMap<usize, f64>,
    down: bool,
    blocked: BTreeSet<(usize, usize)>,
    duplicates: f64,
    delayed: (f64, Duration),
    zones: usize,
    between_zones: Option<Latency>,
    between: Vec<Between>,
}

/// The latency of the links between two sets of hosts.
#[derive(Clone, Debug)]
struct Between {
    these: BTreeSet<usize>,
    those: BTreeSet<usize>,
    latency: Latency,
}

impl Network {
    /// A network without faults.
    #[must_use]
    pub fn new(latency: Latency) -> Self {
        Self {
            latency,
            ..Self::default()
        }
    }

    /// Draws the delay of a message from one host to another; none when it is lost. A host always
    /// reaches itself.
    pub fn delay(&self, from: usize, to: usize, rng: &mut Rng) -> Option<Duration> {
        if !self.passes(from, to, rng) {
            return None;
        }
        let defaults = self.latency_between(from, to).draw(rng);
        let (share, most) = self.delayed;
        Some(if rng.chance(share) {
            defaults + rng.between(Duration::ZERO, most)
        } else {
            defaults
        })
    }

    /// Whether the direction from one host to another is open. A host always reaches itself.
    #[must_use]
    pub fn is_open(&self, from: usize, to: usize) -> bool {
        from == to || !(self.down || self.is_blocked(from, to))
    }

    /// Whether a message from one host to another arrives.
    pub fn passes(&self, from: usize, to: usize, rng: &mut Rng) -> bool {
        self.is_open(from, to) && (from == to || !self.is_lost(from, to, rng))
    }

    fn is_lost(&self, from: usize, to: usize, rng: &mut Rng) -> bool {
        let at = |rates: &BTreeMap<usize, f64>, host| rates.get(&host).copied().unwrap_or(0.0);
        rng.chance(self.loss)
            || rng.chance(at(&self.egress, from))
            || rng.chance(at(&self.ingress, to))
    }

    /// Whether the network duplicates this message. The copy gets a delay of its own.
    pub fn duplicates(&self, rng: &mut Rng) -> bool {
        rng.chance(self.duplicates)
    }

    /// The default latency.
    #[must_use]
    pub const fn latency(&self) -> Latency {
        self.latency
    }

    /// Sets the default latency.
    pub fn set_latency(&mut self, latency: Latency) {
        self.latency = latency;
    }

    /// The share of messages that are lost at random.
    #[must_use]
    pub const fn loss(&self) -> f64 {
        self.loss
    }

    /// Sets the share of messages that are lost at random, 0 to 1.
    pub fn set_loss(&mut self, rate: f64) {
        self.loss = rate;
    }

    /// Sets the share of messages that are lost when they leave a host, 0 to 1.
    pub fn set_egress_loss(&mut self, host: usize, rate: f64) {
        set(&mut self.egress, host, rate);
    }

    /// Sets the share of messages that are lost when they arrive at a host, 0 to 1.
    pub fn set_ingress_loss(&mut self, host: usize, rate: f64) {
        set(&mut self.ingress, host, rate);
    }

    /// The hosts that have a loss rate of their own.
    pub fn lossy(&self) -> impl Iterator<Item = usize> {
        self.egress.keys().chain(self.ingress.keys()).copied()
    }

    /// Sets the share of messages that are duplicated, 0 to 1.
    pub fn set_duplicates(&mut self, rate: f64) {
        self.duplicates = rate;
    }

    /// Sets the share of messages (0 to 1) that are delayed by up to `most`, so that others
    /// overtake them.
    pub fn set_delayed(&mut self, share: f64, most: Duration) {
        self.delayed = (share, most);
    }

    /// The longest extra delay of a message.
    #[must_use]
    pub fn longest_delay(&self) -> Duration {
        if self.delayed.0 > 0.0 {
            self.delayed.1
        } else {
            Duration::ZERO
        }
    }

    /// Distributes the hosts over zones, round robin, and sets the latency between zones. 0 or 1:
    /// no zones.
    pub fn set_zones(&mut self, zones: usize, between: Latency) {
        self.zones = zones;
        self.between_zones = (zones > 1).then_some(between);
    }

    /// The zone of a host.
    #[must_use]
    pub const fn zone(&self, host: usize) -> usize {
        if self.zones > 1 { host % self.zones } else { 0 }
    }

    /// The number of zones.
    #[must_use]
    pub const fn zones(&self) -> usize {
        if self.zones > 1 { self.zones } else { 1 }
    }

    /// The latency between two hosts.
    #[must_use]
    pub fn latency_between(&self, a: usize, b: usize) -> Latency {
        let joins = |x: &&Between| {
            (x.these.contains(&a) && x.those.contains(&b))
                || (x.those.contains(&a) && x.these.contains(&b))
        };
        if let Some(between) = self.between.iter().rev().find(joins) {
            return between.latency;
        }
        self.between_zones
            .filter(|_| self.zone(a) != self.zone(b))
            .unwrap_or(self.latency)
    }

    /// Sets the latency of the links between two sets of hosts, whatever their zones. The last such
    /// set that joins two hosts counts for them.
    pub fn set_latency_between(
        &mut self,
        these: BTreeSet<usize>,
        those: BTreeSet<usize>,
        latency: Latency,
    ) {
        self.between.push(Between {
            these,
            those,
            latency,
        });
    }

    /// Ends every latency that was set for the links between two sets of hosts.
    pub fn clear_latency_between(&mut self) {
        self.between.clear();
    }

    /// The longest latency that was set for the links between two sets of hosts.
    #[must_use]
    pub fn longest_between(&self) -> Duration {
        let longest = |x: &Between| x.latency.slow.max(x.latency.high);
        self.between.iter().map(longest).max().unwrap_or_default()
    }

    /// Blocks a direction. Returns whether it was open.
    pub fn block(&mut self, from: usize, to: usize) -> bool {
        self.blocked.insert((from, to))
    }

    /// Unblocks a direction. Returns whether it was blocked.
    pub fn unblock(&mut self, from: usize, to: usize) -> bool {
        self.blocked.remove(&(from, to))
    }

    /// Whether a direction is blocked.
    #[must_use]
    pub fn is_blocked(&self, from: usize, to: usize) -> bool {
        !self.blocked.is_empty() && self.blocked.contains(&(from, to))
    }

    /// Whether any direction is blocked.
    #[must_use]
    pub fn any_blocked(&self) -> bool {
        !self.blocked.is_empty()
    }

    /// Starts (true) or ends (false) an outage between all hosts.
    pub fn set_down(&mut self, down: bool) {
        self.down = down;
    }

    /// Whether there is an outage between all hosts.
    #[must_use]
    pub const fn is_down(&self) -> bool {
        self.down
    }

    /// Unblocks every direction, and returns those that were blocked, in order.
    pub fn unblock_all(&mut self) -> BTreeSet<(usize, usize)> {
        std::mem::take(&mut self.blocked)
    }

    /// Ends all random losses, duplicates and delays.
    pub fn clear_loss(&mut self) {
        self.duplicates = 0.0;
        self.delayed = (0.0, Duration::ZERO);
        self.loss = 0.0;
        self.egress.clear();
        self.ingress.clear();
    }
}

/// Directions that are blocked and unblocked in turns.
#[derive(Clone, Debug)]
pub(super) struct Flap {
    pub links: Vec<(usize, usize)>,
    pub down_for: Duration,
    pub up_for: Duration,
    pub is_blocked: bool,
}

fn set(rates: &mut BTreeMap<usize, f64>, host: usize, rate: f64) {
    if rate > 0.0 {
        rates.insert(host, rate);
    } else {
        rates.remove(&host);
    }
}
