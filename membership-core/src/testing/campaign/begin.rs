//! How each kind of fault begins.

use std::time::Duration;

use super::fault::Fault;
use super::plan::{End, Plan, s};
use crate::testing::{Cluster, Latency, UnknownOutcome};

const MS: fn(u64) -> Duration = Duration::from_millis;
/// How much too fast or too slow clocks run at most, in parts per million: 3 %.
const MOST_PPM: usize = 30_000;

impl Plan {
    pub(super) fn begin(&mut self, cluster: &mut Cluster, kind: Fault) {
        match kind {
            Fault::Crashes | Fault::Restarts | Fault::SetBack | Fault::Leaves => {
                self.begin_ends(cluster, kind)
            }
            Fault::Pauses | Fault::HalfDead | Fault::Holds | Fault::Clocks | Fault::Drift => {
                self.begin_sick(cluster, kind)
            }
            Fault::Drops | Fault::Duplicates | Fault::Lossy | Fault::Zones => {
                self.begin_rough(cluster, kind)
            }
            Fault::Partitions | Fault::OneWay | Fault::Firewall | Fault::Flapping => {
                self.begin_shut(cluster, kind)
            }
            Fault::TableOutages | Fault::SlowTable | Fault::BusyTable | Fault::TableCuts => {
                self.begin_unavailable(cluster, kind)
            }
            Fault::Conflicts | Fault::UnknownOutcomes => self.begin_unsure(cluster, kind),
            Fault::Wipes => self.wipe(cluster),
            Fault::Restores => {
                let backup = cluster.backup_table();
                self.later(cluster, 10, 300, End::Restore(backup));
            }
            Fault::Rollbacks => self.roll_back(cluster),
        }
    }

    /// Processes end.
    fn begin_ends(&mut self, cluster: &mut Cluster, kind: Fault) {
        let half = self.silos / 2;
        match kind {
            Fault::Crashes => {
                let most = if self.dice.chance(0.1) { half } else { 2 };
                let victims = self.some(cluster, most, half.min(5));
                for id in &victims {
                    cluster.kill(*id);
                }
                self.later(cluster, 20, 240, End::Start(victims.len()));
            }
            Fault::Leaves => {
                let leavers = self.some(cluster, 3, half);
                for id in &leavers {
                    cluster.leave(*id);
                }
                self.later(cluster, 10, 120, End::Start(leavers.len()));
            }
            Fault::SetBack => {
                for id in self.some(cluster, 2, half) {
                    let back =
                        i64::try_from(self.dice.between(s(1), s(86_400)).as_millis()).unwrap_or(0);
                    let now = cluster
                        .truth()
                        .life(id)
                        .map_or(0, |l| l.skew.at(cluster.now()));
                    cluster.kill(id);
                    self.later(cluster, 0, 60, End::SetBack(id, now - back));
                }
            }
            _ => {
                for id in self.some(cluster, 2, half) {
                    if self.dice.chance(0.3) {
                        cluster.take_over(id);
                    } else {
                        cluster.kill(id);
                        self.later(cluster, 0, 60, End::Again(id));
                    }
                }
            }
        }
    }

    /// Processes run, but not as they should.
    fn begin_sick(&mut self, cluster: &mut Cluster, kind: Fault) {
        let keep = if matches!(kind, Fault::Clocks | Fault::Drift) {
            0
        } else {
            self.silos / 2
        };
        for id in self.some(cluster, 3, keep) {
            let time = self.dice.between(s(1), s(90));
            match kind {
                Fault::Pauses => cluster.pause(id, time),
                Fault::HalfDead => cluster.hang(id, time * 2),
                Fault::Holds => cluster.hold(id, time),
                Fault::Drift => {
                    let mut ppm =
                        || i64::try_from(self.dice.below(2 * MOST_PPM)).unwrap_or(0) - 30_000;
                    let (wall, mono) = (ppm(), ppm());
                    cluster.clock_drift(id, wall);
                    cluster.monotonic_drift(id, mono);
                }
                _ => {
                    let off =
                        i64::try_from(self.dice.between(s(0), s(600)).as_millis()).unwrap_or(0);
                    cluster.clock_offset(id, if self.dice.chance(0.5) { off } else { -off });
                }
            }
        }
    }

    /// Messages get lost, or take long.
    fn begin_rough(&mut self, cluster: &mut Cluster, kind: Fault) {
        match kind {
            Fault::Drops => {
                cluster.message_loss(0.01 + self.dice.below(20) as f64 / 100.0);
                self.later(cluster, 10, 120, End::Loss);
            }
            Fault::Duplicates => {
                cluster.duplicates(0.05 + self.dice.below(50) as f64 / 100.0);
                let most = if self.dice.chance(0.5) { MS(200) } else { s(8) };
                cluster.delayed(self.dice.below(30) as f64 / 100.0, most);
                self.later(cluster, 20, 180, End::Duplicates);
            }
            Fault::Zones => {
                let zones = 2 + self.dice.below(3);
                let far = self.dice.between(MS(5), MS(80));
                cluster.zones(
                    zones,
                    Latency {
                        low: far / 2,
                        high: far,
                        slow_share: 0.01,
                        slow: far * 3,
                    },
                );
                if self.dice.chance(0.5) {
                    let (a, b) = (self.dice.below(zones), self.dice.below(zones));
                    cluster.cut_zones(a, b);
                    self.later(cluster, 10, 120, End::Heal);
                }
                self.later(cluster, 120, 600, End::Zones);
            }
            _ => {
                for id in self.some(cluster, 2, self.silos / 2) {
                    let rate = 0.2 + self.dice.below(81) as f64 / 100.0;
                    if self.dice.chance(0.5) {
                        cluster.egress_loss(id, rate);
                    } else {
                        cluster.ingress_loss(id, rate);
                    }
                    self.later(cluster, 20, 180, End::Lossy(id));
                }
            }
        }
    }

    /// Nothing gets through, from some to some.
    fn begin_shut(&mut self, cluster: &mut Cluster, kind: Fault) {
        let mut all = cluster.running();
        let (first, second) = (self.dice.pick(&all), self.dice.pick(&all));
        let (Some(first), Some(second)) = (first, second) else {
            return;
        };
        let single = self.dice.chance(0.3);
        match kind {
            Fault::Partitions => {
                self.dice.shuffle(&mut all);
                let cut = self.dice.below(all.len());
                let others = all.split_off(cut);
                cluster.partition(&[all, others]);
                self.later(cluster, 10, 180, End::Heal);
            }
            Fault::Firewall => {
                cluster.block_both(first, second);
                self.later(cluster, 60, 600, End::Heal);
            }
            Fault::Flapping => {
                let (shut_for, open_for) = (
                    self.dice.between(s(1), s(30)),
                    self.dice.between(s(1), s(30)),
                );
                if single {
                    cluster.flap_ingress(first, shut_for, open_for);
                } else {
                    cluster.flap(first, second, shut_for, open_for);
                    for _ in 0..self.dice.below(4) {
                        if let (Some(a), Some(b)) = (self.dice.pick(&all), self.dice.pick(&all)) {
                            cluster.flap(a, b, shut_for, open_for);
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
                    for _ in 0..self.dice.below(6) {
                        if let (Some(a), Some(b)) = (self.dice.pick(&all), self.dice.pick(&all)) {
                            cluster.block(a, b);
                        }
                    }
                }
                self.later(cluster, 10, 120, End::Heal);
            }
        }
    }

    /// The table is not there, or not fast.
    fn begin_unavailable(&mut self, cluster: &mut Cluster, kind: Fault) {
        match kind {
            Fault::TableOutages => {
                let time = self.dice.between(s(5), s(180));
                let both = self.dice.below(4);
                if both < 2 {
                    cluster.network_outage(time);
                }
                if both > 0 {
                    cluster.table_outage(time);
                }
            }
            Fault::SlowTable => {
                let high = self.dice.between(s(1), s(8));
                cluster.slow_table(MS(200), high);
                self.later(cluster, 20, 180, End::Slow);
            }
            Fault::BusyTable => {
                if self.dice.chance(0.5) {
                    cluster.table_rate(Some(60.0 + self.dice.below(1_000) as f64));
                } else {
                    let share = 0.02 + self.dice.below(20) as f64 / 100.0;
                    cluster.table_tail(share, self.dice.between(s(1), s(15)));
                }
                self.later(cluster, 30, 300, End::BusyTable);
            }
            _ => {
                for id in self.some(cluster, 3, self.silos / 2) {
                    cluster.cut_from_table(id, true);
                    self.later(cluster, 20, 180, End::Cut(id));
                }
            }
        }
    }

    /// Commits do not go through at once, or nobody knows whether they did. That needs commits: one silo goes, another comes.
    fn begin_unsure(&mut self, cluster: &mut Cluster, kind: Fault) {
        let rate = 0.1 + self.dice.below(60) as f64 / 100.0;
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
            let kind = self.dice.pick(&kinds).flatten();
            cluster.unknown_outcomes_of(kind, rate);
            End::Unknown
        };
        for id in self.some(cluster, 1, self.silos / 2) {
            cluster.kill(id);
            self.later(cluster, 1, 30, End::Start(1));
        }
        self.later(cluster, 20, 180, end);
    }
}
