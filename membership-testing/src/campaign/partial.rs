//! Faults that hit a part: some links, some moments, one listener. A detector of failures must not
//! take the rest for dead.

use std::time::Duration;

use super::fault::Fault;
use super::plan::{End, Plan, s};
use crate::{Cluster, Latency, ProcessId};

const MS: fn(u64) -> Duration = Duration::from_millis;

impl Plan {
    /// Cuts links between a part of the silos and a part of the others, one way or both; or a share
    /// of all directions; or the link between two of three zones.
    pub(super) fn cut_partially(&mut self, cluster: &mut Cluster) {
        let mut some = cluster.running();
        self.rng.shuffle(&mut some);
        if some.len() < 2 {
            return;
        }
        let others = some.split_off(1 + self.rng.below(some.len() - 1));
        let part = &others[..1 + self.rng.below(others.len())];
        match self.rng.below(4) {
            0 => cluster.cut_one_way(&some, part),
            1 => cluster.cut_both_ways(&some, part),
            2 => self.cut_a_share(cluster),
            _ => {
                let usual = cluster.network().latency();
                cluster.zones(3, usual);
                if self.rng.chance(0.5) {
                    cluster.cut_zones(0, 1);
                } else {
                    cluster.cut_zones_one_way(0, 1);
                }
                self.later(cluster, 120, 600, End::Zones);
            }
        }
        self.later(cluster, 20, 300, End::Heal);
    }

    fn cut_a_share(&mut self, cluster: &mut Cluster) {
        let share = (5 + self.rng.below(36)) as f64 / 100.0;
        // By number, so that one step draws the same whatever the others did.
        let salt = self.rng.next_u64();
        cluster.cut_links(|from, to| {
            let link = (from.0 as u64) << 32 | to.0 as u64;
            crate::Rng::new(salt ^ link).chance(share)
        });
    }

    /// Makes the links between two parts slow at once: round trips of up to four seconds.
    pub(super) fn slow_partially(&mut self, cluster: &mut Cluster) {
        let mut some = cluster.running();
        self.rng.shuffle(&mut some);
        let others = some.split_off(self.rng.below(some.len().max(1)));
        let high = self.rng.between(MS(50), s(2));
        let low = high.mul_f64(0.8);
        let latency = Latency {
            low,
            high,
            slow_share: 0.0,
            slow: high,
        };
        cluster.slow_links(&some, &others, latency);
        self.later(cluster, 20, 300, End::SlowLinks);
    }

    /// Faults of some processes that run on.
    pub(super) fn begin_partial_fault(&mut self, cluster: &mut Cluster, kind: Fault) {
        for silo in self.pick_some(cluster, 2, self.silos / 2) {
            match kind {
                Fault::Stutter => self.stutter(cluster, silo),
                Fault::Starvation => {
                    let most = self.rng.between(MS(500), s(6));
                    cluster.starve(silo, most, self.rng.between(s(10), s(120)));
                }
                _ => {
                    cluster.lose_listener(silo);
                    self.later(cluster, 2, 120, End::Listener(silo));
                }
            }
        }
    }

    /// Two stalls; the table is often slow meanwhile, so that the read between them takes its time.
    fn stutter(&mut self, cluster: &mut Cluster, silo: ProcessId) {
        let (first, second) = (self.rng.between(s(1), s(20)), self.rng.between(s(1), s(20)));
        if self.rng.chance(0.5) {
            cluster.slow_table(MS(100), s(2));
            self.later(cluster, 40, 60, End::Slow);
        }
        cluster.stutter(silo, first, second);
    }

    /// Machines crash: nobody is told.
    pub(super) fn crash_machines(&mut self, cluster: &mut Cluster) {
        let half = self.silos / 2;
        let most = if self.rng.chance(0.1) { half } else { 2 };
        let victims = self.pick_some(cluster, most, half.min(5));
        for silo in &victims {
            cluster.crash_machine(*silo);
        }
        if self.rng.chance(0.5) {
            self.later(cluster, 20, 240, End::Start(victims.len()));
        } else {
            // The machines come back.
            for silo in victims {
                self.later(cluster, 20, 240, End::Again(silo));
            }
        }
    }
}
