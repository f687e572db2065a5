//! T3: what a conflict means.

use std::collections::{BTreeMap, BTreeSet};

use super::history::{History, Question, Told, asks, told};
use super::{Check, Fact};
use crate::protocol::CallId;
use crate::testing::circumstances::{Circumstances, ProcessId};
use crate::{CommitId, CommitRequest, RowChange, Snapshot};

/// T3: a conflict means that the token was stale, or that a row is there already or is missing; it has no effect, then or later; and one's
/// own success is never called a conflict.
#[derive(Clone, Debug, Default)]
pub struct TableConflicts {
    history: History,
    open: BTreeMap<(ProcessId, CallId), Open>,
    changes: u64,
    /// Commits that landed, in this history.
    landed: BTreeSet<CommitId>,
    /// Commits that met a conflict, in this history.
    refused: BTreeSet<CommitId>,
}

#[derive(Clone, Debug)]
struct Open {
    request: CommitRequest,
    /// In which history the call was made.
    history: u64,
    /// The table was somewhere else than the token says, when the call was made.
    stale: bool,
    /// How often the table had changed by then: since then, it was somewhere else if it changed again.
    changes: u64,
}

fn rows_refuse(request: &CommitRequest, table: &Snapshot) -> bool {
    let there = |key: &str| table.rows.by_key(key).is_some();
    request.changes.iter().any(|change| match change {
        RowChange::Insert(row) => there(row.key()),
        RowChange::Update(row) => !there(row.key()),
        RowChange::Remove(key) => !there(key),
    })
}

impl TableConflicts {
    fn judge(&mut self, open: Open) -> Result<(), String> {
        // Of a table that has ended meanwhile nothing can be said, and nothing follows for the one that is there now.
        if open.history != self.history.number {
            return Ok(());
        }
        if self.landed.contains(&open.request.id) {
            return Err(format!(
                "is told of a conflict, but its commit made v{}",
                open.request.makes()
            ));
        }
        let rows = self
            .history
            .current
            .as_ref()
            .is_some_and(|table| rows_refuse(&open.request, table));
        if !open.stale && open.changes == self.changes && !rows {
            return Err(format!(
                "is told of a conflict, but nobody was before it and the rows allow v{}",
                open.request.makes()
            ));
        }
        self.refused.insert(open.request.id);
        Ok(())
    }
}

impl Check for TableConflicts {
    fn invariant(&self) -> &'static str {
        "T3"
    }

    fn see(&mut self, fact: &Fact<'_>, truth: &Circumstances) -> Result<(), String> {
        self.history.see(fact);
        match fact {
            Fact::Founded(_) => {
                self.landed.clear();
                self.refused.clear();
                self.changes += 1;
            }
            Fact::Committed { request, after, .. } => {
                self.changes += 1;
                self.landed.insert(request.id);
                if self.refused.contains(&request.id) {
                    return Err(format!(
                        "a commit that met a conflict made v{} all the same",
                        after.version()
                    ));
                }
            }
            _ => {}
        }
        if let Some((process, call, Question::Commit(request))) = asks(fact) {
            let stale = self
                .history
                .current
                .as_ref()
                .is_none_or(|now| !now.token.same_commit(&request.expected));
            self.open.insert(
                (process, call),
                Open {
                    request: request.clone(),
                    history: self.history.number,
                    stale,
                    changes: self.changes,
                },
            );
        }
        if let Some((process, call, told)) = told(fact)
            && let Some(open) = self.open.remove(&(process, call))
            && matches!(told, Told::Conflict(_))
        {
            let name = truth.life(process).map_or("?", |l| l.name.as_str());
            return self.judge(open).map_err(|what| format!("{name} {what}"));
        }
        Ok(())
    }
}
