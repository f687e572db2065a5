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

    /// mean + k·σ; none while there are too few samples. The caller sets the bounds.
    pub(crate) fn timeout(&self) -> Option<Duration> {
        if self.samples.len() < MIN_SAMPLES {
            return None;
        }
        let n = self.samples.len() as f64;
        let mean = (self.sum / n).max(0.0);
        let variance = (self.squares / n - mean * mean).max(0.0);
        Duration::try_from_secs_f64(mean + DEVIATIONS * variance.sqrt()).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_timeout_follows_round_trips() {
        let mut e = Estimator::default();
        for _ in 0..3 {
            e.add(Duration::from_millis(1));
            assert_eq!(e.timeout(), None);
        }
        e.add(Duration::from_millis(1));
        let t = e.timeout().unwrap();
        assert!(t < Duration::from_millis(2), "{t:?}");
        for i in 0..200 {
            e.add(Duration::from_millis(if i % 2 == 0 { 500 } else { 2500 }));
        }
        let t = e.timeout().unwrap();
        assert!(
            t > Duration::from_secs(6) && t < Duration::from_secs(8),
            "{t:?}"
        );
    }
}
