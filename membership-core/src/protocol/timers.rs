//! The times that the machine waits for. One wake-up serves all of them.

use crate::{MonoTime, SiloAddress};

/// A time that a machine waits for; setting a timer again replaces it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Timer {
    /// Checks the clock often enough to notice a pause.
    Tick,
    /// The next heartbeat, or its retry.
    Heartbeat,
    /// The periodic read.
    Refresh,
    /// Reads at half the heartbeat period while staleness matters.
    FastRead,
    /// The store hinted that the version may have moved.
    Hint,
    /// The table writer may try again.
    Writer,
    /// The joiner's next step.
    Join,
    /// The joiner gives up.
    JoinDeadline,
    /// The joiner reports its progress.
    JoinProgress,
    /// A probe is due or has timed out.
    Probe(SiloAddress),
    /// Suspects of roll calls have to be probed again, or have not answered in time.
    Answers,
    /// The next step of this silo's own roll call, or the end of the wait for another one's.
    Check,
    /// A few of the silos that no roll call could vote out are probed.
    Standoff,
    /// The deadline of the current step of a leave.
    Leave,
    /// Expired rows may have to be removed.
    Clean,
    /// Others are told that their changes wait.
    Desk,
    /// Contacts of newcomers are asked about, or were for too long.
    Vouching,
    /// A silo that was asked to write may have said nothing for too long.
    Courier,
    /// News that others have has not come for too long.
    Flood,
    /// What the table has shown has not been heard from a silo for too long.
    Fetch,
}

/// The times at which a machine has to be woken, one for each kind of timer `T`.
///
/// At most a few dozen timers: a list is faster than a tree.
///
/// ```
/// use membership_core::{MonoTime, protocol::Timers};
/// let mut timers = Timers::default();
/// timers.set("probe", MonoTime::from_nanos(5));
/// timers.set("probe", MonoTime::from_nanos(9));
/// assert_eq!(timers.pop_due(MonoTime::from_nanos(8)), None);
/// assert_eq!(timers.pop_due(MonoTime::from_nanos(9)), Some("probe"));
/// ```
#[derive(Clone, Debug)]
pub struct Timers<T> {
    /// Sorted so that the next timer is last.
    planned: Vec<(MonoTime, T)>,
}

impl<T> Default for Timers<T> {
    fn default() -> Self {
        Self {
            planned: Vec::new(),
        }
    }
}

impl<T: Copy + Ord> Timers<T> {
    /// Plans a timer, or plans it anew.
    pub fn set(&mut self, timer: T, at: MonoTime) {
        self.clear(timer);
        let place = self
            .planned
            .partition_point(|planned| *planned > (at, timer));
        self.planned.insert(place, (at, timer));
    }

    /// Cancels a timer.
    pub fn clear(&mut self, timer: T) {
        if let Some(place) = self.place(timer) {
            self.planned.remove(place);
        }
    }

    /// Whether a timer is planned.
    #[must_use]
    pub fn is_set(&self, timer: T) -> bool {
        self.place(timer).is_some()
    }

    /// When a timer fires, if it is set.
    #[must_use]
    pub fn at(&self, timer: T) -> Option<MonoTime> {
        self.place(timer)
            .and_then(|place| self.planned.get(place))
            .map(|(at, _)| *at)
    }

    fn place(&self, timer: T) -> Option<usize> {
        self.planned
            .iter()
            .rposition(|(_, planned)| *planned == timer)
    }

    /// When the next timer fires.
    #[must_use]
    pub fn next(&self) -> Option<MonoTime> {
        self.planned.last().map(|(at, _)| *at)
    }

    /// Removes and returns the next timer that is due.
    pub fn pop_due(&mut self, now: MonoTime) -> Option<T> {
        self.planned
            .pop_if(|(at, _)| *at <= now)
            .map(|(_, timer)| timer)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn fires_in_order_and_replaces() {
        let at = |s| MonoTime::ZERO + Duration::from_secs(s);
        let mut t = Timers::default();
        t.set(Timer::Refresh, at(5));
        t.set(Timer::Tick, at(3));
        t.set(Timer::Refresh, at(1));
        assert_eq!(t.next(), Some(at(1)));
        assert_eq!(t.pop_due(at(0)), None);
        assert_eq!(t.pop_due(at(3)), Some(Timer::Refresh));
        assert_eq!(t.pop_due(at(3)), Some(Timer::Tick));
        assert_eq!(t.next(), None);
    }
}
