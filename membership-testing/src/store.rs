//! The simulated store: the in-memory table, with latency, outages, unknown outcomes, limited
//! throughput, wipes and restores.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use crate::clock::VirtualTime;
use crate::ground_truth::ProcessId;
use crate::rng::Rng;
use crate::table_call::TableCall;
use crate::traffic::{Scale, TableTraffic};
use membership_core::protocol::{CallId, Input};
use membership_core::{
    ClusterName, CommitId, CommitOutcome, CommitRequest, CoreCell, HeartbeatWrite, MemoryState,
    MemoryTable, ReadAnswer, ReadRequest, SiloAddress, Snapshot, TableError,
};

/// What really happened to a commit whose outcome is unknown to its caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum UnknownOutcome {
    /// It was applied, but reported as failed.
    Applied,
    /// It is applied later, up to 15 s after it was reported as failed.
    AppliedLate,
    /// It is never applied.
    NotApplied,
}

/// How many versions the table can be rolled back.
const REMEMBERED: usize = 64;

/// What one call changed in the table.
#[derive(Debug, Default)]
pub(super) struct TableChanges {
    pub created: Option<Snapshot>,
    pub commits: Vec<(Snapshot, Snapshot, CommitRequest)>,
    pub heartbeat: Option<(SiloAddress, u64)>,
    pub conflict: bool,
}

#[derive(Debug)]
pub(super) struct Store {
    pub table: MemoryTable,
    pub down_until: Option<VirtualTime>,
    pub latency: (Duration, Duration),
    /// The share of calls that are slow in each direction, and their longest latency.
    pub tail: (f64, Duration),
    /// Rows per second that the table reads or writes, one call after the other; none = unlimited.
    pub rate: Option<f64>,
    /// When it has finished the earlier calls.
    pub busy_until: VirtualTime,
    pub conflicts: f64,
    pub unknown: f64,
    /// The kind of unknown outcomes; none = any.
    pub unknown_kind: Option<UnknownOutcome>,
    /// The states after the last commits, newest last.
    pub history: VecDeque<MemoryState>,
    pub cut: BTreeSet<ProcessId>,
    pub truth: Option<Snapshot>,
    /// The newest heartbeat that each silo ever wrote. Wipes and restores do not change it.
    highest: BTreeMap<SiloAddress, u64>,
    pub traffic: TableTraffic,
    scale: Scale,
}

/// The default latency of a call, in each direction.
pub(super) const DEFAULT_LATENCY: (Duration, Duration) =
    (Duration::from_millis(1), Duration::from_millis(6));

impl Store {
    pub(super) fn new(cluster: ClusterName, latency: (Duration, Duration)) -> Self {
        Self {
            table: MemoryTable::new(cluster),
            down_until: None,
            latency,
            tail: (0.0, Duration::ZERO),
            rate: None,
            busy_until: Duration::ZERO,
            conflicts: 0.0,
            unknown: 0.0,
            unknown_kind: None,
            history: VecDeque::new(),
            cut: BTreeSet::new(),
            truth: None,
            highest: BTreeMap::new(),
            traffic: TableTraffic::default(),
            scale: Scale::default(),
        }
    }

    /// The present contents of the table.
    pub(super) fn contents(&self) -> Option<Snapshot> {
        match self.table.read_sync(&ReadRequest::default()) {
            Ok(ReadAnswer::Snapshot { snapshot, .. }) => Some(snapshot),
            _ => None,
        }
    }

    pub(super) fn is_down(&self, now: VirtualTime) -> bool {
        self.down_until.is_some_and(|until| now < until)
    }

    /// Executes a call now.
    pub(super) fn execute(
        &mut self,
        call: CallId,
        what: &TableCall,
        rng: &mut Rng,
        table_changes: &mut TableChanges,
    ) -> Input {
        let answer = self.answer(call, what, rng, table_changes);
        self.traffic.count(what, &answer, &mut self.scale);
        answer
    }

    fn answer(
        &mut self,
        call: CallId,
        what: &TableCall,
        rng: &mut Rng,
        table_changes: &mut TableChanges,
    ) -> Input {
        match what {
            TableCall::Initialize(request) => {
                let result = self.table.initialize_sync(request);
                if self.truth.is_none() {
                    self.truth = self.contents();
                    table_changes.created.clone_from(&self.truth);
                    self.history.clear();
                    self.remember();
                }
                Input::Initialized { call, result }
            }
            TableCall::Read(request) => Input::Read {
                call,
                result: self.table.read_sync(request),
            },
            TableCall::ReadRow(silo) => Input::RowRead {
                call,
                result: self.table.read_row_sync(silo, None),
            },
            TableCall::Commit(request) => {
                if rng.chance(self.conflicts) {
                    self.foreign_commit(rng, table_changes);
                }
                let result = self.commit(request, table_changes);
                table_changes.conflict = matches!(result, Ok(CommitOutcome::Conflict(_)));
                Input::Committed { call, result }
            }
            TableCall::Heartbeat(write) => {
                let result = self.table.update_i_am_alive_sync(write);
                if let (Ok(()), HeartbeatWrite::Silo { silo, heartbeat }) = (&result, write)
                    && self.moves(*silo, heartbeat.counter)
                {
                    table_changes.heartbeat = Some((*silo, heartbeat.counter));
                }
                Input::HeartbeatWritten { call, result }
            }
        }
    }

    fn commit(
        &mut self,
        request: &CommitRequest,
        table_changes: &mut TableChanges,
    ) -> Result<CommitOutcome, TableError> {
        let result = self.table.commit_sync(request);
        let now = self.contents();
        if let (Ok(CommitOutcome::Committed(_)), Some(before), Some(after)) =
            (&result, &self.truth, &now)
            && before.version() != after.version()
        {
            table_changes
                .commits
                .push((before.clone(), after.clone(), request.clone()));
            self.remember();
        }
        self.truth = now;
        result
    }

    /// Whether a heartbeat advances for every reader, whatever it has read before. A late heartbeat
    /// does not; neither does one of an address that another silo had in a table that was restored.
    fn moves(&mut self, silo: SiloAddress, counter: u64) -> bool {
        let highest = self.highest.entry(silo).or_default();
        let moves = *highest < counter;
        *highest = counter.max(*highest);
        moves
    }

    fn remember(&mut self) {
        if self.history.len() > REMEMBERED {
            self.history.pop_front();
        }
        self.history.push_back(self.backup());
    }

    /// Draws the latency of one direction of a call.
    pub(super) fn draw(&self, rng: &mut Rng) -> Duration {
        let (low, high) = self.latency;
        let (share, slow) = self.tail;
        if rng.chance(share) {
            rng.between(high, slow.max(high))
        } else {
            rng.between(low, high)
        }
    }

    /// Queues a call that arrives now and touches this many rows. Returns when the table has
    /// finished it.
    pub(super) fn serve(&mut self, rows: usize, now: VirtualTime) -> VirtualTime {
        let Some(rate) = self.rate else { return now };
        self.busy_until = self.busy_until.max(now) + Duration::from_secs_f64(rows as f64 / rate);
        self.busy_until
    }

    /// Commits as another program or a person would, without a change of rows.
    pub(super) fn foreign_commit(&mut self, rng: &mut Rng, table_changes: &mut TableChanges) {
        let Some(truth) = &self.truth else { return };
        let mut request = CommitRequest::new(
            truth.token.clone(),
            CommitId::new(rng.next_u128()),
            None,
            [],
            [],
            [],
        );
        // The keys stay; the commit changes nothing else, either.
        let keys = truth.version_row.core.cluster_keys();
        request.core = Some(
            CoreCell::from(format!("{{\"touched\":{}}}", rng.below(1_000_000)))
                .with_cluster_keys(&keys),
        );
        let _ = self.commit(&request, table_changes);
    }

    pub(super) fn wipe(&mut self) {
        self.table.wipe();
        self.truth = None;
        self.history.clear();
    }

    pub(super) fn backup(&self) -> MemoryState {
        self.table.snapshot_state()
    }

    pub(super) fn restore(&mut self, state: MemoryState) -> Option<Snapshot> {
        self.table.restore_state(state);
        self.truth = self.contents();
        self.history.clear();
        self.remember();
        self.truth.clone()
    }

    /// Returns to the state before the last `versions` commits, or to the oldest known state.
    pub(super) fn roll_back(&mut self, versions: usize) -> Option<Snapshot> {
        self.truth.as_ref()?;
        let kept = self.history.len().saturating_sub(versions).max(1);
        let state = self.history.get(kept - 1)?.clone();
        self.history.truncate(kept);
        self.table.restore_state(state);
        self.truth = self.contents();
        self.truth.clone()
    }
}
