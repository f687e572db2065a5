//! What is said of the table, in the log of a silo and in the lines of the program: each cause once,
//! and the recovery when it lasts.

use std::time::Duration;

use membership_core::MonoTime;
use membership_core::protocol::TableState;

/// For so long, or two heartbeats if that is longer, the table must be available before the log says
/// so. A store whose reads work and whose writes fail is available and unavailable by turns, and in a
/// quiet cluster only heartbeats are written.
const LASTING: Duration = Duration::from_secs(10);
/// So many causes of one state are told until the table is available again.
const MAX_CAUSES: usize = 8;

/// What a [`TableLog`] has to say.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum TableLine {
    /// The table is in this state, because of this error where one is known.
    Broken(TableState, Option<String>),
    /// The table has been available for ten seconds, or two heartbeats if that is longer.
    Available,
}

/// Decides which changes of the table's state are worth a line: each cause once until the table has
/// been available for ten seconds, or two heartbeats if that is longer, and then that it is. A store whose reads work and whose writes
/// fail would otherwise give two lines a second. Of one state at most eight causes are told.
///
/// ```
/// use membership::protocol::TableState;
/// use membership::{MonoTime, TableLine, TableLog};
///
/// let mut log = TableLog::default();
/// let down = || Some("the disk is full".to_owned());
/// let at = MonoTime::from_nanos;
/// let line = log.changed(TableState::Unavailable, down(), at(1));
/// assert_eq!(line, Some(TableLine::Broken(TableState::Unavailable, down())));
/// assert_eq!(log.changed(TableState::Available, None, at(2)), None);
/// assert_eq!(log.changed(TableState::Unavailable, down(), at(3)), None);
/// ```
#[derive(Clone, Debug, Default)]
pub struct TableLog {
    /// What was told since the table was available.
    told: Vec<(TableState, Option<String>)>,
    available_since: Option<MonoTime>,
    /// The period of the heartbeats.
    heartbeats: Duration,
}

impl TableLog {
    /// Heartbeats are written in this period. A table that lets nobody write seems available from the
    /// first read after a heartbeat that failed until the next one fails, which takes up to a period
    /// more where it has to wait.
    pub const fn heartbeats(&mut self, period: Duration) {
        self.heartbeats = period;
    }

    fn lasting(&self) -> Duration {
        match self.heartbeats {
            Duration::ZERO => LASTING,
            period => LASTING.max(period * 2 + Duration::from_secs(1)),
        }
    }

    /// The state changed, because of this error, or is the same as before.
    pub fn changed(
        &mut self,
        state: TableState,
        cause: Option<String>,
        now: MonoTime,
    ) -> Option<TableLine> {
        if state == TableState::Available {
            self.available_since.get_or_insert(now);
            return None;
        }
        self.available_since = None;
        let broken = (state, cause);
        let told = self.told.iter().filter(|(s, _)| *s == state).count();
        if told >= MAX_CAUSES || self.told.contains(&broken) {
            return None;
        }
        self.told.push(broken.clone());
        Some(TableLine::Broken(broken.0, broken.1))
    }

    /// Call it about once a second, or when the table has answered.
    pub fn tick(&mut self, now: MonoTime) -> Option<TableLine> {
        if now.since(self.available_since?) < self.lasting() {
            return None;
        }
        self.available_since = None;
        let was_broken = !self.told.is_empty();
        self.told.clear();
        was_broken.then_some(TableLine::Available)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use membership_core::Discontinuity;

    fn at(seconds: u64) -> MonoTime {
        MonoTime::ZERO + Duration::from_secs(seconds)
    }

    #[test]
    fn a_cause_is_told_once_until_the_table_is_available_for_long() {
        let mut log = TableLog::default();
        let full = || Some("the disk is full".to_owned());
        let down = TableState::Unavailable;
        assert_eq!(log.changed(TableState::Available, None, at(0)), None);
        assert_eq!(log.tick(at(60)), None, "it was never broken");
        for second in 100..200 {
            let line = log.changed(down, full(), at(second));
            let expected = (second == 100).then(|| TableLine::Broken(down, full()));
            assert_eq!(line, expected, "second {second}");
            assert_eq!(log.changed(TableState::Available, None, at(second)), None);
            assert_eq!(log.tick(at(second + 1)), None);
        }
        let other = Some("connection refused".to_owned());
        let line = log.changed(down, other.clone(), at(200));
        assert_eq!(line, Some(TableLine::Broken(down, other)));
        log.changed(TableState::Available, None, at(201));
        assert_eq!(log.tick(at(210)), None);
        assert_eq!(log.tick(at(211)), Some(TableLine::Available));
        assert_eq!(log.tick(at(300)), None);
        assert!(log.changed(down, full(), at(301)).is_some());
        // Who reads again and again may say each time that it worked.
        for second in 302..312 {
            log.changed(TableState::Available, None, at(second));
            assert_eq!(log.tick(at(second)), None, "second {second}");
        }
        assert_eq!(log.tick(at(312)), Some(TableLine::Available));
    }

    #[test]
    fn a_table_that_lets_nobody_write_is_not_available_between_two_heartbeats() {
        let mut log = TableLog::default();
        log.heartbeats(Duration::from_secs(10));
        let locked = || Some("another process holds the lock".to_owned());
        let mut told = Vec::new();
        // A heartbeat waits 10 s for the lock, reads go on meanwhile, and the next one begins 2 s later.
        for failed in (0..120).step_by(12) {
            told.extend(log.changed(TableState::Unavailable, locked(), at(failed)));
            for second in failed..failed + 12 {
                told.extend(log.changed(TableState::Available, None, at(second)));
                told.extend(log.tick(at(second)));
            }
        }
        assert_eq!(told.len(), 1, "{told:?}");
        assert_eq!(log.tick(at(129)), Some(TableLine::Available));
    }

    #[test]
    fn causes_that_always_differ_do_not_fill_the_log() {
        let mut log = TableLog::default();
        let lines = (0..100)
            .filter_map(|n| {
                log.changed(
                    TableState::Unavailable,
                    Some(format!("request {n} failed")),
                    at(n),
                )
            })
            .count();
        assert_eq!(lines, MAX_CAUSES);
        let changed = TableState::Changed(Discontinuity::RolledBack);
        assert!(
            log.changed(changed, None, at(100)).is_some(),
            "it is told whatever came before"
        );
    }
}
