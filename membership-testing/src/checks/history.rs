//! The real history of the table, for the checkers of the table contract.

use std::collections::{BTreeMap, BTreeSet};

use super::Fact;
use crate::ground_truth::ProcessId;
use membership_core::protocol::{CallId, Effect, Input};
use membership_core::{
    CommitId, CommitOutcome, CommitRequest, ReadAnswer, Snapshot, TableId, VersionToken,
};

/// One state of the table.
pub(super) type State = (TableId, u64, CommitId);

pub(super) fn state(token: &VersionToken) -> State {
    (token.table_id(), token.version(), token.commit())
}

/// Every state that the table ever had, with its predecessor, and the present one. A wipe, a
/// restore or a rollback ends one history and begins another.
#[derive(Clone, Debug, Default)]
pub(super) struct History {
    /// The number of the present history.
    pub number: u64,
    pub current: Option<Snapshot>,
    before: BTreeMap<State, State>,
    /// The first states: of the table as it was created, restored or rolled back.
    first: BTreeSet<State>,
}

impl History {
    pub(super) fn observe(&mut self, fact: &Fact<'_>) {
        match fact {
            Fact::Created(snapshot) => {
                self.number += 1;
                self.first.insert(state(&snapshot.token));
                self.current = Some((*snapshot).clone());
            }
            Fact::Committed { before, after, .. } => {
                self.before
                    .insert(state(&after.token), state(&before.token));
                self.current = Some((*after).clone());
            }
            _ => {}
        }
    }

    /// Whether the table was ever wiped, restored or rolled back.
    pub(super) fn changed(&self) -> bool {
        self.number > 1
    }

    /// Whether the table ever had this state. A member that lies announces others.
    pub(super) fn had(&self, state: State) -> bool {
        let begins_unseen = self.first.is_empty();
        begins_unseen || self.before.contains_key(&state) || self.first.contains(&state)
    }

    /// Whether commits alone lead from one state to another (or both are the same).
    pub(super) fn leads(&self, from: State, to: State) -> bool {
        let mut at = to;
        while at.1 > from.1 {
            match self.before.get(&at) {
                Some(before) => at = *before,
                None => return false,
            }
        }
        at == from
    }
}

/// A request to the table.
#[derive(Clone, Copy, Debug)]
pub(super) enum TableRequest<'a> {
    Read(Option<&'a VersionToken>),
    Commit(&'a CommitRequest),
}

/// The request in a fact, if a process sends one.
pub(super) fn table_request<'a>(fact: &Fact<'a>) -> Option<(ProcessId, CallId, TableRequest<'a>)> {
    let Fact::Effect { process, effect } = fact else {
        return None;
    };
    match effect {
        Effect::Read { call, request } => {
            Some((*process, *call, TableRequest::Read(request.known.as_ref())))
        }
        Effect::Commit { call, request } => Some((*process, *call, TableRequest::Commit(request))),
        _ => None,
    }
}

/// An answer of the table that a process receives.
#[derive(Clone, Copy, Debug)]
pub(super) enum TableAnswer<'a> {
    /// The present table.
    Snapshot(&'a Snapshot),
    /// The table has not changed.
    Unchanged,
    /// The commit was applied and created this version.
    Committed(&'a VersionToken),
    /// The commit was not applied; the present table, if the answer contains it.
    Conflict(Option<&'a Snapshot>),
    /// A failure, which proves nothing.
    Failed,
}

/// The answer in a fact, if a process receives one.
pub(super) fn table_answer<'a>(fact: &Fact<'a>) -> Option<(ProcessId, CallId, TableAnswer<'a>)> {
    let Fact::Input { process, input } = fact else {
        return None;
    };
    let (call, answer) = match input {
        Input::Read { call, result } => match result {
            Ok(ReadAnswer::Snapshot { snapshot, .. }) => (*call, TableAnswer::Snapshot(snapshot)),
            Ok(ReadAnswer::Unchanged { .. }) => (*call, TableAnswer::Unchanged),
            Err(_) => (*call, TableAnswer::Failed),
            Ok(_) => return None,
        },
        Input::Committed { call, result } => match result {
            Ok(CommitOutcome::Committed(token)) => (*call, TableAnswer::Committed(token)),
            Ok(CommitOutcome::Conflict(conflict)) => {
                (*call, TableAnswer::Conflict(conflict.snapshot.as_ref()))
            }
            Err(_) => (*call, TableAnswer::Failed),
            Ok(_) => return None,
        },
        _ => return None,
    };
    Some((*process, call, answer))
}
