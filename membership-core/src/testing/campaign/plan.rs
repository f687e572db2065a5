//! Which fault comes when, and when it ends.

use std::collections::BTreeSet;
use std::time::Duration;

use super::fault::Fault;
use super::fit;
use crate::MemoryState;
use crate::testing::{Cluster, Dice, ProcessId, VirtualTime};

/// What ends a fault, or comes of it later.
#[derive(Clone, Debug)]
pub(super) enum End {
    /// Messages get lost no more.
    Loss,
    /// Every direction is open, and no link flaps.
    Heal,
    /// The table is as fast as usual.
    Slow,
    /// Nobody commits in between.
    Conflicts,
    /// Outcomes are known.
    Unknown,
    /// A silo reaches the table.
    Cut(ProcessId),
    /// So many silos start.
    Start(usize),
    /// A silo starts at the address of this one.
    Again(ProcessId),
    /// The same, with a clock that is wrong by so many milliseconds.
    SetBack(ProcessId, i64),
    /// Messages arrive once, and on time.
    Duplicates,
    /// There are no zones.
    Zones,
    /// The table serves everybody at once.
    BusyTable,
    /// A machine loses nothing.
    Lossy(ProcessId),
    /// This is what is in the table.
    Restore(MemoryState),
    /// The operator restarts a silo, because the table is another.
    Replace(ProcessId),
}

/// What has begun and will end.
#[derive(Debug)]
pub(super) struct Plan {
    seed: u64,
    pub silos: usize,
    /// Of the step that is taken now.
    pub dice: Dice,
    ends: Vec<(VirtualTime, End)>,
}

pub(super) const fn s(secs: u64) -> Duration {
    Duration::from_secs(secs)
}

/// Dice of their own for everything that is decided apart from the rest.
fn dice(seed: u64, step: u32, what: u64) -> Dice {
    let mut dice = Dice::new(
        seed ^ 0x706c_616e
            ^ u64::from(step).wrapping_mul(0x9e37_79b9_7f4a_7c15)
            ^ what.rotate_left(48),
    );
    dice.number();
    dice
}

/// How long nothing new begins before a step.
pub(super) fn quiet(seed: u64, step: u32) -> Duration {
    dice(seed, step, 1).between(s(5), s(60))
}

impl Plan {
    pub(super) fn new(seed: u64, silos: usize) -> Self {
        Self {
            seed,
            silos: silos.max(5),
            dice: Dice::new(seed),
            ends: Vec::new(),
        }
    }

    /// When the next fault ends.
    pub(super) fn next_end(&self) -> Option<VirtualTime> {
        self.ends.iter().map(|(at, _)| *at).min()
    }

    /// Begins a fault of one of these kinds. Which one a step prefers does not depend on what else there is.
    pub(super) fn step(&mut self, cluster: &mut Cluster, step: u32, kinds: &BTreeSet<Fault>) {
        let rank = |kind: &Fault| dice(self.seed, step, 2 + *kind as u64).number();
        if let Some(kind) = kinds.iter().copied().max_by_key(rank) {
            self.dice = dice(self.seed, step, 100 + kind as u64);
            self.begin(cluster, kind);
        }
    }

    pub(super) fn at(&mut self, when: VirtualTime, end: End) {
        self.ends.push((when, end));
    }

    pub(super) fn later(&mut self, cluster: &Cluster, low: u64, high: u64, end: End) {
        let after = self.dice.between(s(low), s(high));
        self.at(cluster.now() + after, end);
    }

    /// Some silos, so that at least `keep` fit ones remain.
    pub(super) fn some(&mut self, cluster: &Cluster, most: usize, keep: usize) -> Vec<ProcessId> {
        let mut fit = fit(cluster);
        self.dice.shuffle(&mut fit);
        let spare = fit.len().saturating_sub(keep).min(most);
        let n = if spare == 0 {
            0
        } else {
            1 + self.dice.below(spare)
        };
        fit.truncate(n);
        fit
    }

    pub(super) fn end_what_is_due(&mut self, cluster: &mut Cluster) {
        let now = cluster.now();
        let (mut due, later): (Vec<_>, Vec<_>) = std::mem::take(&mut self.ends)
            .into_iter()
            .partition(|(at, _)| *at <= now);
        self.ends = later;
        due.sort_by_key(|(at, _)| *at);
        for (_, end) in due {
            self.end(cluster, end);
        }
    }

    fn end(&mut self, cluster: &mut Cluster, end: End) {
        match end {
            End::Loss => cluster.message_loss(0.0),
            End::Heal => cluster.heal(),
            End::Slow => cluster.usual_table(),
            End::Conflicts => cluster.table_conflicts(0.0),
            End::Unknown => cluster.unknown_outcomes(0.0),
            End::Cut(id) => cluster.cut_from_table(id, false),
            End::Start(n) => {
                cluster.start(n);
            }
            End::Again(id) => {
                cluster.restart(id);
            }
            End::SetBack(id, millis) => {
                cluster.restart_with_clock(id, millis);
            }
            End::Duplicates => {
                cluster.duplicates(0.0);
                cluster.delayed(0.0, Duration::ZERO);
            }
            End::Zones => cluster.zones(1, cluster.network().latency()),
            End::BusyTable => {
                cluster.table_rate(None);
                cluster.table_tail(0.0, Duration::ZERO);
            }
            End::Lossy(id) => {
                cluster.egress_loss(id, 0.0);
                cluster.ingress_loss(id, 0.0);
            }
            End::Restore(backup) => self.restore(cluster, backup),
            End::Replace(id) => self.replace(cluster, id),
        }
    }

    /// Peace: nothing that was planned comes any more, except what an operator must do.
    pub(super) fn finish(&mut self, cluster: &mut Cluster) {
        for (_, end) in std::mem::take(&mut self.ends) {
            if let End::Replace(id) = end {
                self.replace(cluster, id);
            }
        }
    }

    /// Whoever stopped by itself is replaced by its operator.
    pub(super) fn keep_populated(&mut self, cluster: &mut Cluster) {
        let starting = |end: &End| match end {
            End::Start(n) => *n,
            End::Again(_) | End::SetBack(..) => 1,
            _ => 0,
        };
        let due: usize = self.ends.iter().map(|(_, end)| starting(end)).sum();
        cluster.start(self.silos.saturating_sub(cluster.running().len() + due));
    }
}
