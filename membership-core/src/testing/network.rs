//! The network of the virtual world: who hears whom, after how long.

use std::collections::BTreeSet;
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
        Self { low: Duration::from_micros(200), high: Duration::from_micros(1_500), slow_share: 0.01, slow: Duration::from_millis(20) }
    }
}

impl Latency {
    pub(super) fn draw(&self, dice: &mut Dice) -> Duration {
        if dice.chance(self.slow_share) { dice.between(self.high, self.slow) } else { dice.between(self.low, self.high) }
    }
}

#[derive(Debug, Default)]
pub(super) struct Network {
    pub latency: Latency,
    pub loss: f64,
    pub down: bool,
    /// Directions (from place, to place) that are shut.
    pub shut: BTreeSet<(usize, usize)>,
}

impl Network {
    /// After how long a message gets there; none when it does not. A machine always reaches itself.
    pub(super) fn carry(&self, from: usize, to: usize, dice: &mut Dice) -> Option<Duration> {
        if from != to && (self.down || (!self.shut.is_empty() && self.shut.contains(&(from, to))) || dice.chance(self.loss)) {
            return None;
        }
        Some(self.latency.draw(dice))
    }
}
