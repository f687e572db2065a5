//! When something was true in virtual time: a fault, a pause, an outage.

use std::collections::VecDeque;
use std::time::Duration;

use crate::clock::VirtualTime;

/// How long an [`Interval`] remembers what has ended. No check looks further back.
const REMEMBERED: Duration = Duration::from_secs(20 * 60);

/// The intervals of virtual time in which something was true: the present one, if it is true now,
/// and those that ended within the last 20 minutes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Interval {
    since: Option<VirtualTime>,
    ended: VecDeque<(VirtualTime, VirtualTime)>,
}

impl Interval {
    /// Records that it becomes true (`on`) or false at `now`.
    pub fn set(&mut self, on: bool, now: VirtualTime) {
        if on {
            self.since.get_or_insert(now);
        } else if let Some(since) = self.since.take() {
            self.ended.push_back((since, now));
            // The last one stays: `began` and `overlaps` ask for it at any time.
            while self.ended.len() > 1
                && self
                    .ended
                    .front()
                    .is_some_and(|(_, end)| *end + REMEMBERED < now)
            {
                self.ended.pop_front();
            }
        }
    }

    /// When it last became true.
    #[must_use]
    pub fn began(&self) -> Option<VirtualTime> {
        self.since.or(self.ended.back().map(|(since, _)| *since))
    }

    /// Whether it is true now.
    #[must_use]
    pub fn is_on(&self) -> bool {
        self.since.is_some()
    }

    /// Whether it was true at any time from `from` until now.
    #[must_use]
    pub fn overlaps(&self, from: VirtualTime) -> bool {
        self.is_on() || self.ended.back().is_some_and(|(_, end)| *end >= from)
    }

    /// Whether it was true at any time from `from` to `to`.
    #[must_use]
    pub fn during(&self, from: VirtualTime, to: VirtualTime) -> bool {
        self.spans(from, to).next().is_some()
    }

    /// Whether it was true all the time from `from` to `to`.
    #[must_use]
    pub fn throughout(&self, from: VirtualTime, to: VirtualTime) -> bool {
        self.spans(from, to)
            .any(|(since, until)| since <= from && until >= to)
    }

    /// Whether it became true at any time from `from` to `to`.
    #[must_use]
    pub fn began_during(&self, from: VirtualTime, to: VirtualTime) -> bool {
        self.spans(from, to).any(|(since, _)| since >= from)
    }

    /// Each time of truth that has a part in `from..=to`: its beginning, and its end, or `to` if
    /// it lasts longer.
    pub fn spans(
        &self,
        from: VirtualTime,
        to: VirtualTime,
    ) -> impl Iterator<Item = (VirtualTime, VirtualTime)> {
        let lasting = self.since.map(|since| (since, to));
        let spans = self.ended.iter().copied().chain(lasting);
        spans
            .filter(move |(since, until)| *since <= to && *until >= from)
            .map(move |(since, until)| (since, until.min(to)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: fn(u64) -> Duration = Duration::from_secs;

    #[test]
    fn an_interval_remembers_when_it_ended() {
        let mut interval = Interval::default();
        assert!(!interval.overlaps(S(0)));
        interval.set(true, S(5));
        assert!(interval.is_on() && interval.overlaps(S(100)));
        interval.set(false, S(9));
        assert!(!interval.is_on() && interval.overlaps(S(9)) && !interval.overlaps(S(10)));
        assert_eq!(interval.began(), Some(S(5)));
    }

    #[test]
    fn an_interval_remembers_earlier_times() {
        let mut interval = Interval::default();
        for (since, until) in [(5, 9), (20, 30)] {
            interval.set(true, S(since));
            interval.set(false, S(until));
        }
        assert!(interval.during(S(0), S(5)) && interval.during(S(9), S(10)));
        assert!(!interval.during(S(10), S(19)));
        assert!(interval.began_during(S(5), S(6)) && !interval.began_during(S(6), S(19)));
        assert!(interval.throughout(S(6), S(9)) && !interval.throughout(S(6), S(21)));
        interval.set(true, S(40));
        assert!(interval.throughout(S(41), S(50)));
        let spans: Vec<_> = interval.spans(S(8), S(41)).collect();
        assert_eq!(spans, [(S(5), S(9)), (S(20), S(30)), (S(40), S(41))]);
        // What ended long ago is forgotten.
        interval.set(false, S(10_000));
        assert!(!interval.during(S(0), S(30)) && interval.during(S(50), S(60)));
    }
}
