//! What can be wrong with the clocks of a process.

use crate::testing::circumstances::ProcessId;
use crate::testing::clock::Skew;
use crate::testing::cluster::Cluster;

impl Cluster {
    /// Steps a process's wall clock: it is wrong by so many milliseconds from now on. What its monotonic clock shows does not change.
    pub fn clock_offset(&mut self, silo: ProcessId, millis: i64) {
        let now = self.now;
        self.skew(silo, |skew| skew.stepped(now, millis));
        if millis != 0 {
            self.stats.clock_offsets += 1;
            self.note(
                silo,
                format!("has a clock that is wrong by {:.1}s", millis as f64 / 1e3),
            );
        }
    }

    /// From now on a process's wall clock runs too fast by so many parts per million (or too slow, if negative).
    pub fn clock_drift(&mut self, silo: ProcessId, ppm: i64) {
        let now = self.now;
        self.skew(silo, |skew| skew.drifting(now, ppm));
        if ppm != 0 {
            self.stats.clock_drifts += 1;
            self.note(silo, format!("has a wall clock that drifts by {ppm} ppm"));
        }
    }

    /// From now on a process's monotonic clock runs too fast by so many parts per million (or too slow, if negative): all that it does by
    /// the time comes too early or too late. At most half as fast again, or half as fast.
    pub fn monotonic_drift(&mut self, silo: ProcessId, ppm: i64) {
        let now = self.now;
        let Some(process) = self.processes.get_mut(silo.0) else {
            return;
        };
        process.mono.set_rate(now, ppm);
        let ppm = process.mono.ppm();
        self.truth.worst_ppm = self.truth.worst_ppm.max(ppm.unsigned_abs());
        if ppm != 0 {
            self.stats.clock_drifts += 1;
            self.note(
                silo,
                format!("has a monotonic clock that drifts by {ppm} ppm"),
            );
        }
        self.plan_wake(silo);
    }

    /// A new process at the address of an earlier one, which is killed if it still runs; and the machine's clock is set wrong by so much
    /// meanwhile: set back, if that is less than it was.
    pub fn restart_with_clock(&mut self, silo: ProcessId, millis: i64) -> ProcessId {
        let before = self.truth.life(silo).map_or(0, |l| l.skew.at(self.now));
        let new = self.restart(silo);
        self.clock_offset(new, millis);
        self.stats.clocks_set_back += u64::from(millis < before);
        new
    }

    /// The clocks of a machine are the same for the next process on it.
    pub(in crate::testing) fn inherit_clocks(&mut self, old: ProcessId, new: ProcessId) {
        let Some(before) = self.processes.get(old.0) else {
            return;
        };
        let (skew, ppm) = (before.skew, before.mono.ppm());
        self.clock_offset(new, skew.at(self.now));
        if skew.ppm() != 0 {
            self.clock_drift(new, skew.ppm());
        }
        if ppm != 0 {
            self.monotonic_drift(new, ppm);
        }
    }

    fn skew(&mut self, silo: ProcessId, change: impl Fn(Skew) -> Skew) {
        let (Some(process), Some(life)) = (
            self.processes.get_mut(silo.0),
            self.truth.lives.get_mut(silo.0),
        ) else {
            return;
        };
        process.skew = change(process.skew);
        if life.started < self.now {
            life.earlier_skews.push((self.now, life.skew));
        }
        life.skew = process.skew;
    }
}
