//! What can go wrong between processes, and between them and the table; and the end of all that.

mod clock;
mod flap;
mod hang;
mod hold;
mod network;
mod table;
#[cfg(test)]
mod tests;
mod zone;

pub(super) use flap::Flap;

use super::circumstances::ProcessId;
use super::cluster::Cluster;

impl Cluster {
    /// Ends every fault of network and table, and every pause. Clocks stay as they are, and the dead stay dead.
    pub fn end_faults(&mut self) {
        self.heal();
        self.network.lose_nothing();
        self.network.set_latency(self.usual.latency);
        self.network.set_zones(1, self.usual.latency);
        self.store.latency = self.usual.table;
        self.store.conflicts = 0.0;
        self.store.tail.0 = 0.0;
        self.store.rate = None;
        self.store.unknown = 0.0;
        self.store.unknown_kind = None;
        self.table_up(true);
        for id in std::mem::take(&mut self.store.cut) {
            if let Some(life) = self.truth.lives.get_mut(id.0) {
                life.table_cut.set(false, self.now);
            }
        }
        for spell in self.truth.lossy.values_mut() {
            spell.set(false, self.now);
        }
        self.block_spell();
        self.rough_spell();
        self.rough_table_spell();
        for id in self.running() {
            self.release(id, true);
            self.resume(id, true);
        }
        self.note_world("all faults end".to_owned());
    }

    fn shut(&mut self, a: usize, b: usize) {
        if self.network.shut(a, b) {
            self.stats.blocks += 1;
        }
        self.truth
            .blocks
            .entry((a, b))
            .or_default()
            .set(true, self.now);
    }

    fn open(&mut self, a: usize, b: usize) {
        self.network.open(a, b);
        self.truth
            .blocks
            .entry((a, b))
            .or_default()
            .set(false, self.now);
    }

    fn taint_split(&mut self) {
        if let Some(split) = &mut self.truth.split {
            split.clean = false;
        }
    }

    fn block_spell(&mut self) {
        let lossy = self.network.lossy().next().is_some();
        self.truth
            .any_block
            .set(lossy || self.network.any_shut(), self.now);
    }

    fn lossy_spell(&mut self, place: usize) {
        let lossy = self.network.lossy().any(|p| p == place);
        self.truth
            .lossy
            .entry(place)
            .or_default()
            .set(lossy, self.now);
        self.taint_split();
        self.block_spell();
    }

    fn rough_spell(&mut self) {
        let latency = self.network.latency();
        let slow = latency
            .slow
            .max(latency.high)
            .max(self.network.longest_delay())
            .max(self.between_zones())
            > self.config.min_probe_timeout / 4;
        let rough = self.network.loss() > 0.0 || slow;
        self.truth.rough_network.set(rough, self.now);
        if rough {
            // Whoever is voted out from now on may be so for what was lost, not for the split.
            self.taint_split();
        }
    }

    fn rough_table_spell(&mut self) {
        let slow = self.store.latency != self.usual.table
            || self.store.tail.0 > 0.0
            || self.store.rate.is_some();
        self.truth
            .rough_table
            .set(slow || self.store.unknown > 0.0, self.now);
    }

    fn touch_table(&mut self) {
        self.truth.table_changed.set(true, self.now);
        self.truth.table_changed.set(false, self.now);
        self.truth.beats.clear();
    }

    fn all_places(&self) -> impl Iterator<Item = usize> + use<> {
        let most = self
            .processes
            .iter()
            .map(|p| p.place + 1)
            .max()
            .unwrap_or(0);
        0..most
    }

    fn place(&self, silo: ProcessId) -> Option<usize> {
        self.processes.get(silo.0).map(|p| p.place)
    }

    fn label(&self, silo: ProcessId) -> String {
        self.truth
            .life(silo)
            .map_or_else(|| silo.to_string(), |l| l.name.clone())
    }
}
