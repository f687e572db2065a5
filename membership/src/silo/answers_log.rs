//! Whether any other silo answers this one. One that nobody answers is cut off, or alone, and does
//! not learn that the others have given it up until it reads the table.

use std::collections::BTreeMap;
use std::time::Duration;

use membership_core::protocol::Observation;
use membership_core::{MonoTime, SiloAddress};

/// Notes what became of the probes.
#[derive(Default)]
pub(super) struct AnswersLog {
    /// The silos whose last probe was missed.
    missing: BTreeMap<SiloAddress, MonoTime>,
    /// When a silo last answered, or the first probe after that was missed.
    since: Option<MonoTime>,
    told: bool,
}

impl AnswersLog {
    pub(super) fn observed(&mut self, observation: &Observation, now: MonoTime) {
        match observation {
            Observation::ProbeAnswered { peer, .. } => {
                self.missing.remove(peer);
                self.since = None;
            }
            Observation::ProbeMissed { peer, .. } => {
                self.missing.insert(*peer, now);
                self.since.get_or_insert(now);
            }
            _ => {}
        }
    }

    /// Only these silos live. When none is left, nothing is told: this silo is alone.
    pub(super) fn keep(&mut self, lives: impl Fn(&SiloAddress) -> bool) {
        self.missing.retain(|silo, _| lives(silo));
        if self.missing.is_empty() {
            self.since = None;
            self.told = false;
        }
    }

    /// Called a few times a second. Gives how many silos are probed in vain when nobody has answered
    /// for this long, and 0 when one does again; each once.
    pub(super) fn tick(&mut self, now: MonoTime, patience: Duration) -> Option<usize> {
        // Silos that others probe now. An unwell silo waits longer for each answer.
        self.missing.retain(|_, at| now.since(*at) <= patience * 4);
        let silos = self.missing.len();
        let unanswered = self.since.is_some_and(|at| now.since(at) > patience);
        if self.told && self.since.is_none() {
            self.told = false;
            return Some(0);
        }
        if self.told || !unanswered || silos == 0 {
            return None;
        }
        self.told = true;
        Some(silos)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PATIENCE: Duration = Duration::from_secs(9);

    fn at(seconds: u64) -> MonoTime {
        MonoTime::ZERO + Duration::from_secs(seconds)
    }

    fn silo(port: u16) -> SiloAddress {
        SiloAddress::new([127, 0, 0, 1].into(), port, 1)
    }

    fn missed(port: u16) -> Observation {
        Observation::ProbeMissed {
            peer: silo(port),
            misses: 1,
            refused: false,
        }
    }

    fn answered(port: u16) -> Observation {
        Observation::ProbeAnswered {
            peer: silo(port),
            round_trip: Duration::from_millis(1),
        }
    }

    #[test]
    fn silence_of_all_is_told_once_and_so_is_its_end() {
        let mut log = AnswersLog::default();
        for second in 0..60 {
            log.observed(&missed(1), at(second));
            log.observed(&missed(2), at(second));
            let told = log.tick(at(second), PATIENCE);
            assert_eq!(told, (second == 10).then_some(2), "second {second}");
        }
        log.observed(&answered(2), at(60));
        assert_eq!(log.tick(at(60), PATIENCE), Some(0));
        assert_eq!(log.tick(at(61), PATIENCE), None);
    }

    #[test]
    fn one_answer_is_enough_and_the_dead_are_forgotten() {
        let mut log = AnswersLog::default();
        for second in 0..60 {
            log.observed(&missed(1), at(second));
            log.observed(&answered(2), at(second));
            assert_eq!(log.tick(at(second), PATIENCE), None);
        }
        // The only other silo dies.
        let mut log = AnswersLog::default();
        for second in 0..5 {
            log.observed(&missed(1), at(second));
        }
        log.keep(|_| false);
        for second in 5..60 {
            assert_eq!(log.tick(at(second), PATIENCE), None, "second {second}");
        }
    }
}
