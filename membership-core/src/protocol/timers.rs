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
    /// A silo that was asked to write may have said nothing for too long.
    Courier,
}

/// At most a few dozen timers: a list is faster than a tree.
#[derive(Debug, Default)]
pub(crate) struct Timers {
    /// Sorted so that the next timer is last.
    planned: Vec<(MonoTime, Timer)>,
}

impl Timers {
    pub(crate) fn set(&mut self, timer: Timer, at: MonoTime) {
        self.clear(timer);
        let place = self
            .planned
            .partition_point(|planned| *planned > (at, timer));
        self.planned.insert(place, (at, timer));
    }

    pub(crate) fn clear(&mut self, timer: Timer) {
        if let Some(place) = self.place(timer) {
            self.planned.remove(place);
        }
    }

    pub(crate) fn is_set(&self, timer: Timer) -> bool {
        self.place(timer).is_some()
    }

    /// When a timer fires, if it is set.
    pub(crate) fn at(&self, timer: Timer) -> Option<MonoTime> {
        self.place(timer)
            .and_then(|place| self.planned.get(place))
            .map(|(at, _)| *at)
    }

    fn place(&self, timer: Timer) -> Option<usize> {
        self.planned
            .iter()
            .rposition(|(_, planned)| *planned == timer)
    }

    pub(crate) fn next(&self) -> Option<MonoTime> {
        self.planned.last().map(|(at, _)| *at)
    }

    /// Removes and returns the next timer that is due.
    pub(crate) fn pop_due(&mut self, now: MonoTime) -> Option<Timer> {
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
