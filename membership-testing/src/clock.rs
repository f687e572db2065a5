//! Virtual time and the clocks of a process: a wall clock with an offset and a rate error, and a
//! monotonic clock with a rate error.

use std::time::Duration;

use membership_core::WallTime;

/// Time since the simulation started.
pub type VirtualTime = Duration;

/// The wall time at which every simulation starts, before clock offsets: 2026-01-01.
pub const SIMULATION_START: WallTime = WallTime::from_millis(1_767_225_600_000);

const MILLION: i128 = 1_000_000;
/// The largest rate error of a clock, in parts per million: half as fast, or half as fast again.
const MOST_PPM: i64 = 500_000;

/// The error of a wall clock: an offset at some time, and a drift since then.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Skew {
    ms: i64,
    since: VirtualTime,
    ppm: i64,
}

impl Skew {
    /// The error of the clock at a time, in milliseconds; positive = ahead.
    #[must_use]
    pub fn at(&self, now: VirtualTime) -> i64 {
        self.ms + drifted(now.saturating_sub(self.since), self.ppm) / 1_000_000
    }

    /// The rate error, in parts per million; positive = too fast.
    #[must_use]
    pub const fn ppm(&self) -> i64 {
        self.ppm
    }

    /// The same clock, stepped at `now` to an offset of `ms`.
    #[must_use]
    pub const fn stepped(self, now: VirtualTime, ms: i64) -> Self {
        Self {
            ms,
            since: now,
            ppm: self.ppm,
        }
    }

    /// The same clock, with a new rate error from `now` on.
    #[must_use]
    pub fn drifting(self, now: VirtualTime, ppm: i64) -> Self {
        Self {
            ms: self.at(now),
            since: now,
            ppm: ppm.clamp(-MOST_PPM, MOST_PPM),
        }
    }
}

/// The error in nanoseconds that a clock accumulates within a time.
fn drifted(time: Duration, ppm: i64) -> i64 {
    let nanos = i128::try_from(time.as_nanos()).unwrap_or(0) * i128::from(ppm) / MILLION;
    i64::try_from(nanos).unwrap_or(0)
}

/// A monotonic clock: what it showed at some time, and its rate error since then.
#[derive(Clone, Copy, Debug)]
pub(super) struct Monotonic {
    since: VirtualTime,
    shown: Duration,
    ppm: i64,
}

impl Monotonic {
    /// A clock without a rate error that shows `shown` at the start of the simulation.
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

    /// Sets the rate error, in parts per million.
    pub(super) fn set_rate(&mut self, now: VirtualTime, ppm: i64) {
        *self = Self {
            since: now,
            shown: self.shows(now),
            ppm: ppm.clamp(-MOST_PPM, MOST_PPM),
        };
    }

    /// What it shows at a time.
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

    /// The first time at which it shows `shown`; in the past, if it already has.
    pub(super) fn when(&self, shown: Duration) -> VirtualTime {
        let Some(ahead) = shown.checked_sub(self.shown) else {
            return self.since.saturating_sub(self.shown - shown);
        };
        if self.ppm == 0 {
            return self.since + ahead;
        }
        let nanos = u128::from(u64::try_from(ahead.as_nanos()).unwrap_or(u64::MAX));
        let rate = u128::try_from(MILLION + i128::from(self.ppm)).unwrap_or(1);
        // Rounded up, and once more for the rounding of `shows`: a machine that is woken too early
        // would loop.
        let passed = (nanos * 1_000_000).div_ceil(rate) + 1;
        self.since + Duration::from_nanos(u64::try_from(passed).unwrap_or(u64::MAX))
    }
}

/// What a wall clock shows that is wrong by `skew_ms`.
pub(super) fn wall(now: VirtualTime, skew_ms: i64) -> WallTime {
    let millis = SIMULATION_START.as_millis() + u64::try_from(now.as_millis()).unwrap_or(0);
    WallTime::from_millis(millis.saturating_add_signed(skew_ms))
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
    fn a_monotonic_clock_is_the_inverse_of_when() {
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
