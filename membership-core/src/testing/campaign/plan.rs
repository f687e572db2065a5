//! Which fault comes when, and when it ends.

use std::time::Duration;

use super::fit;
use crate::testing::{Cluster, ProcessId, VirtualTime};

/// A kind of fault that a campaign can draw.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Fault {
    /// Messages get lost at random.
    Drops,
    /// Processes are killed.
    Crashes,
    /// Processes are killed and start again at the same address; sometimes the old one goes on running.
    Restarts,
    /// Processes do not run for a while.
    Pauses,
    /// The network splits, both ways.
    Partitions,
    /// Some directions between some silos are shut.
    OneWay,
    /// The table is down; sometimes the network too.
    TableOutages,
    /// The table is slow.
    SlowTable,
    /// Others commit in between.
    Conflicts,
    /// Outcomes of commits are unknown.
    UnknownOutcomes,
    /// Silos leave.
    Leaves,
    /// Wall clocks are wrong.
    Clocks,
    /// Single silos cannot reach the table.
    TableCuts,
}

impl Fault {
    /// Every kind.
    pub const ALL: [Self; 13] = [
        Self::Drops,
        Self::Crashes,
        Self::Restarts,
        Self::Pauses,
        Self::Partitions,
        Self::OneWay,
        Self::TableOutages,
        Self::SlowTable,
        Self::Conflicts,
        Self::UnknownOutcomes,
        Self::Leaves,
        Self::Clocks,
        Self::TableCuts,
    ];
}

#[derive(Clone, Copy, Debug)]
enum End {
    Loss,
    Heal,
    Slow,
    Conflicts,
    Unknown,
    Cut(ProcessId),
    Start(usize),
    Again(ProcessId),
}

/// What has begun and will end.
#[derive(Debug)]
pub(super) struct Plan {
    silos: usize,
    ends: Vec<(VirtualTime, End)>,
}

const fn s(secs: u64) -> Duration {
    Duration::from_secs(secs)
}

impl Plan {
    pub(super) fn new(silos: usize) -> Self {
        Self { silos: silos.max(5), ends: Vec::new() }
    }

    /// Peace: nothing that was planned comes any more.
    pub(super) fn forget(&mut self) {
        self.ends.clear();
    }

    /// After how long the next fault ends.
    pub(super) fn next_end(&self, now: VirtualTime) -> Option<Duration> {
        self.ends.iter().map(|(at, _)| at.saturating_sub(now)).min()
    }

    pub(super) fn end_what_is_due(&mut self, cluster: &mut Cluster) {
        let now = cluster.now();
        let (due, later) = std::mem::take(&mut self.ends).into_iter().partition(|(at, _)| *at <= now);
        self.ends = later;
        let due: Vec<(VirtualTime, End)> = due;
        for (_, end) in due {
            match end {
                End::Loss => cluster.message_loss(0.0),
                End::Heal => cluster.heal(),
                End::Slow => cluster.slow_table(s(0) + Duration::from_millis(1), Duration::from_millis(6)),
                End::Conflicts => cluster.table_conflicts(0.0),
                End::Unknown => cluster.unknown_outcomes(0.0),
                End::Cut(id) => cluster.cut_from_table(id, false),
                End::Start(n) => {
                    cluster.start(n);
                }
                End::Again(id) => {
                    cluster.restart(id);
                }
            }
        }
    }

    fn later(&mut self, cluster: &mut Cluster, low: u64, high: u64, end: End) {
        let after = cluster.dice().between(s(low), s(high));
        self.ends.push((cluster.now() + after, end));
    }

    /// Some silos, so that at least `keep` fit ones remain.
    fn some(&self, cluster: &mut Cluster, most: usize, keep: usize) -> Vec<ProcessId> {
        let mut fit = fit(cluster);
        cluster.dice().shuffle(&mut fit);
        let spare = fit.len().saturating_sub(keep).min(most);
        let n = if spare == 0 { 0 } else { 1 + cluster.dice().below(spare) };
        fit.truncate(n);
        fit
    }

    pub(super) fn begin(&mut self, cluster: &mut Cluster, kind: Fault) {
        let half = self.silos / 2;
        match kind {
            Fault::Drops => {
                let rate = 0.01 + cluster.dice().below(20) as f64 / 100.0;
                cluster.message_loss(rate);
                self.later(cluster, 10, 120, End::Loss);
            }
            Fault::Crashes => {
                let most = if cluster.dice().chance(0.1) { half } else { 2 };
                let victims = self.some(cluster, most, half.min(5));
                for id in &victims {
                    cluster.kill(*id);
                }
                self.later(cluster, 20, 240, End::Start(victims.len()));
            }
            Fault::Restarts => {
                for id in self.some(cluster, 2, half) {
                    if cluster.dice().chance(0.3) {
                        cluster.take_over(id);
                    } else {
                        cluster.kill(id);
                        self.later(cluster, 0, 60, End::Again(id));
                    }
                }
            }
            Fault::Pauses => {
                for id in self.some(cluster, 3, half) {
                    let time = cluster.dice().between(s(1), s(90));
                    cluster.pause(id, time);
                }
            }
            Fault::Partitions => {
                let mut all = cluster.running();
                cluster.dice().shuffle(&mut all);
                let cut = cluster.dice().below(all.len().max(1));
                let second = all.split_off(cut);
                cluster.partition(&[all, second]);
                self.later(cluster, 10, 180, End::Heal);
            }
            Fault::OneWay => {
                let all = cluster.running();
                if cluster.dice().chance(0.3) {
                    if let Some(id) = cluster.dice().pick(&all) {
                        cluster.isolate(id);
                    }
                } else {
                    for _ in 0..=cluster.dice().below(6) {
                        let (a, b) = (cluster.dice().pick(&all), cluster.dice().pick(&all));
                        if let (Some(a), Some(b)) = (a, b) {
                            cluster.block(a, b);
                        }
                    }
                }
                self.later(cluster, 10, 120, End::Heal);
            }
            Fault::TableOutages => {
                let time = cluster.dice().between(s(5), s(180));
                match cluster.dice().below(4) {
                    0 => cluster.network_outage(time),
                    1 => {
                        cluster.network_outage(time);
                        cluster.table_outage(time);
                    }
                    _ => cluster.table_outage(time),
                }
            }
            Fault::SlowTable => {
                let high = cluster.dice().between(s(1), s(8));
                cluster.slow_table(Duration::from_millis(200), high);
                self.later(cluster, 20, 180, End::Slow);
            }
            Fault::Conflicts => {
                let rate = 0.2 + cluster.dice().below(60) as f64 / 100.0;
                cluster.table_conflicts(rate);
                self.churn(cluster);
                self.later(cluster, 20, 180, End::Conflicts);
            }
            Fault::UnknownOutcomes => {
                let rate = 0.1 + cluster.dice().below(60) as f64 / 100.0;
                cluster.unknown_outcomes(rate);
                self.churn(cluster);
                self.later(cluster, 20, 180, End::Unknown);
            }
            Fault::Leaves => {
                let leavers = self.some(cluster, 3, half);
                for id in &leavers {
                    cluster.leave(*id);
                }
                self.later(cluster, 10, 120, End::Start(leavers.len()));
            }
            Fault::Clocks => {
                for id in self.some(cluster, 3, 0) {
                    let off = cluster.dice().between(s(0), s(600));
                    let millis = i64::try_from(off.as_millis()).unwrap_or(0);
                    let sign = if cluster.dice().chance(0.5) { 1 } else { -1 };
                    cluster.clock_offset(id, sign * millis);
                }
            }
            Fault::TableCuts => {
                for id in self.some(cluster, 3, half) {
                    cluster.cut_from_table(id, true);
                    self.later(cluster, 20, 180, End::Cut(id));
                }
            }
        }
    }

    /// Faults of commits need commits: one silo goes, another comes.
    fn churn(&mut self, cluster: &mut Cluster) {
        for id in self.some(cluster, 1, self.silos / 2) {
            cluster.kill(id);
            self.later(cluster, 1, 30, End::Start(1));
        }
    }

    /// Whoever stopped by itself is replaced by its operator.
    pub(super) fn keep_populated(&mut self, cluster: &mut Cluster) {
        let starting = |end: &End| match end {
            End::Start(n) => *n,
            End::Again(_) => 1,
            _ => 0,
        };
        let due: usize = self.ends.iter().map(|(_, end)| starting(end)).sum();
        cluster.start(self.silos.saturating_sub(cluster.running().len() + due));
    }
}
