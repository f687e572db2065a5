//! How long a certificate is still valid, and whether that is short.

use std::fmt;
use std::time::Duration;

const HOUR: u64 = 3600;
const DAY: u64 = 24 * HOUR;
/// One that ends sooner should have been renewed.
const SOON: Duration = Duration::from_secs(30 * DAY);

/// How long a certificate is still valid.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub struct Validity {
    /// From now to its end; zero once it has ended.
    pub left: Duration,
    /// From its beginning to its end.
    pub lifetime: Duration,
}

impl Validity {
    pub(super) const fn new(left: Duration, lifetime: Duration) -> Self {
        Self { left, lifetime }
    }

    /// Whether it should have been renewed: less is left than 30 days, and than a third of its
    /// lifetime, so that one that lasts for days is not called late all its life.
    #[must_use]
    pub fn ends_soon(&self) -> bool {
        self.left < SOON.min(self.lifetime / 3)
    }
}

/// What is left: whole days, or hours below two days.
impl fmt::Display for Validity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seconds = self.left.as_secs();
        let (n, unit) = match seconds {
            0..172_800 => (seconds / HOUR, "hour"),
            _ => (seconds / DAY, "day"),
        };
        write!(f, "{n} {unit}{}", if n == 1 { "" } else { "s" })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of_days(left: u64, lifetime: u64) -> Validity {
        Validity::new(
            Duration::from_secs(left * DAY),
            Duration::from_secs(lifetime * DAY),
        )
    }

    #[test]
    fn a_third_of_a_short_lifetime_is_soon_enough() {
        for (left, lifetime, soon) in [
            (31, 365, false),
            (29, 365, true),
            (9, 10, false),
            (3, 10, true),
        ] {
            assert_eq!(
                of_days(left, lifetime).ends_soon(),
                soon,
                "{left} of {lifetime}"
            );
        }
    }

    #[test]
    fn the_last_two_days_are_told_in_hours() {
        let hours = |n| Validity::new(Duration::from_secs(n * HOUR), Duration::ZERO).to_string();
        assert_eq!(
            [hours(0), hours(1), hours(47)],
            ["0 hours", "1 hour", "47 hours"]
        );
        assert_eq!([hours(48), hours(24 * 9 + 5)], ["2 days", "9 days"]);
    }
}
