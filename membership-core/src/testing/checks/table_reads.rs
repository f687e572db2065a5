//! T6: reads are atomic, and as recent as promised.

use std::collections::BTreeMap;

use super::history::{self, History, Question, State, Told, asks, told};
use super::{Check, Fact};
use crate::Snapshot;
use crate::protocol::CallId;
use crate::testing::circumstances::{Circumstances, ProcessId};

/// T6: what a silo is told is the table exactly as of the version it carries; and as this table is linearizable, nothing older than what
/// was there when the silo asked. Of a table that was changed from outside meanwhile nothing is demanded.
#[derive(Clone, Debug, Default)]
pub struct TableReads {
    history: History,
    states: BTreeMap<State, u128>,
    open: BTreeMap<(ProcessId, CallId), Open>,
}

#[derive(Clone, Debug)]
struct Open {
    history: u64,
    /// The table when the silo asked.
    then: Option<State>,
    /// What the silo said it knew.
    known: Option<State>,
}

impl TableReads {
    fn atomic(&self, snapshot: &Snapshot) -> Result<(), String> {
        let at = snapshot.version();
        match self.states.get(&history::state(&snapshot.token)) {
            None => return Err(format!("reads a v{at} that the table never had")),
            Some(digest) if *digest != snapshot.rows.digest() => {
                return Err(format!("reads v{at} with rows of another version"));
            }
            Some(_) => {}
        }
        let row = &snapshot.version_row;
        if row.version != at || usize::try_from(row.row_count) != Ok(snapshot.rows.len()) {
            return Err(format!(
                "reads v{at} with the version row of v{} and its {} rows",
                row.version, row.row_count
            ));
        }
        Ok(())
    }

    fn recent(&self, open: &Open, told: Option<State>) -> Result<(), String> {
        match (open.then, told) {
            (Some(then), Some(told))
                if open.history == self.history.number && !self.history.leads(then, told) =>
            {
                Err(format!(
                    "reads v{}, but asked when the table was at v{}",
                    told.1, then.1
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

    fn see(&mut self, fact: &Fact<'_>, truth: &Circumstances) -> Result<(), String> {
        self.history.see(fact);
        if let Fact::Founded(snapshot)
        | Fact::Committed {
            after: snapshot, ..
        } = fact
        {
            self.states
                .insert(history::state(&snapshot.token), snapshot.rows.digest());
        }
        if let Some((process, call, question)) = asks(fact) {
            let known = match question {
                Question::Read(known) => known.map(history::state),
                Question::Commit(_) => None,
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
        if let Some((process, call, told)) = told(fact)
            && let Some(open) = self.open.remove(&(process, call))
        {
            let judged = match told {
                Told::Snapshot(snapshot) | Told::Conflict(Some(snapshot)) => self
                    .atomic(snapshot)
                    .and_then(|()| self.recent(&open, Some(history::state(&snapshot.token)))),
                Told::Unchanged => self.recent(&open, open.known),
                _ => Ok(()),
            };
            return judged.map_err(|what| {
                format!(
                    "{} {what}",
                    truth.life(process).map_or("?", |l| l.name.as_str())
                )
            });
        }
        Ok(())
    }
}
