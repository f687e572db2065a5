//! Probes that are sent before their time: after a miss, and of others that may have fallen silent at
//! the same moment. Where many messages are lost or late that happens all the time, and the silo must not
//! probe the faster for it (invariant P15): it has enough of them for many targets that crash together, and
//! then one for every four probes of the quiet load.

use std::time::Duration;

use crate::{Config, MonoTime};

/// How many early probes of each target may be sent at once.
const EACH: u32 = 4;

#[derive(Debug, Default)]
pub(crate) struct Early {
    /// When all of them so far will be paid for.
    until: MonoTime,
}

impl Early {
    /// The time in which one of them is paid for: that of four probes of the quiet load.
    fn price(config: &Config) -> Duration {
        config.probe_period.saturating_mul(4) / config.num_probed_silos.max(1)
    }

    /// The price of all that may be sent at once.
    fn most(config: &Config) -> Duration {
        let many = config.num_probed_silos.saturating_mul(EACH);
        Self::price(config).saturating_mul(many)
    }

    /// Whether at least half of those that may be sent at once are left.
    pub(crate) fn has_many(&self, now: MonoTime, config: &Config) -> bool {
        self.until <= now + Self::most(config) / 2
    }

    /// Takes one; false = the probe has to wait for its time.
    pub(crate) fn take(&mut self, now: MonoTime, config: &Config) -> bool {
        let until = self.until.max(now) + Self::price(config);
        let left = until <= now + Self::most(config);
        if left {
            self.until = until;
        }
        left
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_may_be_sent_at_once_and_then_a_quarter_of_the_quiet_load() {
        let config = Config::default();
        let at = |ms| MonoTime::ZERO + Duration::from_millis(ms);
        let mut early = Early::default();
        assert!(early.has_many(at(0), &config));
        let at_once = (0..1_000).filter(|_| early.take(at(0), &config)).count();
        assert_eq!(at_once, 4 * config.num_probed_silos as usize);
        assert!(!early.has_many(at(0), &config));
        let minute: u64 = 60_000;
        let later = (0..minute)
            .filter(|ms| early.take(at(*ms), &config))
            .count();
        let quiet = 60.0 / config.probe_period.as_secs_f64() * f64::from(config.num_probed_silos);
        let share = later as f64 / quiet;
        assert!((0.23..=0.25).contains(&share), "{later} of {quiet}");
    }
}
