//! Faults of the clocks of a process.

use crate::clock::Skew;
use crate::cluster::Cluster;
use crate::ground_truth::ProcessId;

impl Cluster {
    /// Steps a process's wall clock: from now on it is wrong by this many milliseconds. Its
    /// monotonic clock does not change.
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

    /// Makes a process's wall clock run too fast by this many parts per million (negative: too
    /// slow).
    pub fn clock_drift(&mut self, silo: ProcessId, ppm: i64) {
        let now = self.now;
        self.skew(silo, |skew| skew.drifting(now, ppm));
        if ppm != 0 {
            self.stats.clock_drifts += 1;
            self.note(silo, format!("has a wall clock that drifts by {ppm} ppm"));
        }
    }

    /// Makes a process's monotonic clock run too fast by this many parts per million (negative: too
    /// slow), so that its timers fire too early or too late. At most half as fast again, or half as
    /// fast.
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
        self.schedule_wake(silo);
    }

    /// Starts a new process at the address of an earlier one, which is killed if it still runs,
    /// with the host's wall clock changed meanwhile: set back, if the new offset is less than the
    /// old one.
    pub fn restart_with_clock(&mut self, silo: ProcessId, millis: i64) -> ProcessId {
        let before = self.truth.record(silo).map_or(0, |l| l.skew.at(self.now));
        let new = self.restart(silo);
        self.clock_offset(new, millis);
        self.stats.clocks_set_back += u64::from(millis < before);
        new
    }

    /// Gives a new process the clocks of its host.
    pub(crate) fn inherit_clocks(&mut self, old: ProcessId, new: ProcessId) {
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
        let (Some(process), Some(record)) = (
            self.processes.get_mut(silo.0),
            self.truth.records.get_mut(silo.0),
        ) else {
            return;
        };
        process.skew = change(process.skew);
        if record.started < self.now {
            record.earlier_skews.push((self.now, record.skew));
        }
        record.skew = process.skew;
    }
}
