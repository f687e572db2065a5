//! Table calls under way. Each runs in a task of its own and always ends as one input of the
//! protocol.
//!
//! Only [`Calls::next`] waits for a call; it is cancel safe. Dropping [`Calls`] drops every call,
//! which the table allows (clause T14).

use std::collections::HashMap;
use std::sync::Arc;

use membership_core::protocol::{CallId, Input};
use membership_core::{
    CommitRequest, HeartbeatWrite, InitializeRequest, MembershipTable, Operation, ReadRequest,
    SiloAddress, TableError,
};
use tokio::task::{Id, JoinSet};
use tracing::{Instrument as _, Span};

use crate::TimedTable;

/// A call.
pub(super) enum Call {
    Initialize(InitializeRequest),
    Read(ReadRequest),
    ReadRow(SiloAddress),
    Commit(CommitRequest),
    Heartbeat(HeartbeatWrite),
}

impl Call {
    const fn operation(&self) -> Operation {
        match self {
            Self::Initialize(_) => Operation::Initialize,
            Self::Read(_) => Operation::Read,
            Self::ReadRow(_) => Operation::ReadRow,
            Self::Commit(_) => Operation::Commit,
            Self::Heartbeat(_) => Operation::UpdateIAmAlive,
        }
    }
}

/// The calls under way: few, because the protocol has at most one read or commit and one heartbeat
/// in flight.
pub(super) struct Calls {
    table: Arc<TimedTable>,
    running: JoinSet<Input>,
    /// The span of the join, as long as the silo joins.
    join: Span,
    names: HashMap<Id, (CallId, Operation)>,
}

impl Calls {
    pub(super) fn new(table: Arc<TimedTable>, join: Span) -> Self {
        Self {
            table,
            running: JoinSet::new(),
            join,
            names: HashMap::new(),
        }
    }

    /// What is called from now on is no part of the join.
    pub(super) fn end_join(&mut self) {
        self.join = Span::none();
    }

    /// Starts a call.
    pub(super) fn begin(&mut self, id: CallId, call: Call) {
        let operation = call.operation();
        let table = self.table.clone();
        let calling = async move {
            match call {
                Call::Initialize(request) => Input::Initialized {
                    call: id,
                    result: table.initialize(&request).await,
                },
                Call::Read(request) => Input::Read {
                    call: id,
                    result: table.read(&request).await,
                },
                Call::ReadRow(silo) => Input::RowRead {
                    call: id,
                    result: table.read_row(&silo, None).await,
                },
                Call::Commit(request) => Input::Committed {
                    call: id,
                    result: table.commit(&request).await,
                },
                Call::Heartbeat(write) => Input::HeartbeatWritten {
                    call: id,
                    result: table.update_i_am_alive(&write).await,
                },
            }
        };
        let task = self.running.spawn(calling.instrument(self.join.clone()));
        self.names.insert(task.id(), (id, operation));
    }

    /// The result of the next call that ends; waits for ever without a call. Cancel safe.
    pub(super) async fn next(&mut self) -> Input {
        loop {
            match self.running.join_next_with_id().await {
                Some(Ok((task, input))) => {
                    self.names.remove(&task);
                    return input;
                }
                Some(Err(end)) => {
                    if let Some((call, operation)) = self.names.remove(&end.id()) {
                        return self.broken(call, operation);
                    }
                }
                None => std::future::pending::<()>().await,
            }
        }
    }

    /// The result of a call that panicked or was aborted: the same as after a timeout.
    fn broken(&self, call: CallId, operation: Operation) -> Input {
        let error = TableError::new(
            crate::timed::unanswered(operation),
            operation,
            self.table.store(),
            "the provider panicked; this is a defect of the provider",
        );
        match operation {
            Operation::Initialize => Input::Initialized {
                call,
                result: Err(error),
            },
            Operation::ReadRow => Input::RowRead {
                call,
                result: Err(error),
            },
            Operation::Commit => Input::Committed {
                call,
                result: Err(error),
            },
            Operation::UpdateIAmAlive => Input::HeartbeatWritten {
                call,
                result: Err(error),
            },
            _ => Input::Read {
                call,
                result: Err(error),
            },
        }
    }
}

#[cfg(test)]
#[path = "calls_tests.rs"]
mod tests;
