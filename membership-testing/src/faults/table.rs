//! Faults of the table.

use std::time::Duration;

use crate::checks::Fact;
use crate::cluster::Cluster;
use crate::events::Event;
use crate::ground_truth::ProcessId;
use crate::store::{TableChanges, UnknownOutcome};
use membership_core::MemoryState;

impl Cluster {
    /// Makes the table unavailable for `time`. Calls fail at once or time out.
    pub fn table_outage(&mut self, time: Duration) {
        let until = self.now + time;
        self.note_world(format!("the table is down for {:.1}s", time.as_secs_f64()));
        self.stats.table_outages += 1;
        self.store.down_until = Some(until);
        self.truth.table_down.set(true, self.now);
        self.queue.schedule(until, Event::TableUp);
    }

    pub(crate) fn table_up(&mut self, at_once: bool) {
        if at_once || self.store.down_until.is_some_and(|until| until <= self.now) {
            if self.store.down_until.take().is_some() {
                self.note_world("the table is up again".to_owned());
            }
            self.truth.table_down.set(false, self.now);
        }
    }

    /// Sets the latency of table calls, in each direction. The outcome of a commit that takes
    /// longer than the call timeout is unknown.
    pub fn slow_table(&mut self, low: Duration, high: Duration) {
        self.note_world(format!(
            "table calls take up to {:.1}s",
            high.as_secs_f64() * 2.0
        ));
        self.store.latency = (low, high);
        self.update_rough_table();
    }

    /// Restores the default latency of table calls.
    pub fn normal_table(&mut self) {
        let (low, high) = self.defaults.table;
        self.slow_table(low, high);
    }

    /// Sets the tail of the latency: the share of table calls (0 to 1) that take up to `slow` in
    /// each direction.
    pub fn table_tail(&mut self, share: f64, slow: Duration) {
        self.note_world(format!(
            "{:.0} % of table calls take up to {:.1}s",
            share * 100.0,
            slow.as_secs_f64() * 2.0
        ));
        self.store.tail = (share, slow);
        self.update_rough_table();
    }

    /// Limits the table to this many rows per second, one call after the other; none = unlimited. A
    /// call that waits longer than its timeout fails, or has an unknown outcome.
    pub fn table_rate(&mut self, rows_per_second: Option<f64>) {
        self.note_world(rows_per_second.map_or_else(
            || "the table serves everybody at once".to_owned(),
            |rate| format!("the table serves {rate:.0} rows per second"),
        ));
        self.store.rate = rows_per_second.filter(|rate| *rate > 0.0);
        self.store.busy_until = self.now;
        self.update_rough_table();
    }

    /// Sets the share of commits (0 to 1) before which another writer commits.
    pub fn table_conflicts(&mut self, rate: f64) {
        self.note_world(format!(
            "foreign commits come before {:.0} % of all",
            rate * 100.0
        ));
        self.store.conflicts = rate;
    }

    /// Sets the share of commits with an unknown outcome, 0 to 1: applied, applied later, or not
    /// applied.
    pub fn unknown_outcomes(&mut self, rate: f64) {
        self.note_world(format!(
            "the outcome of {:.0} % of commits is unknown",
            rate * 100.0
        ));
        self.unknown_outcomes_of(None, rate);
    }

    /// Sets the share of commits with an unknown outcome, 0 to 1, all of one kind; none = any kind.
    pub fn unknown_outcomes_of(&mut self, kind: Option<UnknownOutcome>, rate: f64) {
        self.store.unknown = rate;
        self.store.unknown_kind = kind;
        self.update_rough_table();
    }

    /// Cuts one process off from the table, or reconnects it.
    pub fn cut_from_table(&mut self, silo: ProcessId, cut: bool) {
        self.note(
            silo,
            if cut {
                "is cut off from the table"
            } else {
                "reaches the table again"
            }
            .to_owned(),
        );
        if cut {
            self.store.cut.insert(silo);
        } else {
            self.store.cut.remove(&silo);
        }
        if let Some(record) = self.truth.records.get_mut(silo.0) {
            record.table_cut.set(cut, self.now);
        }
    }

    /// Commits as another writer would, without a change of rows.
    pub fn foreign_commit(&mut self) {
        let mut table_changes = TableChanges::default();
        self.store.foreign_commit(&mut self.rng, &mut table_changes);
        self.record_table_changes(&table_changes);
    }

    /// Wipes the table, like an operator who empties the store.
    pub fn wipe_table(&mut self) {
        self.note_world("the table is wiped".to_owned());
        self.stats.wipes += 1;
        self.store.wipe();
        self.mark_table_changed();
    }

    /// Takes a backup of the table.
    #[must_use]
    pub fn backup_table(&self) -> MemoryState {
        self.store.backup()
    }

    /// Restores a backup of the table.
    pub fn restore_table(&mut self, backup: MemoryState) {
        self.note_world("a backup of the table is restored".to_owned());
        self.stats.restores += 1;
        self.mark_table_changed();
        if let Some(snapshot) = self.store.restore(backup) {
            self.observe(&Fact::Created(&snapshot));
        }
    }

    /// Rolls the table back by this many versions (at most 64), heartbeats included, like a store
    /// that fails over to a replica that lags. Returns how many versions were lost.
    pub fn roll_back_table(&mut self, versions: usize) -> u64 {
        let Some(before) = self
            .store
            .truth
            .as_ref()
            .map(membership_core::Snapshot::version)
        else {
            return 0;
        };
        let Some(snapshot) = self.store.roll_back(versions) else {
            return 0;
        };
        let by = before - snapshot.version();
        self.note_world(format!("the table is rolled back by {by} versions"));
        self.stats.rollbacks += 1;
        self.mark_table_changed();
        self.observe(&Fact::Created(&snapshot));
        by
    }
}
