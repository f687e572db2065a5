//! The table of the virtual world: the in-memory table behind a store that can be slow, down, unsure, busy with others, or wiped.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use super::circumstances::{ProcessId, VirtualTime};
use super::dice::Dice;
use super::traffic::{self, Scale, TableTraffic};
use crate::protocol::{CallId, Input};
use crate::{
    ClusterName, CommitId, CommitOutcome, CommitRequest, HeartbeatWrite, InitializeRequest,
    MemoryState, MemoryTable, Operation, ReadAnswer, ReadRequest, SiloAddress, Snapshot,
    TableError, TableErrorKind,
};

const TIMED_OUT: &str = "no answer within the timeout";

/// The call that an input answers.
pub(super) fn answers(input: &Input) -> Option<CallId> {
    match input {
        Input::Initialized { call, .. }
        | Input::Read { call, .. }
        | Input::Committed { call, .. }
        | Input::HeartbeatWritten { call, .. } => Some(*call),
        _ => None,
    }
}

/// What a process that waits for this answer believes when it has waited long enough.
pub(super) fn given_up(input: &Input) -> Option<Input> {
    let error = |kind, operation| TableError::new(kind, operation, "virtual", TIMED_OUT);
    let gone = |operation| error(TableErrorKind::Unavailable, operation);
    Some(match input {
        Input::Initialized { call, .. } => Input::Initialized {
            call: *call,
            result: Err(gone(Operation::Initialize)),
        },
        Input::Read { call, .. } => Input::Read {
            call: *call,
            result: Err(gone(Operation::Read)),
        },
        Input::Committed { call, .. } => Input::Committed {
            call: *call,
            result: Err(error(TableErrorKind::OutcomeUnknown, Operation::Commit)),
        },
        Input::HeartbeatWritten { call, .. } => Input::HeartbeatWritten {
            call: *call,
            result: Err(gone(Operation::UpdateIAmAlive)),
        },
        _ => return None,
    })
}

/// One call, on its way to the table.
#[derive(Clone, Debug)]
pub(super) enum Call {
    Initialize(InitializeRequest),
    Read(ReadRequest),
    Commit(CommitRequest),
    Beat(HeartbeatWrite),
}

impl Call {
    pub(super) fn operation(&self) -> Operation {
        match self {
            Self::Initialize(_) => Operation::Initialize,
            Self::Read(_) => Operation::Read,
            Self::Commit(_) => Operation::Commit,
            Self::Beat(_) => Operation::UpdateIAmAlive,
        }
    }

    /// The input that tells a process that this call failed.
    pub(super) fn failed(&self, call: CallId, kind: TableErrorKind, why: &str) -> Input {
        let error = TableError::new(kind, self.operation(), "virtual", why);
        match self {
            Self::Initialize(_) => Input::Initialized {
                call,
                result: Err(error),
            },
            Self::Read(_) => Input::Read {
                call,
                result: Err(error),
            },
            Self::Commit(_) => Input::Committed {
                call,
                result: Err(error),
            },
            Self::Beat(_) => Input::HeartbeatWritten {
                call,
                result: Err(error),
            },
        }
    }

    /// How many rows the table touches for it: the version row, each row that it reads or writes, and each heartbeat.
    pub(super) fn rows(&self, answer: &Input) -> usize {
        match (self, answer) {
            (
                _,
                Input::Read {
                    result:
                        Ok(ReadAnswer::Snapshot {
                            snapshot,
                            heartbeats,
                        }),
                    ..
                },
            ) => 1 + snapshot.rows.len() + traffic::beats_in(heartbeats.as_ref()),
            (
                _,
                Input::Read {
                    result: Ok(ReadAnswer::Unchanged { heartbeats }),
                    ..
                },
            ) => 1 + traffic::beats_in(heartbeats.as_ref()),
            (
                Self::Commit(_),
                Input::Committed {
                    result: Ok(CommitOutcome::Conflict(conflict)),
                    ..
                },
            ) => {
                1 + conflict
                    .snapshot
                    .as_ref()
                    .map_or(0, |snapshot| snapshot.rows.len())
            }
            (Self::Commit(request), _) => 1 + request.changes.len(),
            _ => 1,
        }
    }

    /// How it fails when nobody knows whether the store got it.
    pub(super) fn timed_out(&self, call: CallId) -> Input {
        let kind = if matches!(self, Self::Commit(_)) {
            TableErrorKind::OutcomeUnknown
        } else {
            TableErrorKind::Unavailable
        };
        self.failed(call, kind, TIMED_OUT)
    }
}

/// What really became of a commit whose outcome is unknown to its sender.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum UnknownOutcome {
    /// It was applied, and reported as failed.
    Applied,
    /// It is applied later, up to 15 s after it was reported as failed.
    AppliedLate,
    /// It is never applied.
    NotApplied,
}

/// How many versions the table can be rolled back by.
const REMEMBERED: usize = 64;

/// What happened in the table because of one call.
#[derive(Debug, Default)]
pub(super) struct Happened {
    pub founded: Option<Snapshot>,
    pub commits: Vec<(Snapshot, Snapshot, CommitRequest)>,
    pub beat: Option<(crate::SiloAddress, u64)>,
    pub conflict: bool,
}

#[derive(Debug)]
pub(super) struct Store {
    pub table: MemoryTable,
    pub down_until: Option<VirtualTime>,
    pub latency: (Duration, Duration),
    /// So many calls are slow, in either direction, and take up to so long.
    pub tail: (f64, Duration),
    /// Rows per second that it reads or writes; one call after the other.
    pub rate: Option<f64>,
    /// Until when it is busy with earlier calls.
    pub busy_until: VirtualTime,
    pub conflicts: f64,
    pub unknown: f64,
    /// Which kind of unknown outcome; none = any.
    pub unknown_kind: Option<UnknownOutcome>,
    /// What it was after the last commits, newest last.
    pub history: VecDeque<MemoryState>,
    pub cut: BTreeSet<ProcessId>,
    pub truth: Option<Snapshot>,
    /// The newest heartbeat of each silo that there ever was, whatever became of the table.
    highest: BTreeMap<SiloAddress, u64>,
    pub traffic: TableTraffic,
    scale: Scale,
}

/// How long a call takes in either direction when nothing is wrong.
pub(super) const USUAL_LATENCY: (Duration, Duration) =
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

    /// What is in the table now.
    pub(super) fn look(&self) -> Option<Snapshot> {
        match self.table.read_sync(&ReadRequest::default()) {
            Ok(ReadAnswer::Snapshot { snapshot, .. }) => Some(snapshot),
            _ => None,
        }
    }

    pub(super) fn is_down(&self, now: VirtualTime) -> bool {
        self.down_until.is_some_and(|until| now < until)
    }

    /// Carries a call out, at this very moment.
    pub(super) fn perform(
        &mut self,
        call: CallId,
        what: &Call,
        dice: &mut Dice,
        happened: &mut Happened,
    ) -> Input {
        let answer = self.answer(call, what, dice, happened);
        self.traffic.count(what, &answer, &mut self.scale);
        answer
    }

    fn answer(
        &mut self,
        call: CallId,
        what: &Call,
        dice: &mut Dice,
        happened: &mut Happened,
    ) -> Input {
        match what {
            Call::Initialize(request) => {
                let result = self.table.initialize_sync(request);
                if self.truth.is_none() {
                    self.truth = self.look();
                    happened.founded.clone_from(&self.truth);
                    self.history.clear();
                    self.remember();
                }
                Input::Initialized { call, result }
            }
            Call::Read(request) => Input::Read {
                call,
                result: self.table.read_sync(request),
            },
            Call::Commit(request) => {
                if dice.chance(self.conflicts) {
                    self.foreign_commit(dice, happened);
                }
                let result = self.commit(request, happened);
                happened.conflict = matches!(result, Ok(CommitOutcome::Conflict(_)));
                Input::Committed { call, result }
            }
            Call::Beat(write) => {
                let result = self.table.update_i_am_alive_sync(write);
                if let (Ok(()), HeartbeatWrite::Silo { silo, heartbeat }) = (&result, write)
                    && self.moves(*silo, heartbeat.counter)
                {
                    happened.beat = Some((*silo, heartbeat.counter));
                }
                Input::HeartbeatWritten { call, result }
            }
        }
    }

    fn commit(
        &mut self,
        request: &CommitRequest,
        happened: &mut Happened,
    ) -> Result<CommitOutcome, TableError> {
        let result = self.table.commit_sync(request);
        let now = self.look();
        if let (Ok(CommitOutcome::Committed(_)), Some(before), Some(after)) =
            (&result, &self.truth, &now)
            && before.version() != after.version()
        {
            happened
                .commits
                .push((before.clone(), after.clone(), request.clone()));
            self.remember();
        }
        self.truth = now;
        result
    }

    /// Whether a heartbeat moves for everybody who watches it, whenever it read. One that comes late does not; nor does one of a silo whose
    /// address somebody else had in a table that was restored.
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

    /// How long one direction of a call takes.
    pub(super) fn draw(&self, dice: &mut Dice) -> Duration {
        let (low, high) = self.latency;
        let (share, slow) = self.tail;
        if dice.chance(share) {
            dice.between(high, slow.max(high))
        } else {
            dice.between(low, high)
        }
    }

    /// Until when the table is busy with a call that gets there now and touches so many rows, after all that came before it.
    pub(super) fn serve(&mut self, rows: usize, now: VirtualTime) -> VirtualTime {
        let Some(rate) = self.rate else { return now };
        self.busy_until = self.busy_until.max(now) + Duration::from_secs_f64(rows as f64 / rate);
        self.busy_until
    }

    /// Somebody else, a program or a person, commits something that changes no row.
    pub(super) fn foreign_commit(&mut self, dice: &mut Dice, happened: &mut Happened) {
        let Some(truth) = &self.truth else { return };
        let mut request = CommitRequest::new(
            truth.token.clone(),
            CommitId::new(dice.name()),
            None,
            [],
            [],
            [],
        );
        request.core = Some(format!("touched {}", dice.below(1_000_000)));
        let _ = self.commit(&request, happened);
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
        self.truth = self.look();
        self.history.clear();
        self.remember();
        self.truth.clone()
    }

    /// The table as it was so many versions ago, or as long ago as is remembered.
    pub(super) fn roll_back(&mut self, versions: usize) -> Option<Snapshot> {
        self.truth.as_ref()?;
        let kept = self.history.len().saturating_sub(versions).max(1);
        let state = self.history.get(kept - 1)?.clone();
        self.history.truncate(kept);
        self.table.restore_state(state);
        self.truth = self.look();
        self.truth.clone()
    }
}
