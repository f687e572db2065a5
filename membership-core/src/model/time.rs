//! Time as an input: this crate never reads a clock.

use std::fmt;
use std::ops::{Add, Sub};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::text::quoted;

/// A point on the monotonic clock of one process: nanoseconds since an origin that only this
/// process knows.
///
/// Monotonic times of two silos must not be compared. The range is 0 to about 584 years.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
pub struct MonoTime(u64);

impl MonoTime {
    /// The origin.
    pub const ZERO: Self = Self(0);

    /// From nanoseconds since the origin.
    #[must_use]
    pub const fn from_nanos(nanos: u64) -> Self {
        Self(nanos)
    }

    /// Nanoseconds since the origin.
    #[must_use]
    pub const fn as_nanos(self) -> u64 {
        self.0
    }

    /// The duration from `earlier` to this time; zero when `earlier` is later.
    #[must_use]
    pub const fn since(self, earlier: Self) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }

    /// This time minus `by`, not below the origin.
    #[must_use]
    pub fn minus(self, by: Duration) -> Self {
        Self(self.0.saturating_sub(nanos(by)))
    }
}

fn nanos(d: Duration) -> u64 {
    u64::try_from(d.as_nanos()).unwrap_or(u64::MAX)
}

impl Add<Duration> for MonoTime {
    type Output = Self;
    fn add(self, rhs: Duration) -> Self {
        Self(self.0.saturating_add(nanos(rhs)))
    }
}

impl Sub for MonoTime {
    type Output = Duration;
    fn sub(self, rhs: Self) -> Duration {
        self.since(rhs)
    }
}

impl fmt::Display for MonoTime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "+{:.3}s", self.0 as f64 / 1e9)
    }
}

/// A wall-clock time: UTC, in whole milliseconds since 1970-01-01. Range: years 1970 to 9999.
///
/// Wall times are for people to read. The protocol uses monotonic time wherever it can, because the
/// clocks of two silos may differ by any amount.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct WallTime(u64);

/// 9999-12-31T23:59:59.999Z
const MAX_WALL_MILLIS: u64 = 253_402_300_799_999;

impl WallTime {
    /// From milliseconds since 1970, cut to the year 9999.
    #[must_use]
    pub const fn from_millis(millis: u64) -> Self {
        Self(if millis > MAX_WALL_MILLIS {
            MAX_WALL_MILLIS
        } else {
            millis
        })
    }

    /// Milliseconds since 1970.
    #[must_use]
    pub const fn as_millis(self) -> u64 {
        self.0
    }

    /// The duration from `earlier` to this time; zero when `earlier` is later.
    #[must_use]
    pub const fn since(self, earlier: Self) -> Duration {
        Duration::from_millis(self.0.saturating_sub(earlier.0))
    }

    /// The distance between two wall times, in either order.
    #[must_use]
    pub const fn distance(self, other: Self) -> Duration {
        Duration::from_millis(self.0.abs_diff(other.0))
    }

    /// This time plus `by`, cut to the year 9999.
    #[must_use]
    pub fn plus(self, by: Duration) -> Self {
        Self::from_millis(
            self.0
                .saturating_add(u64::try_from(by.as_millis()).unwrap_or(u64::MAX)),
        )
    }

    /// This time minus `by`, not before 1970.
    #[must_use]
    pub fn minus(self, by: Duration) -> Self {
        Self(
            self.0
                .saturating_sub(u64::try_from(by.as_millis()).unwrap_or(u64::MAX)),
        )
    }
}

/// `2026-11-21T01:02:03.004Z`, always with three decimal places.
impl fmt::Display for WallTime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ms = self.0 % 1000;
        let secs = self.0 / 1000;
        let (h, m, s) = (secs / 3600 % 24, secs / 60 % 60, secs % 60);
        // Days to civil date by Howard Hinnant's algorithm, restricted to dates after 1970.
        let z = secs / 86_400 + 719_468;
        let era = z / 146_097;
        let doe = z % 146_097;
        let yoe = (doe - doe / 1460 + doe / 36_524 - doe / 146_096) / 365;
        let doy = doe - (365 * yoe + yoe / 4 - yoe / 100);
        let mp = (5 * doy + 2) / 153;
        let d = doy - (153 * mp + 2) / 5 + 1;
        let month = if mp < 10 { mp + 3 } else { mp - 9 };
        let y = yoe + era * 400 + u64::from(month <= 2);
        write!(f, "{y:04}-{month:02}-{d:02}T{h:02}:{m:02}:{s:02}.{ms:03}Z")
    }
}

crate::debug_as_display!(ParseTimeError);

/// The error for a text that is not a time of the form `2026-11-21T01:02:03.004Z`.
#[derive(Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not a UTC time of the form 2026-11-21T01:02:03.004Z")]
pub struct ParseTimeError(String);

impl std::str::FromStr for WallTime {
    type Err = ParseTimeError;

    fn from_str(text: &str) -> Result<Self, ParseTimeError> {
        let parse = || -> Option<Self> {
            let b = text.as_bytes();
            let num = |r: std::ops::Range<usize>| -> Option<u64> {
                let part = b.get(r)?;
                part.iter().all(u8::is_ascii_digit).then_some(())?;
                std::str::from_utf8(part).ok()?.parse().ok()
            };
            let sep = |i: usize, c: u8| (b.get(i) == Some(&c)).then_some(());
            let (y, mo, d) = (num(0..4)?, num(5..7)?, num(8..10)?);
            let (h, mi, s) = (num(11..13)?, num(14..16)?, num(17..19)?);
            sep(4, b'-')?;
            sep(7, b'-')?;
            sep(10, b'T')?;
            sep(13, b':')?;
            sep(16, b':')?;
            let ms = match b.len() {
                20 => sep(19, b'Z').map(|()| 0)?,
                24 => {
                    sep(19, b'.')?;
                    sep(23, b'Z')?;
                    num(20..23)?
                }
                _ => return None,
            };
            if y < 1970
                || !(1..=12).contains(&mo)
                || !(1..=31).contains(&d)
                || h > 23
                || mi > 59
                || s > 59
            {
                return None;
            }
            let ya = if mo <= 2 { y - 1 } else { y };
            let (era, yoe) = (ya / 400, ya % 400);
            let doy = (153 * (if mo > 2 { mo - 3 } else { mo + 9 }) + 2) / 5 + d - 1;
            let doe = yoe * 365 + yoe / 4 - yoe / 100 + doy;
            let days = era * 146_097 + doe - 719_468;
            let time = Self(((days * 24 + h) * 60 + mi) * 60_000 + s * 1000 + ms);
            // Rejects dates such as 30 February, which would become 2 March.
            (time.to_string().get(..10) == text.get(..10)).then_some(time)
        };
        parse().ok_or_else(|| ParseTimeError(quoted(text, 40)))
    }
}

impl Serialize for WallTime {
    fn serialize<S: serde::Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        if s.is_human_readable() {
            s.collect_str(self)
        } else {
            s.serialize_u64(self.0)
        }
    }
}

impl<'de> Deserialize<'de> for WallTime {
    fn deserialize<D: serde::Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        if d.is_human_readable() {
            let text = std::borrow::Cow::<'de, str>::deserialize(d)?;
            text.parse().map_err(serde::de::Error::custom)
        } else {
            u64::deserialize(d).map(Self::from_millis)
        }
    }
}

/// Both clocks of one process at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Now {
    /// The process's monotonic clock.
    pub mono: MonoTime,
    /// The process's wall clock, which may be wrong and may jump.
    pub wall: WallTime,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wall_time_reads_what_it_writes() {
        for ms in [
            0,
            1,
            951_782_400_000,
            1_709_164_800_123,
            1_795_222_923_004,
            MAX_WALL_MILLIS,
        ] {
            let t = WallTime::from_millis(ms);
            assert_eq!(t.to_string().parse::<WallTime>(), Ok(t), "{t}");
        }
        assert_eq!(
            WallTime::from_millis(1_709_164_800_123).to_string(),
            "2024-02-29T00:00:00.123Z"
        );
        assert_eq!(
            WallTime::from_millis(u64::MAX).to_string(),
            "9999-12-31T23:59:59.999Z"
        );
    }

    #[test]
    fn wall_time_refuses_nonsense() {
        for bad in [
            "",
            "2026-02-30T00:00:00.000Z",
            "2026-11-21 01:02:03.004Z",
            "2026-11-21T24:00:00.000Z",
            "1969-01-01T00:00:00.000Z",
            "２026-11-21T01:02:03Z",
        ] {
            assert!(bad.parse::<WallTime>().is_err(), "{bad}");
        }
    }
}
