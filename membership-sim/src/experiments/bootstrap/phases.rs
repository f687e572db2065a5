//! What has happened by when during a start.

use std::time::Duration;

use crate::arena::Arena as _;
use crate::figures::number;
use crate::ours::Ours;
use membership_core::{ClusterView, SiloStatus};
use membership_testing::{ProcessId, Stats, TableTraffic};

/// What had happened by a moment.
pub(super) struct Phase {
    /// Seconds since the others began to start.
    at: f64,
    rows: usize,
    active: usize,
    /// Members that publish what the table has.
    current: usize,
    counts: [u64; 7],
}

impl Phase {
    /// The cells of its row.
    pub(super) fn cells(&self, seed: u64, silos: usize, ghosts: usize, table: u64) -> Vec<String> {
        let mut row = vec![
            seed.to_string(),
            silos.to_string(),
            ghosts.to_string(),
            table.to_string(),
            number(Some(self.at), 2),
            self.rows.to_string(),
            self.active.to_string(),
            self.current.to_string(),
        ];
        row.extend(self.counts[..5].iter().map(u64::to_string));
        row
    }
}

/// The commits, conflicts and reads since `before`.
pub(super) fn counts(ours: &Ours, before: &(Stats, TableTraffic)) -> [u64; 7] {
    let (stats, traffic) = (
        *ours.cluster.stats(),
        ours.cluster.table_traffic().since(&before.1),
    );
    [
        stats.commits - before.0.commits,
        stats.conflicts - before.0.conflicts,
        traffic.reads + traffic.unchanged + traffic.row_reads,
        traffic.row_reads,
        traffic.rows_read,
        traffic.heartbeats_read,
        traffic.bytes_read / 1_000_000,
    ]
}

/// What has happened until now.
pub(super) fn phase(ours: &Ours, began: Duration, before: &(Stats, TableTraffic)) -> Phase {
    let table = ours.cluster.table();
    let entries = || table.iter().flat_map(|t| t.rows.entries());
    let version = table.map(membership_core::Snapshot::version);
    let current = |id: &ProcessId| ours.cluster.view(*id).map(ClusterView::version) == version;
    Phase {
        at: (ours.now() - began).as_secs_f64(),
        rows: entries().count(),
        active: entries().filter(|e| e.status == SiloStatus::Active).count(),
        current: ours
            .cluster
            .running()
            .into_iter()
            .filter(|id| current(id))
            .count(),
        counts: counts(ours, before),
    }
}
