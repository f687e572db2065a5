//! Puts every commit at its version, and computes the table after each version.

use std::collections::BTreeMap;
use std::fmt;

use membership_core::{
    CommitId, CommitOutcome, CommitRequest, NextStep, RowChange, Snapshot, TableError,
};

use super::super::record::{Answer, Asked, Event, History};
use crate::Clause;

/// An answer that no table can have given.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// The clause it breaks.
    pub clause: Clause,
    /// The answer, and why it is wrong.
    pub what: String,
    /// The version, if the violation is about one; see
    /// [`History::around`](crate::history::History::around).
    pub version: Option<u64>,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.clause, self.what)
    }
}
/// One commit id: everything that was sent and answered under it.
pub(super) struct Op<'a> {
    pub request: &'a CommitRequest,
    pub began: u64,
    pub committed: bool,
    pub conflict: bool,
    pub open: bool,
}

pub(super) struct Checker<'a> {
    pub history: &'a History,
    pub violations: Vec<Violation>,
    pub operations: BTreeMap<CommitId, Op<'a>>,
    /// The commit that made each version from 1 on, if it is known.
    pub chain: Vec<Option<CommitId>>,
    /// The table after each version from 0 on, if it is known.
    pub states: Vec<Option<Snapshot>>,
}

pub(super) fn index(version: u64) -> usize {
    usize::try_from(version).unwrap_or(usize::MAX)
}

impl<'a> Checker<'a> {
    pub fn broken(&mut self, clause: Clause, what: impl Into<String>) {
        self.broken_at(None, clause, what);
    }

    pub fn broken_at(
        &mut self,
        version: impl Into<Option<u64>>,
        clause: Clause,
        what: impl Into<String>,
    ) {
        if self.violations.len() < 50 {
            self.violations.push(Violation {
                clause,
                what: what.into(),
                version: version.into(),
            });
        }
    }

    /// Where the history begins in the chain. Earlier versions are not checked.
    fn first(&self) -> usize {
        index(self.history.start.version()).min(self.chain.len())
    }

    /// Collects everything about each commit id.
    pub fn gather(&mut self) {
        let history = self.history;
        for event in &history.events {
            let error: Option<&TableError> = match &event.answer {
                Answer::Commit(answer) => answer.as_ref().err(),
                Answer::Read(answer) => answer.as_ref().err(),
                Answer::Beat(answer) => answer.as_ref().err(),
            };
            if let Some(e) = error.filter(|e| e.next_step() == NextStep::GiveUp) {
                self.broken(Clause::T4, format!("an error without a cause: {e}"));
            }
            let (Asked::Commit(request), Answer::Commit(answer)) = (&event.asked, &event.answer)
            else {
                continue;
            };
            let op = self.operations.entry(request.id).or_insert(Op {
                request,
                began: event.began,
                committed: false,
                conflict: false,
                open: false,
            });
            op.began = op.began.min(event.began);
            match answer {
                Ok(CommitOutcome::Committed(token)) => {
                    op.committed = true;
                    let due = (
                        request.expected.table_id(),
                        request.next_version(),
                        request.id,
                    );
                    if (token.table_id(), token.version(), token.commit()) != due {
                        self.broken(
                            Clause::T1,
                            format!(
                                "commit {} of version {} was given {token:?}",
                                request.id,
                                request.next_version()
                            ),
                        );
                    }
                }
                Ok(CommitOutcome::Conflict(_)) => op.conflict = true,
                // An answer that this suite does not know may mean anything.
                Ok(_) => op.open = true,
                Err(e) => op.open |= e.next_step() == NextStep::FindOut,
            }
        }
    }

    /// Finds the commit that made each version.
    pub fn order(&mut self) {
        let history = self.history;
        let shown = history
            .events
            .iter()
            .filter_map(Event::shown)
            .map(|(s, _)| s.version())
            .max();
        let acknowledged = self
            .operations
            .values()
            .filter(|op| op.committed)
            .map(|op| op.request.next_version())
            .max();
        let last = shown.max(acknowledged).unwrap_or(0);
        if acknowledged > shown {
            self.broken(
                Clause::T2,
                format!(
                    "version {acknowledged:?} was acknowledged, but the table ends at {shown:?}"
                ),
            );
        }
        self.chain = vec![None; index(last)];
        let mut claims: Vec<(u64, CommitId, &str)> = Vec::new();
        claims.extend(
            self.operations
                .values()
                .filter(|op| op.committed)
                .map(|op| (op.request.next_version(), op.request.id, "acknowledged")),
        );
        for (snapshot, _) in history.events.iter().filter_map(Event::shown) {
            claims.extend(
                snapshot
                    .version_row
                    .recent
                    .iter()
                    .map(|r| (r.version, r.id, "shown")),
            );
        }
        for (version, id, how) in claims {
            let Some(slot) = index(version)
                .checked_sub(1)
                .and_then(|n| self.chain.get_mut(n))
            else {
                continue;
            };
            match *slot {
                None => *slot = Some(id),
                Some(other) if other == id => {}
                Some(other) => self.broken_at(
                    version,
                    Clause::T1,
                    format!("version {version} was made by {other}, and {id} is {how} too"),
                ),
            }
        }
        self.fill_gaps();
        for n in self.first()..self.chain.len() {
            let (version, Some(id)) = (n as u64 + 1, self.chain[n]) else {
                continue;
            };
            match self.operations.get(&id) {
                None => self.broken_at(
                    version,
                    Clause::T1,
                    format!("version {version} was made by {id}, which no client sent"),
                ),
                Some(op) if op.request.next_version() != version => {
                    let based = op.request.expected.version();
                    self.broken_at(
                        version,
                        Clause::T3,
                        format!("version {version} was made by a commit based on version {based}"),
                    );
                }
                Some(op) if op.conflict => {
                    self.broken_at(
                        version,
                        Clause::T5,
                        format!(
                            "commit {id} made version {version} and was answered with a conflict"
                        ),
                    );
                }
                Some(op) if !op.committed && !op.open => {
                    self.broken_at(
                        version,
                        Clause::T5,
                        format!("commit {id} made version {version} and was answered with certainly not applied"),
                    );
                }
                Some(_) => {}
            }
        }
    }

    /// A version that no read shows can only come from a commit of unknown outcome.
    fn fill_gaps(&mut self) {
        let mut open: BTreeMap<u64, Vec<CommitId>> = BTreeMap::new();
        for op in self
            .operations
            .values()
            .filter(|op| op.open && !op.committed && !op.conflict)
        {
            open.entry(op.request.next_version())
                .or_default()
                .push(op.request.id);
        }
        for n in self.first()..self.chain.len() {
            if self.chain[n].is_none() {
                match open.get(&(n as u64 + 1)).map(Vec::as_slice) {
                    None | Some([]) => self.broken_at(
                        n as u64 + 1,
                        Clause::T1,
                        format!("no commit made version {}", n + 1),
                    ),
                    Some([one]) => self.chain[n] = Some(*one),
                    Some(_) => {}
                }
            }
        }
    }

    /// Computes the table after each version. Returns the number of versions whose commit is not
    /// known.
    pub fn states(&mut self) -> u64 {
        let history = self.history;
        let mut seen: BTreeMap<u64, &Snapshot> = BTreeMap::new();
        for (snapshot, _) in history.events.iter().filter_map(Event::shown) {
            seen.entry(snapshot.version()).or_insert(snapshot);
        }
        let mut ambiguous = 0;
        self.states = vec![None; self.first()];
        self.states.push(Some(history.start.clone()));
        for n in self.first()..self.chain.len() {
            let version = n as u64 + 1;
            let op = self.chain[n].and_then(|id| self.operations.get(&id));
            let state = match (&self.states[n], op) {
                (Some(base), Some(op)) => {
                    let request = op.request;
                    if let Some(change) = request.changes.iter().find(|c| !fits(base, c)) {
                        let what = format!(
                            "version {version} contains {change:?}, which its base does not allow"
                        );
                        self.broken_at(version, Clause::T3, what);
                    }
                    self.states[n]
                        .as_ref()
                        .map(|base| request.apply_to(base, request.next_token(&[])))
                }
                // Continue from the state that was read there.
                _ => {
                    ambiguous += u64::from(self.chain[n].is_none());
                    seen.get(&version).map(|s| Snapshot::clone(s))
                }
            };
            self.states.push(state);
        }
        ambiguous
    }
}

pub(super) fn fits(base: &Snapshot, change: &RowChange) -> bool {
    matches!(change, RowChange::Insert(_)) != base.rows.by_key(change.key()).is_some()
}
