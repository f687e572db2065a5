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

/// The last samples of a duration in seconds, with their mean and standard deviation.
///
/// ```
/// let mut window = membership_core::protocol::SampleWindow::new(2);
/// for seconds in [9.0, 1.0, 3.0] {
///     window.add(seconds);
/// }
/// assert_eq!((window.mean(), window.deviation()), (2.0, 1.0));
/// ```
#[derive(Clone, Debug)]
pub struct SampleWindow {
    samples: VecDeque<f64>,
    capacity: usize,
    sum: f64,
    squares: f64,
}

impl SampleWindow {
    /// An empty window of at most `capacity` samples, at least one.
    #[must_use]
    pub fn new(capacity: usize) -> Self {
        Self {
            samples: VecDeque::new(),
            capacity: capacity.max(1),
            sum: 0.0,
            squares: 0.0,
        }
    }

    /// Adds a sample; the oldest one leaves a full window.
    pub fn add(&mut self, seconds: f64) {
        if self.samples.len() == self.capacity
            && let Some(old) = self.samples.pop_front()
        {
            self.sum -= old;
            self.squares -= old * old;
        }
        self.samples.push_back(seconds);
        self.sum += seconds;
        self.squares += seconds * seconds;
    }

    /// Replaces the newest sample of this value, if there is one.
    pub(crate) fn replace(&mut self, old: f64, seconds: f64) {
        if let Some(sample) = self.samples.iter_mut().rev().find(|s| **s == old) {
            *sample = seconds;
            self.sum += seconds - old;
            self.squares += seconds * seconds - old * old;
        }
    }

    /// Number of samples.
    #[must_use]
    pub fn len(&self) -> usize {
        self.samples.len()
    }

    /// Whether there is no sample.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.samples.is_empty()
    }

    /// The mean in seconds, at least 0; 0 without samples.
    #[must_use]
    pub fn mean(&self) -> f64 {
        (self.sum / self.samples.len().max(1) as f64).max(0.0)
    }

    /// The standard deviation in seconds.
    #[must_use]
    pub fn deviation(&self) -> f64 {
        let mean = self.mean();
        let variance = self.squares / self.samples.len().max(1) as f64 - mean * mean;
        variance.max(0.0).sqrt()
    }
}

#[derive(Debug)]
pub(crate) struct Estimator(SampleWindow);

impl Default for Estimator {
    fn default() -> Self {
        Self(SampleWindow::new(WINDOW))
    }
}

impl Estimator {
    /// Takes a round trip, in place of one that it took before if there is one.
    pub(crate) fn take(&mut self, round_trip: Duration, instead_of: Option<Duration>) {
        let seconds = round_trip.as_secs_f64();
        match instead_of {
            Some(old) => self.0.replace(old.as_secs_f64(), seconds),
            None => self.0.add(seconds),
        }
    }

    /// mean + k·σ; none while there are too few samples. The caller sets the bounds.
    pub(crate) fn timeout(&self) -> Option<Duration> {
        if self.0.len() < MIN_SAMPLES {
            return None;
        }
        Duration::try_from_secs_f64(self.0.mean() + DEVIATIONS * self.0.deviation()).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_timeout_follows_round_trips() {
        let mut e = Estimator::default();
        for _ in 0..3 {
            e.take(Duration::from_millis(1), None);
            assert_eq!(e.timeout(), None);
        }
        e.take(Duration::from_millis(1), None);
        let t = e.timeout().unwrap();
        assert!(t < Duration::from_millis(2), "{t:?}");
        for i in 0..200 {
            e.take(
                Duration::from_millis(if i % 2 == 0 { 500 } else { 2500 }),
                None,
            );
        }
        let t = e.timeout().unwrap();
        assert!(
            t > Duration::from_secs(6) && t < Duration::from_secs(8),
            "{t:?}"
        );
    }
}
