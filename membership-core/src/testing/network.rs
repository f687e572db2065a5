//! The network of the virtual world: who hears whom, after how long. It knows places (machines), not silos, so that another protocol can
//! run over the very same network.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::dice::Dice;

/// How long messages take: usually `low` to `high`, and with probability `slow_share` up to `slow`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Latency {
    /// At least.
    pub low: Duration,
    /// Usually at most.
    pub high: Duration,
    /// How many are slow: 0 to 1.
    pub slow_share: f64,
    /// At most, for the slow ones.
    pub slow: Duration,
}

impl Default for Latency {
    /// One data centre: 0.2 to 1.5 ms, one in a hundred up to 20 ms.
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
    /// How long one message takes.
    pub fn draw(&self, dice: &mut Dice) -> Duration {
        if dice.chance(self.slow_share) {
            dice.between(self.high, self.slow)
        } else {
            dice.between(self.low, self.high)
        }
    }
}

/// A network between numbered places. All randomness comes from the dice that are handed in; what is switched off throws none.
///
/// ```
/// use membership_core::testing::{Dice, Latency, Network};
/// let (mut network, mut dice) = (Network::new(Latency::default()), Dice::new(7));
/// assert!(network.carry(0, 1, &mut dice).is_some());
/// network.shut(0, 1);
/// assert!(network.carry(0, 1, &mut dice).is_none());
/// assert!(network.carry(1, 0, &mut dice).is_some(), "one direction");
/// network.set_egress_loss(1, 1.0);
/// assert!(network.carry(1, 0, &mut dice).is_none());
/// ```
#[derive(Clone, Debug, Default)]
pub struct Network {
    latency: Latency,
    loss: f64,
    egress: BTreeMap<usize, f64>,
    ingress: BTreeMap<usize, f64>,
    down: bool,
    shut: BTreeSet<(usize, usize)>,
    duplicates: f64,
    delayed: (f64, Duration),
    zones: usize,
    between_zones: Option<Latency>,
}

impl Network {
    /// One where everything gets through.
    #[must_use]
    pub fn new(latency: Latency) -> Self {
        Self {
            latency,
            ..Self::default()
        }
    }

    /// After how long a message gets from a place to another; none when it does not. A place always reaches itself.
    pub fn carry(&self, from: usize, to: usize, dice: &mut Dice) -> Option<Duration> {
        if from != to && (self.down || self.is_shut(from, to) || self.gets_lost(from, to, dice)) {
            return None;
        }
        let usual = self.latency_between(from, to).draw(dice);
        let (share, most) = self.delayed;
        Some(if dice.chance(share) {
            usual + dice.between(Duration::ZERO, most)
        } else {
            usual
        })
    }

    fn gets_lost(&self, from: usize, to: usize, dice: &mut Dice) -> bool {
        let at = |rates: &BTreeMap<usize, f64>, place| rates.get(&place).copied().unwrap_or(0.0);
        dice.chance(self.loss)
            || dice.chance(at(&self.egress, from))
            || dice.chance(at(&self.ingress, to))
    }

    /// Whether the network makes a second copy of a message, which is carried like the first.
    pub fn duplicates(&self, dice: &mut Dice) -> bool {
        dice.chance(self.duplicates)
    }

    /// How long messages take.
    #[must_use]
    pub const fn latency(&self) -> Latency {
        self.latency
    }

    /// How long messages take from now on.
    pub fn set_latency(&mut self, latency: Latency) {
        self.latency = latency;
    }

    /// How many of all messages get lost at random.
    #[must_use]
    pub const fn loss(&self) -> f64 {
        self.loss
    }

    /// So many of all messages get lost at random from now on: 0 to 1.
    pub fn set_loss(&mut self, rate: f64) {
        self.loss = rate;
    }

    /// So many of the messages that leave a place get lost: 0 to 1.
    pub fn set_egress_loss(&mut self, place: usize, rate: f64) {
        set(&mut self.egress, place, rate);
    }

    /// So many of the messages that get to a place get lost there: 0 to 1.
    pub fn set_ingress_loss(&mut self, place: usize, rate: f64) {
        set(&mut self.ingress, place, rate);
    }

    /// The places that lose messages of their own.
    pub fn lossy(&self) -> impl Iterator<Item = usize> {
        self.egress.keys().chain(self.ingress.keys()).copied()
    }

    /// So many of all messages arrive twice: 0 to 1.
    pub fn set_duplicates(&mut self, rate: f64) {
        self.duplicates = rate;
    }

    /// So many of all messages (0 to 1) take up to so much longer, and are overtaken by others.
    pub fn set_delayed(&mut self, share: f64, most: Duration) {
        self.delayed = (share, most);
    }

    /// How much longer some messages take than usual.
    #[must_use]
    pub fn longest_delay(&self) -> Duration {
        if self.delayed.0 > 0.0 {
            self.delayed.1
        } else {
            Duration::ZERO
        }
    }

    /// Deals the places out to so many zones, one after the other; messages between zones take so long. 0 or 1: no zones.
    pub fn set_zones(&mut self, zones: usize, between: Latency) {
        self.zones = zones;
        self.between_zones = (zones > 1).then_some(between);
    }

    /// The zone of a place.
    #[must_use]
    pub const fn zone(&self, place: usize) -> usize {
        if self.zones > 1 {
            place % self.zones
        } else {
            0
        }
    }

    /// How many zones there are.
    #[must_use]
    pub const fn zones(&self) -> usize {
        if self.zones > 1 { self.zones } else { 1 }
    }

    /// How long messages take between two places.
    #[must_use]
    pub fn latency_between(&self, a: usize, b: usize) -> Latency {
        self.between_zones
            .filter(|_| self.zone(a) != self.zone(b))
            .unwrap_or(self.latency)
    }

    /// Shuts a direction. Says whether it was open.
    pub fn shut(&mut self, from: usize, to: usize) -> bool {
        self.shut.insert((from, to))
    }

    /// Opens a direction. Says whether it was shut.
    pub fn open(&mut self, from: usize, to: usize) -> bool {
        self.shut.remove(&(from, to))
    }

    /// Whether a direction is shut.
    #[must_use]
    pub fn is_shut(&self, from: usize, to: usize) -> bool {
        !self.shut.is_empty() && self.shut.contains(&(from, to))
    }

    /// Whether any direction is shut.
    #[must_use]
    pub fn any_shut(&self) -> bool {
        !self.shut.is_empty()
    }

    /// Nothing gets from any place to another (true), or what is not shut does.
    pub fn set_down(&mut self, down: bool) {
        self.down = down;
    }

    /// Whether nothing gets from any place to another.
    #[must_use]
    pub const fn is_down(&self) -> bool {
        self.down
    }

    /// Opens every direction and returns those that were shut, in order.
    pub fn open_all(&mut self) -> BTreeSet<(usize, usize)> {
        std::mem::take(&mut self.shut)
    }

    /// Nothing gets lost, doubled or delayed at random any more, anywhere.
    pub fn lose_nothing(&mut self) {
        self.duplicates = 0.0;
        self.delayed = (0.0, Duration::ZERO);
        self.loss = 0.0;
        self.egress.clear();
        self.ingress.clear();
    }
}

fn set(rates: &mut BTreeMap<usize, f64>, place: usize, rate: f64) {
    if rate > 0.0 {
        rates.insert(place, rate);
    } else {
        rates.remove(&place);
    }
}
