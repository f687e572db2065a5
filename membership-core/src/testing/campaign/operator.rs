//! What people do to the table, and what they do then: as the guide for operators says, they restart all silos.

use super::plan::{End, Plan, s};
use crate::MemoryState;
use crate::testing::{Cluster, ProcessId};

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
        let versions = 1 + self.dice.below(20);
        if cluster.roll_back_table(versions) > 0 {
            self.all_must_restart(cluster);
        }
    }

    /// After a while everybody who runs now is restarted: all at once, or one after the other.
    fn all_must_restart(&mut self, cluster: &Cluster) {
        let mut at = cluster.now() + self.dice.between(s(5), s(120));
        let apart = if self.dice.chance(0.5) {
            s(0)
        } else {
            self.dice.between(s(0), s(8))
        };
        let mut all = cluster.running();
        self.dice.shuffle(&mut all);
        for silo in all {
            self.at(at, End::Replace(silo));
            at += apart;
        }
    }

    /// A silo is restarted, if it still runs; unless another has its address by now: then it is only ended.
    pub(super) fn replace(&mut self, cluster: &mut Cluster, silo: ProcessId) {
        if !cluster.is_running(silo) {
            return;
        }
        if cluster.truth().life(silo).is_some_and(|life| life.hidden) {
            cluster.kill(silo);
        } else {
            cluster.restart(silo);
        }
    }
}
