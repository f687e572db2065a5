//! How late this silo's timers have been in the last seconds. Where they are late, its machine is busy:
//! what others have sent waits to be read, and others on that machine are as slow. Nobody is asked again,
//! and nobody is left, for what takes longer then.

use std::time::Duration;

use crate::MonoTime;

/// How long it counts that a timer was late.
const COUNTS: Duration = Duration::from_secs(5);

#[derive(Debug, Default)]
pub(crate) struct Lag {
    /// The largest lateness in the last [`COUNTS`], and when it was found.
    late: Duration,
    at: MonoTime,
}

impl Lag {
    /// A timer is so late.
    pub(crate) fn on_late(&mut self, now: MonoTime, late: Duration) {
        if late > self.late || now.since(self.at) > COUNTS {
            (self.late, self.at) = (late, now);
        }
    }

    /// How much longer than usual to wait: so many times that lateness, and this at most.
    pub(crate) fn slack(&self, now: MonoTime, times: u32, most: Duration) -> Duration {
        self.recent(now).saturating_mul(times).min(most)
    }

    /// How late timers were, at most, in the last seconds.
    pub(crate) fn recent(&self, now: MonoTime) -> Duration {
        if now.since(self.at) <= COUNTS {
            self.late
        } else {
            Duration::ZERO
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_largest_lateness_counts_for_five_seconds() {
        let (at, ms) = (
            |ms| MonoTime::ZERO + Duration::from_millis(ms),
            Duration::from_millis,
        );
        let mut lag = Lag::default();
        assert_eq!(lag.recent(at(60_000)), Duration::ZERO);
        lag.on_late(at(60_000), ms(200));
        lag.on_late(at(61_000), ms(100));
        assert_eq!(lag.recent(at(61_000)), ms(200));
        assert_eq!(lag.recent(at(65_001)), Duration::ZERO);
        lag.on_late(at(65_001), ms(50));
        assert_eq!(lag.recent(at(65_001)), ms(50));
        lag.on_late(at(65_002), ms(60));
        assert_eq!(lag.slack(at(65_002), 10, ms(700)), ms(600));
        assert_eq!(lag.slack(at(65_002), 10, ms(500)), ms(500));
        assert_eq!(lag.slack(at(70_003), 10, ms(500)), ms(0));
    }
}
