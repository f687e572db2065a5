//! The timeout of a probe: phi accrual over round-trip times (Hayashibara et al., 2004), as a
//! timeout instead of a level.

use std::collections::VecDeque;
use std::time::Duration;

/// Number of round trips in the window.
const WINDOW: usize = 100;
/// Minimum number of round trips before they are used.
const MIN_SAMPLES: usize = 4;
/// Number of standard deviations above the mean that gives φ = 8 under the logistic approximation
/// of the normal tail: the solution of log10(1 + e^(y(1.5976 + 0.070566 y²))) = 8.
const DEVIATIONS: f64 = 5.226;

#[derive(Debug, Default)]
pub(crate) struct Estimator {
    samples: VecDeque<f64>,
    sum: f64,
    squares: f64,
}

impl Estimator {
    pub(crate) fn add(&mut self, round_trip: Duration) {
        let x = round_trip.as_secs_f64();
        if self.samples.len() == WINDOW
            && let Some(old) = self.samples.pop_front()
        {
            self.sum -= old;
            self.squares -= old * old;
        }
        self.samples.push_back(x);
        self.sum += x;
        self.squares += x * x;
    }

    /// mean + k·σ. The lower bound of σ makes the timeout half of `start` for a negligible mean.
    /// Returns `start` while there are too few samples. The result is not clamped.
    pub(crate) fn timeout(&self, start: Duration) -> Duration {
        if self.samples.len() < MIN_SAMPLES {
            return start;
        }
        let n = self.samples.len() as f64;
        let mean = (self.sum / n).max(0.0);
        let variance = (self.squares / n - mean * mean).max(0.0);
        let floor = start.as_secs_f64() / (2.0 * DEVIATIONS);
        Duration::try_from_secs_f64(mean + DEVIATIONS * variance.sqrt().max(floor)).unwrap_or(start)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_timeout_starts_as_configured_and_follows_round_trips() {
        let start = Duration::from_secs(5);
        let mut e = Estimator::default();
        for _ in 0..3 {
            e.add(Duration::from_millis(1));
            assert_eq!(e.timeout(start), start);
        }
        e.add(Duration::from_millis(1));
        let t = e.timeout(start);
        assert!(
            t > Duration::from_millis(2500) && t < Duration::from_millis(2510),
            "{t:?}"
        );
        for i in 0..200 {
            e.add(Duration::from_millis(if i % 2 == 0 { 500 } else { 2500 }));
        }
        let t = e.timeout(start);
        assert!(
            t > Duration::from_secs(6) && t < Duration::from_secs(8),
            "{t:?}"
        );
    }
}
