//! What a silo's log says of a partial partition: the change at once, and further changes at most once
//! a minute. A link that loses many messages would fill the log otherwise.

use std::time::Duration;

use membership_core::MonoTime;
use membership_core::protocol::NotReached;

/// The shortest time between two lines.
const BETWEEN: Duration = Duration::from_secs(60);

/// Decides which lines are written.
#[derive(Default)]
pub(super) struct ReachLog {
    /// What is so now, if no line says it yet.
    untold: Option<Vec<NotReached>>,
    /// What the last line said, and when it was written.
    told: Vec<NotReached>,
    told_at: Option<MonoTime>,
}

impl ReachLog {
    /// Other silos than before are not reached. Gives what the log should say now.
    pub(super) fn changed(
        &mut self,
        unreached: &[NotReached],
        now: MonoTime,
    ) -> Option<Vec<NotReached>> {
        let same = |a: &[NotReached], b: &[NotReached]| {
            let silos = |all: &[NotReached]| all.iter().map(|u| u.silo).collect::<Vec<_>>();
            silos(a) == silos(b)
        };
        self.untold = (!same(unreached, &self.told)).then(|| unreached.to_vec());
        self.tick(now)
    }

    /// Called a few times a second.
    pub(super) fn tick(&mut self, now: MonoTime) -> Option<Vec<NotReached>> {
        let early = |at: MonoTime| now.since(at) < BETWEEN;
        if self.untold.is_none() || self.told_at.is_some_and(early) {
            return None;
        }
        let unreached = self.untold.take()?;
        self.told.clone_from(&unreached);
        self.told_at = Some(now);
        Some(unreached)
    }
}

#[cfg(test)]
mod tests {
    use membership_core::{RollCount, SiloAddress};

    use super::*;

    fn at(seconds: u64) -> MonoTime {
        MonoTime::ZERO + Duration::from_secs(seconds)
    }

    fn not_reached(ports: &[u16]) -> Vec<NotReached> {
        let silo = |port: &u16| SiloAddress::new([127, 0, 0, 1].into(), *port, 1);
        let one = |port| NotReached::new(silo(port), RollCount::default());
        ports.iter().map(one).collect()
    }

    #[test]
    fn a_change_is_logged_at_once_and_its_end_a_minute_later() {
        let mut log = ReachLog::default();
        let some = not_reached(&[1, 2]);
        assert_eq!(log.changed(&some, at(5)), Some(some));
        assert_eq!(log.changed(&[], at(20)), None);
        assert_eq!(log.tick(at(64)), None);
        assert_eq!(log.tick(at(65)), Some(Vec::new()));
        assert_eq!(log.tick(at(200)), None);
    }

    #[test]
    fn a_link_that_fails_again_and_again_is_one_line() {
        let mut log = ReachLog::default();
        let some = not_reached(&[1]);
        let mut lines = 0;
        for second in 0..600 {
            let now = if second % 10 < 5 {
                some.as_slice()
            } else {
                &[]
            };
            lines += usize::from(log.changed(now, at(second)).is_some());
            lines += usize::from(log.tick(at(second)).is_some());
        }
        assert!(lines <= 10, "{lines} lines in ten minutes");
    }
}
