//! What roll calls cost this silo: the messages that it sent for its own and for those of others, as
//! a level that falls with time. After calls that gave no majority the next one waits until the level
//! is low, so that a lasting fault cannot double the load again and again (invariant P15).

use std::time::Duration;

use crate::{Config, MonoTime};

/// The level above which the next call waits, in seconds of the quiet load.
const LOW: Duration = Duration::from_secs(15);
/// The highest level, in seconds of the quiet load: no caller can hold back the calls of others for
/// longer.
const MOST: Duration = Duration::from_secs(75);

#[derive(Debug, Default)]
pub(crate) struct Expense {
    /// When all messages so far will be paid for.
    until: MonoTime,
}

impl Expense {
    /// The time in which one message is paid for: half of the quiet load goes to roll calls.
    fn price(config: &Config) -> Duration {
        config.probe_period / config.num_probed_silos.max(1)
    }

    pub(crate) fn add(&mut self, now: MonoTime, config: &Config) {
        self.until = (self.until.max(now) + Self::price(config)).min(now + MOST);
    }

    /// Until when the next call has to wait; in the past if it need not.
    pub(crate) fn free_at(&self) -> MonoTime {
        self.until.minus(LOW)
    }
}
