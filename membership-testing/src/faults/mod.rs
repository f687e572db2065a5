//! Faults between processes, and between processes and the table, and the end of all faults.

mod clock;
mod deaf;
mod flap;
mod hang;
mod hold;
mod links;
mod network;
mod stutter;
mod table;
#[cfg(test)]
mod tests;
mod zone;

pub(crate) use stutter::Starving;

use crate::cluster::Cluster;
use crate::ground_truth::ProcessId;

impl Cluster {
    /// Ends every fault of network and table, and every pause. Clocks stay as they are, and dead
    /// silos stay dead.
    pub fn end_faults(&mut self) {
        self.heal();
        self.hostile = None;
        self.regain_listeners();
        self.network.clear_loss();
        self.network.set_latency(self.defaults.latency);
        self.network.clear_latency_between();
        self.network.set_zones(1, self.defaults.latency);
        self.store.latency = self.defaults.table;
        self.store.conflicts = 0.0;
        self.store.tail.0 = 0.0;
        self.store.rate = None;
        self.store.unknown = 0.0;
        self.store.unknown_kind = None;
        self.table_up(true);
        for id in std::mem::take(&mut self.store.cut) {
            if let Some(record) = self.truth.records.get_mut(id.0) {
                record.table_cut.set(false, self.now);
            }
        }
        for interval in self.truth.lossy.values_mut() {
            interval.set(false, self.now);
        }
        self.update_any_block();
        self.update_rough_network();
        self.update_rough_table();
        for id in self.running() {
            if let Some(process) = self.processes.get_mut(id.0) {
                process.stalls_again = None;
                process.starving = None;
            }
            self.release(id, true);
            self.resume(id, true);
        }
        self.note_world("all faults end".to_owned());
    }

    fn block_hosts(&mut self, a: usize, b: usize) {
        if self.network.block(a, b) {
            self.stats.blocks += 1;
        }
        self.truth
            .blocks
            .entry((a, b))
            .or_default()
            .set(true, self.now);
    }

    fn unblock_hosts(&mut self, a: usize, b: usize) {
        self.network.unblock(a, b);
        self.truth
            .blocks
            .entry((a, b))
            .or_default()
            .set(false, self.now);
    }

    fn mark_split_unclean(&mut self) {
        if let Some(split) = &mut self.truth.split {
            split.clean = false;
        }
    }

    fn update_any_block(&mut self) {
        let lossy = self.network.lossy().next().is_some();
        self.truth.any_block.set(
            lossy || self.network.any_blocked() || !self.deaf.is_empty(),
            self.now,
        );
    }

    fn update_lossy(&mut self, host: usize) {
        let deaf = self.deaf.iter().any(|id| self.host(*id) == Some(host));
        let lossy = deaf || self.network.lossy().any(|p| p == host);
        self.truth
            .lossy
            .entry(host)
            .or_default()
            .set(lossy, self.now);
        self.mark_split_unclean();
        self.update_any_block();
    }

    fn update_rough_network(&mut self) {
        let latency = self.network.latency();
        let slow = latency
            .slow
            .max(latency.high)
            .max(self.network.longest_delay())
            .max(self.between_zones())
            .max(self.network.longest_between())
            > self.config.probe_timeout() / 4;
        let rough = self.network.loss() > 0.0 || slow;
        self.truth.rough_network.set(rough, self.now);
        if rough {
            // A silo that is voted out from now on may be the victim of this loss, and not of the
            // split.
            self.mark_split_unclean();
        }
    }

    fn update_rough_table(&mut self) {
        let slow = self.store.latency != self.defaults.table
            || self.store.tail.0 > 0.0
            || self.store.rate.is_some();
        self.truth
            .rough_table
            .set(slow || self.store.unknown > 0.0, self.now);
    }

    fn mark_table_changed(&mut self) {
        self.truth.table_changed.set(true, self.now);
        self.truth.table_changed.set(false, self.now);
        self.truth.heartbeats.clear();
    }

    fn all_hosts(&self) -> impl Iterator<Item = usize> + use<> {
        let most = self.processes.iter().map(|p| p.host + 1).max().unwrap_or(0);
        0..most
    }

    fn host(&self, silo: ProcessId) -> Option<usize> {
        self.processes.get(silo.0).map(|p| p.host)
    }

    fn label(&self, silo: ProcessId) -> String {
        self.truth
            .record(silo)
            .map_or_else(|| silo.to_string(), |l| l.name.clone())
    }
}
