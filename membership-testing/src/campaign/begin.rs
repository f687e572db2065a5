//! How each kind of fault starts.

use std::time::Duration;

use super::fault::Fault;
use super::plan::{End, Plan, s};
use crate::{Cluster, Latency, UnknownOutcome};

const MS: fn(u64) -> Duration = Duration::from_millis;
/// The largest rate error of clocks, in parts per million: 3 %.
const MOST_PPM: usize = 30_000;

impl Plan {
    pub(super) fn begin(&mut self, cluster: &mut Cluster, kind: Fault) {
        match kind {
            Fault::Crashes | Fault::Restarts | Fault::SetBack | Fault::Leaves => {
                self.begin_process_end(cluster, kind)
            }
            Fault::Pauses | Fault::HalfDead | Fault::Holds | Fault::Clocks | Fault::Drift => {
                self.begin_process_fault(cluster, kind)
            }
            Fault::Drops | Fault::Duplicates | Fault::Lossy | Fault::Zones => {
                self.begin_message_fault(cluster, kind)
            }
            Fault::Partitions | Fault::OneWay | Fault::Firewall | Fault::Flapping => {
                self.begin_block(cluster, kind)
            }
            Fault::TableOutages | Fault::SlowTable | Fault::BusyTable | Fault::TableCuts => {
                self.begin_table_fault(cluster, kind)
            }
            Fault::Conflicts | Fault::UnknownOutcomes => self.begin_commit_fault(cluster, kind),
            Fault::PartialPartitions => self.cut_partially(cluster),
            Fault::SlowLinks => self.slow_partially(cluster),
            Fault::Machines => self.crash_machines(cluster),
            Fault::Stutter | Fault::Starvation | Fault::Listeners => {
                self.begin_partial_fault(cluster, kind)
            }
            Fault::Wipes => self.wipe(cluster),
            Fault::Restores => {
                let backup = cluster.backup_table();
                self.later(cluster, 10, 300, End::Restore(backup));
            }
            Fault::Rollbacks => self.roll_back(cluster),
        }
    }

    /// Faults that end processes.
    fn begin_process_end(&mut self, cluster: &mut Cluster, kind: Fault) {
        let half = self.silos / 2;
        match kind {
            Fault::Crashes => {
                let most = if self.rng.chance(0.1) { half } else { 2 };
                let victims = self.pick_some(cluster, most, half.min(5));
                for id in &victims {
                    cluster.kill(*id);
                }
                self.later(cluster, 20, 240, End::Start(victims.len()));
            }
            Fault::Leaves => {
                let leavers = self.pick_some(cluster, 3, half);
                for id in &leavers {
                    cluster.leave(*id);
                }
                self.later(cluster, 10, 120, End::Start(leavers.len()));
            }
            Fault::SetBack => {
                for id in self.pick_some(cluster, 2, half) {
                    let back =
                        i64::try_from(self.rng.between(s(1), s(86_400)).as_millis()).unwrap_or(0);
                    let now = cluster
                        .truth()
                        .record(id)
                        .map_or(0, |l| l.skew.at(cluster.now()));
                    cluster.kill(id);
                    self.later(cluster, 0, 60, End::SetBack(id, now - back));
                }
            }
            _ => {
                for id in self.pick_some(cluster, 2, half) {
                    if self.rng.chance(0.3) {
                        cluster.take_over(id);
                    } else {
                        cluster.kill(id);
                        self.later(cluster, 0, 60, End::Again(id));
                    }
                }
            }
        }
    }

    /// Faults of running processes and their clocks.
    fn begin_process_fault(&mut self, cluster: &mut Cluster, kind: Fault) {
        let keep = if matches!(kind, Fault::Clocks | Fault::Drift) {
            0
        } else {
            self.silos / 2
        };
        for id in self.pick_some(cluster, 3, keep) {
            let time = self.rng.between(s(1), s(90));
            match kind {
                Fault::Pauses => cluster.pause(id, time),
                Fault::HalfDead => cluster.hang(id, time * 2),
                Fault::Holds => cluster.hold(id, time),
                Fault::Drift => {
                    let mut ppm =
                        || i64::try_from(self.rng.below(2 * MOST_PPM)).unwrap_or(0) - 30_000;
                    let (wall, mono) = (ppm(), ppm());
                    cluster.clock_drift(id, wall);
                    cluster.monotonic_drift(id, mono);
                }
                _ => {
                    let off =
                        i64::try_from(self.rng.between(s(0), s(600)).as_millis()).unwrap_or(0);
                    cluster.clock_offset(id, if self.rng.chance(0.5) { off } else { -off });
                }
            }
        }
    }

    /// Faults that lose or delay messages.
    fn begin_message_fault(&mut self, cluster: &mut Cluster, kind: Fault) {
        match kind {
            Fault::Drops => {
                cluster.message_loss(0.01 + self.rng.below(20) as f64 / 100.0);
                self.later(cluster, 10, 120, End::Loss);
            }
            Fault::Duplicates => {
                cluster.duplicates(0.05 + self.rng.below(50) as f64 / 100.0);
                let most = if self.rng.chance(0.5) { MS(200) } else { s(8) };
                cluster.delayed(self.rng.below(30) as f64 / 100.0, most);
                self.later(cluster, 20, 180, End::Duplicates);
            }
            Fault::Zones => {
                let zones = 2 + self.rng.below(3);
                let far = self.rng.between(MS(5), MS(80));
                cluster.zones(
                    zones,
                    Latency {
                        low: far / 2,
                        high: far,
                        slow_share: 0.01,
                        slow: far * 3,
                    },
                );
                if self.rng.chance(0.5) {
                    let (a, b) = (self.rng.below(zones), self.rng.below(zones));
                    cluster.cut_zones(a, b);
                    self.later(cluster, 10, 120, End::Heal);
                }
                self.later(cluster, 120, 600, End::Zones);
            }
            _ => {
                for id in self.pick_some(cluster, 2, self.silos / 2) {
                    let rate = 0.2 + self.rng.below(81) as f64 / 100.0;
                    if self.rng.chance(0.5) {
                        cluster.egress_loss(id, rate);
                    } else {
                        cluster.ingress_loss(id, rate);
                    }
                    self.later(cluster, 20, 180, End::Lossy(id));
                }
            }
        }
    }

    /// Faults that block directions.
    fn begin_block(&mut self, cluster: &mut Cluster, kind: Fault) {
        let mut all = cluster.running();
        let (first, second) = (self.rng.pick(&all), self.rng.pick(&all));
        let (Some(first), Some(second)) = (first, second) else {
            return;
        };
        let single = self.rng.chance(0.3);
        match kind {
            Fault::Partitions => {
                self.rng.shuffle(&mut all);
                let cut = self.rng.below(all.len());
                let others = all.split_off(cut);
                cluster.partition(&[all, others]);
                self.later(cluster, 10, 180, End::Heal);
            }
            Fault::Firewall => {
                cluster.block_both(first, second);
                self.later(cluster, 60, 600, End::Heal);
            }
            Fault::Flapping => {
                let (down_for, up_for) =
                    (self.rng.between(s(1), s(30)), self.rng.between(s(1), s(30)));
                if single {
                    cluster.flap_ingress(first, down_for, up_for);
                } else {
                    cluster.flap(first, second, down_for, up_for);
                    for _ in 0..self.rng.below(4) {
                        if let (Some(a), Some(b)) = (self.rng.pick(&all), self.rng.pick(&all)) {
                            cluster.flap(a, b, down_for, up_for);
                        }
                    }
                }
                self.later(cluster, 30, 240, End::Heal);
            }
            _ => {
                if single {
                    cluster.isolate(first);
                } else {
                    cluster.block(first, second);
                    for _ in 0..self.rng.below(6) {
                        if let (Some(a), Some(b)) = (self.rng.pick(&all), self.rng.pick(&all)) {
                            cluster.block(a, b);
                        }
                    }
                }
                self.later(cluster, 10, 120, End::Heal);
            }
        }
    }

    /// Faults that make the table unavailable or slow.
    fn begin_table_fault(&mut self, cluster: &mut Cluster, kind: Fault) {
        match kind {
            Fault::TableOutages => {
                let time = self.rng.between(s(5), s(180));
                let both = self.rng.below(4);
                if both < 2 {
                    cluster.network_outage(time);
                }
                if both > 0 {
                    cluster.table_outage(time);
                }
            }
            Fault::SlowTable => {
                let high = self.rng.between(s(1), s(8));
                cluster.slow_table(MS(200), high);
                self.later(cluster, 20, 180, End::Slow);
            }
            Fault::BusyTable => {
                if self.rng.chance(0.5) {
                    cluster.table_rate(Some(60.0 + self.rng.below(1_000) as f64));
                } else {
                    let share = 0.02 + self.rng.below(20) as f64 / 100.0;
                    cluster.table_tail(share, self.rng.between(s(1), s(15)));
                }
                self.later(cluster, 30, 300, End::BusyTable);
            }
            _ => {
                for id in self.pick_some(cluster, 3, self.silos / 2) {
                    cluster.cut_from_table(id, true);
                    self.later(cluster, 20, 180, End::Cut(id));
                }
            }
        }
    }

    /// Faults that make commits conflict, or leave their outcome unknown. They need commits, so one
    /// silo is killed and another one starts.
    fn begin_commit_fault(&mut self, cluster: &mut Cluster, kind: Fault) {
        let rate = 0.1 + self.rng.below(60) as f64 / 100.0;
        let end = if kind == Fault::Conflicts {
            cluster.table_conflicts(rate + 0.1);
            End::Conflicts
        } else {
            let kinds = [
                None,
                Some(UnknownOutcome::Applied),
                Some(UnknownOutcome::AppliedLate),
                Some(UnknownOutcome::NotApplied),
            ];
            let kind = self.rng.pick(&kinds).flatten();
            cluster.unknown_outcomes_of(kind, rate);
            End::Unknown
        };
        for id in self.pick_some(cluster, 1, self.silos / 2) {
            cluster.kill(id);
            self.later(cluster, 1, 30, End::Start(1));
        }
        self.later(cluster, 20, 180, end);
    }
}
