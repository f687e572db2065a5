//! What the table really went through, as the checkers of the table contract know it.

use std::collections::BTreeMap;

use super::Fact;
use crate::protocol::{CallId, Effect, Input};
use crate::testing::circumstances::ProcessId;
use crate::{CommitId, CommitOutcome, CommitRequest, ReadAnswer, Snapshot, TableId, VersionToken};

/// One state of the table.
pub(super) type State = (TableId, u64, CommitId);

pub(super) fn state(token: &VersionToken) -> State {
    (token.table_id(), token.version(), token.commit())
}

/// Every state that the table ever had with the one before it, and the present one. A wipe, a restore or a rollback ends one history and
/// begins another.
#[derive(Clone, Debug, Default)]
pub(super) struct History {
    /// How many histories ended.
    pub number: u64,
    pub current: Option<Snapshot>,
    before: BTreeMap<State, State>,
}

impl History {
    pub(super) fn see(&mut self, fact: &Fact<'_>) {
        match fact {
            Fact::Founded(snapshot) => {
                self.number += 1;
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

    /// Whether the table was ever changed from outside.
    pub(super) fn changed(&self) -> bool {
        self.number > 1
    }

    /// Whether the table went from one state to another (or stayed there) by commits alone.
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

/// A question to the table.
#[derive(Clone, Copy, Debug)]
pub(super) enum Question<'a> {
    Read(Option<&'a VersionToken>),
    Commit(&'a CommitRequest),
}

/// The call, where a fact is that a process asks the table for something.
pub(super) fn asks<'a>(fact: &Fact<'a>) -> Option<(ProcessId, CallId, Question<'a>)> {
    let Fact::Wants { process, effect } = fact else {
        return None;
    };
    match effect {
        Effect::Read { call, request } => {
            Some((*process, *call, Question::Read(request.known.as_ref())))
        }
        Effect::Commit { call, request } => Some((*process, *call, Question::Commit(request))),
        _ => None,
    }
}

/// What a process takes as the answer of the table.
#[derive(Clone, Copy, Debug)]
pub(super) enum Told<'a> {
    /// The table as it is.
    Snapshot(&'a Snapshot),
    /// It is as it was.
    Unchanged,
    /// The commit landed, and made this.
    Committed(&'a VersionToken),
    /// It did not, and here may be the table as it is.
    Conflict(Option<&'a Snapshot>),
    /// Nothing that can be checked.
    Failed,
}

/// The answer, where a fact is that a process takes one.
pub(super) fn told<'a>(fact: &Fact<'a>) -> Option<(ProcessId, CallId, Told<'a>)> {
    let Fact::Takes { process, input } = fact else {
        return None;
    };
    let (call, told) = match input {
        Input::Read { call, result } => match result {
            Ok(ReadAnswer::Snapshot { snapshot, .. }) => (*call, Told::Snapshot(snapshot)),
            Ok(ReadAnswer::Unchanged { .. }) => (*call, Told::Unchanged),
            Err(_) => (*call, Told::Failed),
        },
        Input::Committed { call, result } => match result {
            Ok(CommitOutcome::Committed(token)) => (*call, Told::Committed(token)),
            Ok(CommitOutcome::Conflict(conflict)) => {
                (*call, Told::Conflict(conflict.snapshot.as_ref()))
            }
            Err(_) => (*call, Told::Failed),
        },
        _ => return None,
    };
    Some((*process, call, told))
}
