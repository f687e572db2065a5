//! One call of a process to the table: its kinds, its failures, and how many rows it touches.

use membership_core::protocol::{CallId, Input};
use membership_core::{
    CommitOutcome, CommitRequest, HeartbeatWrite, Heartbeats, InitializeRequest, Operation,
    ReadAnswer, ReadRequest, SiloAddress, TableError, TableErrorKind,
};

const TIMED_OUT: &str = "no answer within the timeout";

/// The call that an input answers.
pub(super) fn answered(input: &Input) -> Option<CallId> {
    match input {
        Input::Initialized { call, .. }
        | Input::Read { call, .. }
        | Input::RowRead { call, .. }
        | Input::Committed { call, .. }
        | Input::HeartbeatWritten { call, .. } => Some(*call),
        _ => None,
    }
}

/// The input for a process that times out while it waits for this answer.
pub(super) fn timed_out_answer(input: &Input) -> Option<Input> {
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
        Input::RowRead { call, .. } => Input::RowRead {
            call: *call,
            result: Err(gone(Operation::ReadRow)),
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

/// One call to the table.
#[derive(Clone, Debug)]
pub(super) enum TableCall {
    Initialize(InitializeRequest),
    Read(ReadRequest),
    ReadRow(SiloAddress),
    Commit(CommitRequest),
    Heartbeat(HeartbeatWrite),
}

impl TableCall {
    pub(super) fn operation(&self) -> Operation {
        match self {
            Self::Initialize(_) => Operation::Initialize,
            Self::Read(_) => Operation::Read,
            Self::ReadRow(_) => Operation::ReadRow,
            Self::Commit(_) => Operation::Commit,
            Self::Heartbeat(_) => Operation::UpdateIAmAlive,
        }
    }

    /// The input that reports to a process that this call failed.
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
            Self::ReadRow(_) => Input::RowRead {
                call,
                result: Err(error),
            },
            Self::Commit(_) => Input::Committed {
                call,
                result: Err(error),
            },
            Self::Heartbeat(_) => Input::HeartbeatWritten {
                call,
                result: Err(error),
            },
        }
    }

    /// How many rows the table touches for this call: the version row, each row that it reads or
    /// writes, and each heartbeat.
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
            ) => 1 + snapshot.rows.len() + heartbeats_in(heartbeats.as_ref()),
            (
                _,
                Input::Read {
                    result: Ok(ReadAnswer::Unchanged { heartbeats }),
                    ..
                },
            ) => 1 + heartbeats_in(heartbeats.as_ref()),
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
            // The version row, the row, and its heartbeat.
            (Self::ReadRow(_), _) => 3,
            _ => 1,
        }
    }

    /// The input for a caller that times out and cannot know whether the store executed the call.
    pub(super) fn timed_out(&self, call: CallId) -> Input {
        let kind = if matches!(self, Self::Commit(_)) {
            TableErrorKind::OutcomeUnknown
        } else {
            TableErrorKind::Unavailable
        };
        self.failed(call, kind, TIMED_OUT)
    }
}

/// The number of heartbeats of silos in the answer to a read.
pub(super) fn heartbeats_in(heartbeats: Option<&Heartbeats>) -> usize {
    heartbeats.map_or(0, |all| all.silos.len())
}
