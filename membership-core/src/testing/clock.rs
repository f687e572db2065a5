//! The clocks of one process: a wall clock that may be wrong and may run fast or slow, and a monotonic one that may run fast or slow.

use std::time::Duration;

use super::circumstances::VirtualTime;

const MILLION: i128 = 1_000_000;
/// Clocks run at most this fast or slow, in parts per million: half or one and a half times as fast as time.
const MOST_PPM: i64 = 500_000;

/// How wrong a wall clock is: by so much at some time, and by more and more since.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Skew {
    ms: i64,
    since: VirtualTime,
    ppm: i64,
}

impl Skew {
    /// How far the clock is from the truth at a time, in milliseconds; positive = ahead.
    #[must_use]
    pub fn at(&self, now: VirtualTime) -> i64 {
        self.ms + drifted(now.saturating_sub(self.since), self.ppm) / 1_000_000
    }

    /// How much too fast it runs, in parts per million.
    #[must_use]
    pub const fn ppm(&self) -> i64 {
        self.ppm
    }

    /// The same clock, stepped now: wrong by so much from now on.
    #[must_use]
    pub const fn stepped(self, now: VirtualTime, ms: i64) -> Self {
        Self {
            ms,
            since: now,
            ppm: self.ppm,
        }
    }

    /// The same clock, too fast by so much from now on.
    #[must_use]
    pub fn drifting(self, now: VirtualTime, ppm: i64) -> Self {
        Self {
            ms: self.at(now),
            since: now,
            ppm: ppm.clamp(-MOST_PPM, MOST_PPM),
        }
    }
}

/// By how many nanoseconds a clock goes wrong within a time.
fn drifted(time: Duration, ppm: i64) -> i64 {
    let nanos = i128::try_from(time.as_nanos()).unwrap_or(0) * i128::from(ppm) / MILLION;
    i64::try_from(nanos).unwrap_or(0)
}

/// A monotonic clock: what it showed at some time, and how fast it runs since.
#[derive(Clone, Copy, Debug)]
pub(super) struct Monotonic {
    since: VirtualTime,
    shown: Duration,
    ppm: i64,
}

impl Monotonic {
    /// One that is never wrong, and shows this when the world begins.
    pub(super) const fn beginning(shown: Duration) -> Self {
        Self {
            since: Duration::ZERO,
            shown,
            ppm: 0,
        }
    }

    pub(super) const fn ppm(&self) -> i64 {
        self.ppm
    }

    /// Too fast by so many parts per million from now on.
    pub(super) fn set_rate(&mut self, now: VirtualTime, ppm: i64) {
        *self = Self {
            since: now,
            shown: self.shows(now),
            ppm: ppm.clamp(-MOST_PPM, MOST_PPM),
        };
    }

    /// What it shows.
    pub(super) fn shows(&self, now: VirtualTime) -> Duration {
        let passed = now.saturating_sub(self.since);
        let wrong = drifted(passed, self.ppm);
        let shown = self.shown + passed;
        let by = Duration::from_nanos(wrong.unsigned_abs());
        if wrong < 0 {
            shown.saturating_sub(by)
        } else {
            shown + by
        }
    }

    /// The first moment at which it shows this; in the past, if it has.
    pub(super) fn when(&self, shown: Duration) -> VirtualTime {
        let Some(ahead) = shown.checked_sub(self.shown) else {
            return self.since.saturating_sub(self.shown - shown);
        };
        if self.ppm == 0 {
            return self.since + ahead;
        }
        let nanos = u128::from(u64::try_from(ahead.as_nanos()).unwrap_or(u64::MAX));
        let rate = u128::try_from(MILLION + i128::from(self.ppm)).unwrap_or(1);
        // Rounded up, and once more for the rounding of `shows`: a machine that is woken before its time would spin.
        let passed = (nanos * 1_000_000).div_ceil(rate) + 1;
        self.since + Duration::from_nanos(u64::try_from(passed).unwrap_or(u64::MAX))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: fn(u64) -> Duration = Duration::from_secs;

    #[test]
    fn a_wall_clock_drifts_and_is_stepped() {
        let clock = Skew::default().drifting(S(100), 10_000);
        assert_eq!((clock.at(S(100)), clock.at(S(200))), (0, 1_000));
        let stepped = clock.stepped(S(200), -60_000);
        assert_eq!((stepped.at(S(200)), stepped.at(S(300))), (-60_000, -59_000));
        let slow = stepped.drifting(S(300), -10_000);
        assert_eq!((slow.at(S(300)), slow.at(S(400))), (-59_000, -60_000));
    }

    #[test]
    fn a_monotonic_clock_shows_what_it_was_asked_for_when_it_says() {
        for ppm in [0, 1, -1, 137, -30_000, 30_000, 500_000, -500_000] {
            let mut clock = Monotonic::beginning(S(1_500));
            clock.set_rate(S(77), ppm);
            let mut last = clock.shows(S(77));
            for step in 1..500_u64 {
                let wanted = last + Duration::from_nanos(step * step * 7_919);
                let at = clock.when(wanted);
                assert!(clock.shows(at) >= wanted, "{ppm} ppm: {wanted:?} at {at:?}");
                assert!(
                    clock.shows(at - Duration::from_nanos(4)) <= wanted,
                    "not much too late"
                );
                last = wanted;
            }
            let (shown, now) = (clock.shows(S(500)), S(500));
            clock.set_rate(now, -ppm);
            assert_eq!(clock.shows(now), shown, "it does not jump");
        }
    }
}
