//! T6: reads are atomic and recent.

use std::collections::BTreeMap;

use super::history::{
    self, History, State, TableAnswer, TableRequest, table_answer, table_request,
};
use super::{Check, Fact};
use crate::ground_truth::{GroundTruth, ProcessId};
use membership_core::Snapshot;
use membership_core::protocol::CallId;

/// T6: a silo receives the table exactly as of the version that the answer carries. This table is
/// linearizable, so the answer is not older than the table at the time of the request. If the table
/// was changed from outside meanwhile, the check demands nothing.
#[derive(Clone, Debug, Default)]
pub struct TableReads {
    history: History,
    states: BTreeMap<State, u128>,
    open: BTreeMap<(ProcessId, CallId), Open>,
}

#[derive(Clone, Debug)]
struct Open {
    history: u64,
    /// The table when the silo sent the request.
    then: Option<State>,
    /// The version that the silo said it knew.
    known: Option<State>,
}

impl TableReads {
    fn atomic(&self, snapshot: &Snapshot) -> Result<(), String> {
        let at = snapshot.version();
        match self.states.get(&history::state(&snapshot.token)) {
            None => return Err(format!("read v{at}, which never existed in the table")),
            Some(digest) if *digest != snapshot.rows.digest() => {
                return Err(format!("read v{at} with rows of another version"));
            }
            Some(_) => {}
        }
        let row = &snapshot.version_row;
        if row.version != at || usize::try_from(row.row_count) != Ok(snapshot.rows.len()) {
            return Err(format!(
                "read v{at} with the version row of v{} and its {} rows",
                row.version, row.row_count
            ));
        }
        Ok(())
    }

    fn recent(&self, open: &Open, read: Option<State>) -> Result<(), String> {
        match (open.then, read) {
            (Some(then), Some(read))
                if open.history == self.history.number && !self.history.leads(then, read) =>
            {
                Err(format!(
                    "read v{}, but sent the request when the table was at v{}",
                    read.1, then.1
                ))
            }
            _ => Ok(()),
        }
    }
}

impl Check for TableReads {
    fn invariant(&self) -> &'static str {
        "T6"
    }

    fn observe(&mut self, fact: &Fact<'_>, truth: &GroundTruth) -> Result<(), String> {
        self.history.observe(fact);
        if let Fact::Created(snapshot)
        | Fact::Committed {
            after: snapshot, ..
        } = fact
        {
            self.states
                .insert(history::state(&snapshot.token), snapshot.rows.digest());
        }
        if let Some((process, call, question)) = table_request(fact) {
            let known = match question {
                TableRequest::Read(known) => known.map(history::state),
                TableRequest::Commit(_) => None,
            };
            let then = self
                .history
                .current
                .as_ref()
                .map(|now| history::state(&now.token));
            self.open.insert(
                (process, call),
                Open {
                    history: self.history.number,
                    then,
                    known,
                },
            );
        }
        if let Some((process, call, answer)) = table_answer(fact)
            && let Some(open) = self.open.remove(&(process, call))
        {
            let judged = match answer {
                TableAnswer::Snapshot(snapshot) | TableAnswer::Conflict(Some(snapshot)) => self
                    .atomic(snapshot)
                    .and_then(|()| self.recent(&open, Some(history::state(&snapshot.token)))),
                TableAnswer::Unchanged => self.recent(&open, open.known),
                _ => Ok(()),
            };
            return judged.map_err(|what| format!("{} {what}", truth.process_name(process)));
        }
        Ok(())
    }
}
