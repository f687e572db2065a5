//! What operators do to the table, and afterwards: they restart all silos, as the guide for
//! operators says.

use super::plan::{End, Plan, s};
use crate::{Cluster, ProcessId};
use membership_core::MemoryState;

impl Plan {
    pub(super) fn wipe(&mut self, cluster: &mut Cluster) {
        cluster.wipe_table();
        self.all_must_restart(cluster);
    }

    pub(super) fn restore(&mut self, cluster: &mut Cluster, backup: MemoryState) {
        cluster.restore_table(backup);
        self.all_must_restart(cluster);
    }

    pub(super) fn roll_back(&mut self, cluster: &mut Cluster) {
        let versions = 1 + self.rng.below(20);
        if cluster.roll_back_table(versions) > 0 {
            self.all_must_restart(cluster);
        }
    }

    /// Schedules the restart of every running silo: all at once, or one after the other.
    fn all_must_restart(&mut self, cluster: &Cluster) {
        let mut at = cluster.now() + self.rng.between(s(5), s(120));
        let apart = if self.rng.chance(0.5) {
            s(0)
        } else {
            self.rng.between(s(0), s(8))
        };
        let mut all = cluster.running();
        self.rng.shuffle(&mut all);
        for silo in all {
            self.at(at, End::Replace(silo));
            at += apart;
        }
    }

    /// Restarts a silo if it still runs. If another process listens at its address by now, it is
    /// only killed.
    pub(super) fn replace(&mut self, cluster: &mut Cluster, silo: ProcessId) {
        if !cluster.is_running(silo) {
            return;
        }
        if cluster
            .truth()
            .record(silo)
            .is_some_and(|record| record.hidden)
        {
            cluster.kill(silo);
        } else {
            cluster.restart(silo);
        }
    }
}
