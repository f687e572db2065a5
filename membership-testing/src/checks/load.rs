//! P8: the load of one silo does not grow with the cluster.

use std::collections::VecDeque;
use std::time::Duration;

use super::{Check, Fact};
use crate::clock::VirtualTime;
use crate::ground_truth::GroundTruth;
use membership_core::protocol::Effect;

const WINDOW: Duration = Duration::from_secs(60);
const STEP: Duration = Duration::from_secs(5);

/// The largest permitted ratio between the peaks of a larger and a smaller cluster.
const MOST_GROWTH: f64 = 1.2;

/// P8: messages per silo per second, as the mean over all silos in any 60 s. This checker only
/// measures; a test compares [`Load::peak`] of two sizes, 100 and 1,000 silos with the same number
/// of crashes, by [`Load::compare`].
#[derive(Debug, Default)]
pub struct Load {
    steps: VecDeque<(VirtualTime, u64)>,
    in_window: u64,
    silos: usize,
    from: VirtualTime,
    peak: f64,
}

impl Load {
    /// Starts to measure, for this many silos, at a virtual time: usually after all of them have
    /// joined.
    #[must_use]
    pub fn of(silos: usize, from: VirtualTime) -> Self {
        Self {
            silos,
            from,
            ..Self::default()
        }
    }

    /// The most messages per silo per second in any 60 s so far.
    #[must_use]
    pub fn peak(&self) -> f64 {
        self.peak
    }

    /// Compares the peaks of a small cluster and of a large one.
    ///
    /// # Errors
    /// When the larger peak is more than 1.2 times the other, or nothing was measured.
    pub fn compare(small: f64, large: f64) -> Result<(), String> {
        if small > 0.0 && large > 0.0 && large <= small * MOST_GROWTH {
            return Ok(());
        }
        Err(format!(
            "{large:.2} messages per silo and second in the larger cluster, {small:.2} in the smaller one"
        ))
    }

    fn sent(&mut self, now: VirtualTime) {
        match self.steps.back_mut() {
            Some((begin, n)) if now < *begin + STEP => *n += 1,
            _ => {
                // A full window ends where a new step begins.
                if self
                    .steps
                    .front()
                    .is_some_and(|(begin, _)| now >= *begin + WINDOW)
                {
                    let mean =
                        self.in_window as f64 / WINDOW.as_secs_f64() / self.silos.max(1) as f64;
                    self.peak = self.peak.max(mean);
                }
                while self
                    .steps
                    .front()
                    .is_some_and(|(begin, _)| now >= *begin + WINDOW)
                {
                    self.in_window -= self.steps.pop_front().map_or(0, |(_, n)| n);
                }
                self.steps.push_back((now, 1));
            }
        }
        self.in_window += 1;
    }
}

impl Check for Load {
    fn invariant(&self) -> &'static str {
        "P8"
    }

    fn observe(&mut self, fact: &Fact<'_>, truth: &GroundTruth) -> Result<(), String> {
        if let Fact::Effect {
            effect: Effect::Send { .. },
            ..
        } = fact
            && truth.now >= self.from
        {
            self.sent(truth.now);
        }
        Ok(())
    }
}
