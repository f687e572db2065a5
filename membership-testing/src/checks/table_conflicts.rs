//! T3: a conflict has a reason and no effect.

use std::collections::{BTreeMap, BTreeSet};

use super::history::{History, TableAnswer, TableRequest, table_answer, table_request};
use super::{Check, Fact};
use crate::ground_truth::{GroundTruth, ProcessId};
use membership_core::protocol::CallId;
use membership_core::{CommitId, CommitRequest, RowChange, Snapshot};

/// T3: a conflict means that the token was stale, or that a row already exists or is missing. The
/// commit has no effect, then or later. A successful commit is never reported as a conflict.
#[derive(Clone, Debug, Default)]
pub struct TableConflicts {
    history: History,
    open: BTreeMap<(ProcessId, CallId), Open>,
    changes: u64,
    /// Commits that were applied, in this history.
    landed: BTreeSet<CommitId>,
    /// Commits that met a conflict, in this history.
    refused: BTreeSet<CommitId>,
}

#[derive(Clone, Debug)]
struct Open {
    request: CommitRequest,
    /// The history in which the call was made.
    history: u64,
    /// Whether the token was already stale when the call was made.
    stale: bool,
    /// The number of table changes when the call was made: after another change the token is stale.
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
        // If the history has ended meanwhile, the answer proves nothing about the old table or the
        // present one.
        if open.history != self.history.number {
            return Ok(());
        }
        if self.landed.contains(&open.request.id) {
            return Err(format!(
                "received a conflict, but its commit created v{}",
                open.request.next_version()
            ));
        }
        let rows = self
            .history
            .current
            .as_ref()
            .is_some_and(|table| rows_refuse(&open.request, table));
        if !open.stale && open.changes == self.changes && !rows {
            return Err(format!(
                "received a conflict, but no other commit came first and the rows allow v{}",
                open.request.next_version()
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

    fn observe(&mut self, fact: &Fact<'_>, truth: &GroundTruth) -> Result<(), String> {
        self.history.observe(fact);
        match fact {
            Fact::Created(_) => {
                self.landed.clear();
                self.refused.clear();
                self.changes += 1;
            }
            Fact::Committed { request, after, .. } => {
                self.changes += 1;
                self.landed.insert(request.id);
                if self.refused.contains(&request.id) {
                    return Err(format!(
                        "a commit that met a conflict created v{} nevertheless",
                        after.version()
                    ));
                }
            }
            _ => {}
        }
        if let Some((process, call, TableRequest::Commit(request))) = table_request(fact) {
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
        if let Some((process, call, answer)) = table_answer(fact)
            && let Some(open) = self.open.remove(&(process, call))
            && matches!(answer, TableAnswer::Conflict(_))
        {
            let name = truth.process_name(process);
            return self.judge(open).map_err(|what| format!("{name} {what}"));
        }
        Ok(())
    }
}
