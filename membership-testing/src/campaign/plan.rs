//! The plan of a campaign: which fault starts when, and when it ends.

use std::collections::BTreeSet;
use std::time::Duration;

use super::fault::Fault;
use crate::{Cluster, ProcessId, Rng, VirtualTime};
use membership_core::MemoryState;

/// The end of a fault, or a later consequence of it.
#[derive(Clone, Debug)]
pub(super) enum End {
    /// No more messages are lost.
    Loss,
    /// Every direction is unblocked, and no link flaps.
    Heal,
    /// The table has its default latency.
    Slow,
    /// No other writer commits.
    Conflicts,
    /// Outcomes of commits are known.
    Unknown,
    /// A silo reaches the table again.
    Cut(ProcessId),
    /// This many silos start.
    Start(usize),
    /// A silo starts at the address of this one.
    Again(ProcessId),
    /// The same, with a clock that is wrong by this many milliseconds.
    SetBack(ProcessId, i64),
    /// Messages arrive once, and without extra delay.
    Duplicates,
    /// There are no zones.
    Zones,
    /// The throughput of the table is unlimited.
    BusyTable,
    /// All links are as fast as usual.
    SlowLinks,
    /// A process listens again.
    Listener(ProcessId),
    /// A host loses no messages.
    Lossy(ProcessId),
    /// This backup of the table is restored.
    Restore(MemoryState),
    /// The operator restarts a silo, because the table was changed.
    Replace(ProcessId),
}

/// The faults that have started and when they end.
#[derive(Debug)]
pub(super) struct Plan {
    seed: u64,
    pub silos: usize,
    /// The generator of the current step.
    pub rng: Rng,
    ends: Vec<(VirtualTime, End)>,
}

pub(super) const fn s(secs: u64) -> Duration {
    Duration::from_secs(secs)
}

/// A generator of its own for each independent choice.
fn rng(seed: u64, step: u32, what: u64) -> Rng {
    let mut rng = Rng::new(
        seed ^ 0x706c_616e
            ^ u64::from(step).wrapping_mul(0x9e37_79b9_7f4a_7c15)
            ^ what.rotate_left(48),
    );
    rng.next_u64();
    rng
}

/// The pause before a step.
pub(super) fn quiet(seed: u64, step: u32) -> Duration {
    rng(seed, step, 1).between(s(5), s(60))
}

impl Plan {
    pub(super) fn new(seed: u64, silos: usize) -> Self {
        Self {
            seed,
            silos,
            rng: Rng::new(seed),
            ends: Vec::new(),
        }
    }

    /// When the next fault ends.
    pub(super) fn next_end(&self) -> Option<VirtualTime> {
        self.ends.iter().map(|(at, _)| *at).min()
    }

    /// Starts a fault of one of these kinds. The rank of a kind in a step does not depend on the
    /// other kinds.
    pub(super) fn step(&mut self, cluster: &mut Cluster, step: u32, kinds: &BTreeSet<Fault>) {
        let rank = |kind: &Fault| rng(self.seed, step, 2 + *kind as u64).next_u64();
        if let Some(kind) = kinds.iter().copied().max_by_key(rank) {
            self.rng = rng(self.seed, step, 100 + kind as u64);
            self.begin(cluster, kind);
        }
    }

    pub(super) fn at(&mut self, when: VirtualTime, end: End) {
        self.ends.push((when, end));
    }

    pub(super) fn later(&mut self, cluster: &Cluster, low: u64, high: u64, end: End) {
        let after = self.rng.between(s(low), s(high));
        self.at(cluster.now() + after, end);
    }

    /// Draws healthy silos, at most `most`, so that at least `keep` healthy ones remain.
    pub(super) fn pick_some(
        &mut self,
        cluster: &Cluster,
        most: usize,
        keep: usize,
    ) -> Vec<ProcessId> {
        let mut drawn = healthy(cluster);
        self.rng.shuffle(&mut drawn);
        let spare = drawn.len().saturating_sub(keep).min(most);
        let n = if spare == 0 {
            0
        } else {
            1 + self.rng.below(spare)
        };
        drawn.truncate(n);
        drawn
    }

    pub(super) fn end_due_faults(&mut self, cluster: &mut Cluster) {
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
            End::SlowLinks => cluster.usual_links(),
            End::Listener(id) => cluster.regain_listener(id),
            End::Slow => cluster.normal_table(),
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

    /// Drops everything that was planned, except what the operator must do.
    pub(super) fn finish(&mut self, cluster: &mut Cluster) {
        for (_, end) in std::mem::take(&mut self.ends) {
            if let End::Replace(id) = end {
                self.replace(cluster, id);
            }
        }
    }

    /// The operator replaces silos that stopped by themselves.
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

/// Silos that run and are not paused, held, leaving or hidden.
fn healthy(cluster: &Cluster) -> Vec<ProcessId> {
    let truth = cluster.truth();
    let is_healthy = |id: &ProcessId| {
        truth.record(*id).is_some_and(|l| {
            l.leaving.is_none() && !l.paused.is_on() && !l.held.is_on() && !l.hidden
        })
    };
    cluster.running().into_iter().filter(is_healthy).collect()
}
