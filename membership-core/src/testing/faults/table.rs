//! What can go wrong with the table.

use std::time::Duration;

use crate::MemoryState;
use crate::testing::checks::Fact;
use crate::testing::circumstances::ProcessId;
use crate::testing::cluster::Cluster;
use crate::testing::events::Event;
use crate::testing::store::{Happened, UnknownOutcome};

impl Cluster {
    /// Nobody can use the table for so long. Calls fail at once or never end.
    pub fn table_outage(&mut self, time: Duration) {
        let until = self.now + time;
        self.note_world(format!("the table is down for {:.1}s", time.as_secs_f64()));
        self.stats.table_outages += 1;
        self.store.down_until = Some(until);
        self.truth.table_down.set(true, self.now);
        self.agenda.plan(until, Event::TableUp);
    }

    pub(in crate::testing) fn table_up(&mut self, at_once: bool) {
        if at_once || self.store.down_until.is_some_and(|until| until <= self.now) {
            if self.store.down_until.take().is_some() {
                self.note_world("the table is up again".to_owned());
            }
            self.truth.table_down.set(false, self.now);
        }
    }

    /// Table calls take from `low` to `high` in either direction; beyond the call timeout a commit's outcome is unknown.
    pub fn slow_table(&mut self, low: Duration, high: Duration) {
        self.note_world(format!(
            "table calls take up to {:.1}s",
            high.as_secs_f64() * 2.0
        ));
        self.store.latency = (low, high);
        self.rough_table_spell();
    }

    /// Table calls take as long as when the world was built.
    pub fn usual_table(&mut self) {
        let (low, high) = self.usual.table;
        self.slow_table(low, high);
    }

    /// So many table calls (0 to 1) are slow in either direction, and take up to so long: the tail of the latencies.
    pub fn table_tail(&mut self, share: f64, slow: Duration) {
        self.note_world(format!(
            "{:.0} % of table calls take up to {:.1}s",
            share * 100.0,
            slow.as_secs_f64() * 2.0
        ));
        self.store.tail = (share, slow);
        self.rough_table_spell();
    }

    /// The table reads and writes so many rows per second, one call after the other; none = as many as anybody wants. Calls that wait
    /// longer than their timeout have failed, or their outcome is unknown.
    pub fn table_rate(&mut self, rows_per_second: Option<f64>) {
        self.note_world(rows_per_second.map_or_else(
            || "the table serves everybody at once".to_owned(),
            |rate| format!("the table serves {rate:.0} rows per second"),
        ));
        self.store.rate = rows_per_second.filter(|rate| *rate > 0.0);
        self.store.busy_until = self.now;
        self.rough_table_spell();
    }

    /// Before so many of all commits somebody else commits: 0 to 1.
    pub fn table_conflicts(&mut self, rate: f64) {
        self.note_world(format!(
            "foreign commits come before {:.0} % of all",
            rate * 100.0
        ));
        self.store.conflicts = rate;
    }

    /// The outcome of so many commits is unknown: they land, land later, or do not. 0 to 1.
    pub fn unknown_outcomes(&mut self, rate: f64) {
        self.note_world(format!(
            "the outcome of {:.0} % of commits is unknown",
            rate * 100.0
        ));
        self.unknown_outcomes_of(None, rate);
    }

    /// The outcome of so many commits is unknown, and it is always of this kind; none = of any. 0 to 1.
    pub fn unknown_outcomes_of(&mut self, kind: Option<UnknownOutcome>, rate: f64) {
        self.store.unknown = rate;
        self.store.unknown_kind = kind;
        self.rough_table_spell();
    }

    /// The table cannot be reached by one process (or can again).
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
        if let Some(life) = self.truth.lives.get_mut(silo.0) {
            life.table_cut.set(cut, self.now);
        }
    }

    /// Somebody else commits something that changes no row.
    pub fn foreign_commit(&mut self) {
        let mut happened = Happened::default();
        self.store.foreign_commit(&mut self.dice, &mut happened);
        self.tell_table(&happened);
    }

    /// The table is gone, as if somebody had emptied the store.
    pub fn wipe_table(&mut self) {
        self.note_world("the table is wiped".to_owned());
        self.stats.wipes += 1;
        self.store.wipe();
        self.touch_table();
    }

    /// A backup of the table.
    #[must_use]
    pub fn backup_table(&self) -> MemoryState {
        self.store.backup()
    }

    /// Brings a backup back, whatever happened since.
    pub fn restore_table(&mut self, backup: MemoryState) {
        self.note_world("a backup of the table is restored".to_owned());
        self.stats.restores += 1;
        self.touch_table();
        if let Some(snapshot) = self.store.restore(backup) {
            self.show(&Fact::Founded(&snapshot));
        }
    }

    /// Takes the table back by so many versions (or by as many as the world remembers: 64), heartbeats too: a store that failed over to a
    /// replica that lagged. Says by how many.
    pub fn roll_back_table(&mut self, versions: usize) -> u64 {
        let Some(before) = self.store.truth.as_ref().map(crate::Snapshot::version) else {
            return 0;
        };
        let Some(snapshot) = self.store.roll_back(versions) else {
            return 0;
        };
        let by = before - snapshot.version();
        self.note_world(format!("the table is rolled back by {by} versions"));
        self.stats.rollbacks += 1;
        self.touch_table();
        self.show(&Fact::Founded(&snapshot));
        by
    }
}
