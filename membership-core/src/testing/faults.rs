//! What can go wrong between processes, and between them and the table.

use std::collections::BTreeMap;
use std::time::Duration;

use super::checks::Fact;
use super::circumstances::{ProcessId, Split};
use super::cluster::Cluster;
use super::events::Event;
use super::network::Latency;
use super::store::{Happened, USUAL_LATENCY};
use crate::MemoryState;

impl Cluster {
    /// Shuts the direction from one process's machine to another's.
    pub fn block(&mut self, from: ProcessId, to: ProcessId) {
        let (Some(a), Some(b)) = (self.place(from), self.place(to)) else { return };
        self.note_world(format!("nothing gets from {} to {}", self.label(from), self.label(to)));
        self.shut(a, b);
        self.taint_split();
        self.block_spell();
    }

    /// Shuts both directions between two.
    pub fn block_both(&mut self, a: ProcessId, b: ProcessId) {
        self.block(a, b);
        self.block(b, a);
    }

    /// Opens the direction from one to another again.
    pub fn unblock(&mut self, from: ProcessId, to: ProcessId) {
        let (Some(a), Some(b)) = (self.place(from), self.place(to)) else { return };
        self.open(a, b);
        self.block_spell();
    }

    /// Shuts all directions from and to a process's machine. The table stays within its reach.
    pub fn isolate(&mut self, silo: ProcessId) {
        let Some(here) = self.place(silo) else { return };
        self.note_world(format!("{} is isolated", self.label(silo)));
        for there in self.all_places().filter(|p| *p != here).collect::<Vec<_>>() {
            self.shut(here, there);
            self.shut(there, here);
        }
        self.taint_split();
        self.block_spell();
    }

    /// Splits the network: between processes of different groups nothing gets through. Whoever is in no group is in one more.
    pub fn partition(&mut self, groups: &[Vec<ProcessId>]) {
        let clean_from = self.truth.ago(self.truth.memory_of_votes());
        let clean = !self.truth.any_block.touched(clean_from)
            && !self.truth.rough_network.touched(clean_from)
            && !self.truth.network_down.touched(clean_from);
        let mut group = BTreeMap::new();
        for (number, members) in groups.iter().enumerate() {
            group.extend(members.iter().filter_map(|id| self.place(*id)).map(|place| (place, number)));
        }
        let places: Vec<usize> = self.all_places().collect();
        for a in &places {
            for b in &places {
                if a != b && group.get(a) != group.get(b) {
                    self.shut(*a, *b);
                }
            }
        }
        let sizes: Vec<String> = groups.iter().map(|g| g.iter().map(|p| self.label(*p)).collect::<Vec<_>>().join(" ")).collect();
        self.note_world(format!("the network splits: {} | everybody else", sizes.join(" | ")));
        self.block_spell();
        self.truth.split = Some(Split { since: self.now, healed: None, clean, group });
    }

    /// A machine that appears while the network is split is in no group: it does not bridge what is split.
    pub(super) fn join_split(&mut self, place: usize) {
        let Some(split) = self.truth.split.as_ref().filter(|s| s.healed.is_none()) else { return };
        for there in split.group.keys().copied().filter(|p| *p != place).collect::<Vec<_>>() {
            self.shut(place, there);
            self.shut(there, place);
        }
    }

    /// Opens every direction, and ends a network outage.
    pub fn heal(&mut self) {
        if !self.network.shut.is_empty() {
            self.note_world("the network heals".to_owned());
        }
        for (a, b) in std::mem::take(&mut self.network.shut) {
            self.truth.blocks.entry((a, b)).or_default().set(false, self.now);
        }
        self.block_spell();
        if let Some(split) = &mut self.truth.split {
            split.healed.get_or_insert(self.now);
        }
        self.network_up();
    }

    /// Nothing gets from any machine to another for so long (or until [`heal`](Self::heal)).
    pub fn network_outage(&mut self, time: Duration) {
        self.note_world(format!("the network is down for {:.1}s", time.as_secs_f64()));
        self.network.down = true;
        self.truth.network_down.set(true, self.now);
        self.taint_split();
        self.agenda.plan(self.now + time, Event::NetworkUp);
    }

    pub(super) fn network_up(&mut self) {
        if self.network.down {
            self.note_world("the network is up again".to_owned());
        }
        self.network.down = false;
        self.truth.network_down.set(false, self.now);
    }

    /// So many messages get lost at random: 0 to 1.
    pub fn message_loss(&mut self, rate: f64) {
        self.network.loss = rate;
        self.note_world(format!("{:.0} % of messages get lost", rate * 100.0));
        self.rough_spell();
    }

    /// How long messages take from now on.
    pub fn latency(&mut self, latency: Latency) {
        self.network.latency = latency;
        self.rough_spell();
    }

    /// Nobody can use the table for so long. Calls fail at once or never end.
    pub fn table_outage(&mut self, time: Duration) {
        let until = self.now + time;
        self.note_world(format!("the table is down for {:.1}s", time.as_secs_f64()));
        self.stats.table_outages += 1;
        self.store.down_until = Some(until);
        self.truth.table_down.set(true, self.now);
        self.agenda.plan(until, Event::TableUp);
    }

    pub(super) fn table_up(&mut self, at_once: bool) {
        if at_once || self.store.down_until.is_some_and(|until| until <= self.now) {
            if self.store.down_until.take().is_some() {
                self.note_world("the table is up again".to_owned());
            }
            self.truth.table_down.set(false, self.now);
        }
    }

    /// Table calls take from `low` to `high` in either direction; beyond the call timeout a commit's outcome is unknown.
    pub fn slow_table(&mut self, low: Duration, high: Duration) {
        self.note_world(format!("table calls take up to {:.1}s", high.as_secs_f64() * 2.0));
        self.store.latency = (low, high);
        self.rough_table_spell();
    }

    /// Before so many of all commits somebody else commits: 0 to 1.
    pub fn table_conflicts(&mut self, rate: f64) {
        self.note_world(format!("foreign commits come before {:.0} % of all", rate * 100.0));
        self.store.conflicts = rate;
    }

    /// The outcome of so many commits is unknown: they land, land later, or do not. 0 to 1.
    pub fn unknown_outcomes(&mut self, rate: f64) {
        self.note_world(format!("the outcome of {:.0} % of commits is unknown", rate * 100.0));
        self.store.unknown = rate;
        self.rough_table_spell();
    }

    /// The table cannot be reached by one process (or can again).
    pub fn cut_from_table(&mut self, silo: ProcessId, cut: bool) {
        self.note(silo, if cut { "is cut off from the table" } else { "reaches the table again" }.to_owned());
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
        if let Some(snapshot) = self.store.restore(backup) {
            self.show(&Fact::Founded(&snapshot));
        }
        self.touch_table();
    }

    /// Ends every fault of network and table, and every pause. Clocks stay as they are, and the dead stay dead.
    pub fn end_faults(&mut self) {
        self.heal();
        self.network.loss = 0.0;
        self.network.latency = Latency::default();
        self.store.latency = USUAL_LATENCY;
        self.store.conflicts = 0.0;
        self.store.unknown = 0.0;
        self.table_up(true);
        for id in std::mem::take(&mut self.store.cut) {
            if let Some(life) = self.truth.lives.get_mut(id.0) {
                life.table_cut.set(false, self.now);
            }
        }
        self.rough_spell();
        self.rough_table_spell();
        for id in self.running() {
            self.resume(id, true);
        }
        self.note_world("all faults end".to_owned());
    }

    fn shut(&mut self, a: usize, b: usize) {
        if self.network.shut.insert((a, b)) {
            self.stats.blocks += 1;
        }
        self.truth.blocks.entry((a, b)).or_default().set(true, self.now);
    }

    fn open(&mut self, a: usize, b: usize) {
        self.network.shut.remove(&(a, b));
        self.truth.blocks.entry((a, b)).or_default().set(false, self.now);
    }

    fn taint_split(&mut self) {
        if let Some(split) = &mut self.truth.split {
            split.clean = false;
        }
    }

    fn block_spell(&mut self) {
        self.truth.any_block.set(!self.network.shut.is_empty(), self.now);
    }

    fn rough_spell(&mut self) {
        let slow = self.network.latency.slow.max(self.network.latency.high) > self.config.min_probe_timeout / 4;
        let rough = self.network.loss > 0.0 || slow;
        self.truth.rough_network.set(rough, self.now);
        if rough {
            // Whoever is voted out from now on may be so for what was lost, not for the split.
            self.taint_split();
        }
    }

    fn rough_table_spell(&mut self) {
        self.truth.rough_table.set(self.store.unknown > 0.0 || self.store.latency != USUAL_LATENCY, self.now);
    }

    fn touch_table(&mut self) {
        self.truth.table_changed.set(true, self.now);
        self.truth.table_changed.set(false, self.now);
        self.truth.beats.clear();
    }

    fn all_places(&self) -> impl Iterator<Item = usize> + use<> {
        let most = self.processes.iter().map(|p| p.place + 1).max().unwrap_or(0);
        0..most
    }

    fn place(&self, silo: ProcessId) -> Option<usize> {
        self.processes.get(silo.0).map(|p| p.place)
    }

    fn label(&self, silo: ProcessId) -> String {
        self.truth.life(silo).map_or_else(|| silo.to_string(), |l| l.name.clone())
    }
}
