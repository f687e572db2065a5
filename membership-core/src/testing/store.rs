//! The table of the virtual world: the in-memory table behind a store that can be slow, down, unsure, busy with others, or wiped.

use std::collections::BTreeSet;
use std::time::Duration;

use super::circumstances::{ProcessId, VirtualTime};
use super::dice::Dice;
use super::traffic::TableTraffic;
use crate::protocol::{CallId, Input};
use crate::{
    ClusterName, CommitId, CommitOutcome, CommitRequest, HeartbeatWrite, InitializeRequest, MemoryState, MemoryTable, Operation,
    ReadAnswer, ReadRequest, Snapshot, TableError, TableErrorKind,
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
        Input::Initialized { call, .. } => Input::Initialized { call: *call, result: Err(gone(Operation::Initialize)) },
        Input::Read { call, .. } => Input::Read { call: *call, result: Err(gone(Operation::Read)) },
        Input::Committed { call, .. } => {
            Input::Committed { call: *call, result: Err(error(TableErrorKind::OutcomeUnknown, Operation::Commit)) }
        }
        Input::HeartbeatWritten { call, .. } => Input::HeartbeatWritten { call: *call, result: Err(gone(Operation::UpdateIAmAlive)) },
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
            Self::Initialize(_) => Input::Initialized { call, result: Err(error) },
            Self::Read(_) => Input::Read { call, result: Err(error) },
            Self::Commit(_) => Input::Committed { call, result: Err(error) },
            Self::Beat(_) => Input::HeartbeatWritten { call, result: Err(error) },
        }
    }

    /// How it fails when nobody knows whether the store got it.
    pub(super) fn timed_out(&self, call: CallId) -> Input {
        let kind = if matches!(self, Self::Commit(_)) { TableErrorKind::OutcomeUnknown } else { TableErrorKind::Unavailable };
        self.failed(call, kind, TIMED_OUT)
    }
}

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
    pub conflicts: f64,
    pub unknown: f64,
    pub cut: BTreeSet<ProcessId>,
    pub truth: Option<Snapshot>,
    pub traffic: TableTraffic,
}

/// How long a call takes in either direction when nothing is wrong.
pub(super) const USUAL_LATENCY: (Duration, Duration) = (Duration::from_millis(1), Duration::from_millis(6));

impl Store {
    pub(super) fn new(cluster: ClusterName, latency: (Duration, Duration)) -> Self {
        Self {
            table: MemoryTable::new(cluster),
            down_until: None,
            latency,
            conflicts: 0.0,
            unknown: 0.0,
            cut: BTreeSet::new(),
            truth: None,
            traffic: TableTraffic::default(),
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
    pub(super) fn perform(&mut self, call: CallId, what: &Call, dice: &mut Dice, happened: &mut Happened) -> Input {
        let answer = self.answer(call, what, dice, happened);
        self.traffic.count(what, &answer);
        answer
    }

    fn answer(&mut self, call: CallId, what: &Call, dice: &mut Dice, happened: &mut Happened) -> Input {
        match what {
            Call::Initialize(request) => {
                let result = self.table.initialize_sync(request);
                if self.truth.is_none() {
                    self.truth = self.look();
                    happened.founded.clone_from(&self.truth);
                }
                Input::Initialized { call, result }
            }
            Call::Read(request) => Input::Read { call, result: self.table.read_sync(request) },
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
                if let (Ok(()), HeartbeatWrite::Silo { silo, heartbeat }) = (&result, write) {
                    happened.beat = Some((*silo, heartbeat.counter));
                }
                Input::HeartbeatWritten { call, result }
            }
        }
    }

    fn commit(&mut self, request: &CommitRequest, happened: &mut Happened) -> Result<CommitOutcome, TableError> {
        let result = self.table.commit_sync(request);
        let now = self.look();
        if let (Ok(CommitOutcome::Committed(_)), Some(before), Some(after)) = (&result, &self.truth, &now)
            && before.version() != after.version()
        {
            happened.commits.push((before.clone(), after.clone(), request.clone()));
        }
        self.truth = now;
        result
    }

    /// Somebody else, a program or a person, commits something that changes no row.
    pub(super) fn foreign_commit(&mut self, dice: &mut Dice, happened: &mut Happened) {
        let Some(truth) = &self.truth else { return };
        let mut request = CommitRequest::new(truth.token.clone(), CommitId::new(dice.name()), None, [], [], []);
        request.core = Some(format!("touched {}", dice.below(1_000_000)));
        let _ = self.commit(&request, happened);
    }

    pub(super) fn wipe(&mut self) {
        self.table.wipe();
        self.truth = None;
    }

    pub(super) fn backup(&self) -> MemoryState {
        self.table.snapshot_state()
    }

    pub(super) fn restore(&mut self, state: MemoryState) -> Option<Snapshot> {
        self.table.restore_state(state);
        self.truth = self.look();
        self.truth.clone()
    }
}
