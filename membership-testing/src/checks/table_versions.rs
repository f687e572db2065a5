//! T1: table versions increase by one.

use std::collections::{BTreeMap, BTreeSet};

use super::history::{self, History, TableAnswer, TableRequest, table_answer, table_request};
use super::{Check, Fact};
use crate::ground_truth::{GroundTruth, ProcessId};
use membership_core::protocol::CallId;
use membership_core::{CommitId, Snapshot, TableId, VersionToken};

/// T1: within one table id the version is 0 after `initialize`, increases by exactly one per
/// commit, never decreases, and no number is used twice. The check covers the commits in the table
/// and every answer that a silo receives. After a restore or rollback, versions continue from the
/// restored one.
#[derive(Clone, Debug, Default)]
pub struct TableVersions {
    history: History,
    tables: BTreeSet<TableId>,
    numbers: BTreeMap<(TableId, u64), CommitId>,
    /// The newest version that each process received, and the number of its history.
    newest: BTreeMap<ProcessId, (u64, TableId, u64)>,
    open: BTreeMap<(ProcessId, CallId), Open>,
}

#[derive(Clone, Debug)]
struct Open {
    history: u64,
    /// The newest version that the process had received when it sent the request.
    newest: Option<(u64, TableId, u64)>,
    /// The state that its commit must create.
    creates: Option<history::State>,
}

impl TableVersions {
    fn created(&mut self, snapshot: &Snapshot) -> Result<(), String> {
        let (table, version, commit) = history::state(&snapshot.token);
        // The history of a backup may differ from the last one.
        self.numbers.clear();
        if self.tables.insert(table) && version != 0 {
            return Err(format!("a new table begins at v{version}"));
        }
        self.number(table, version, commit)?;
        // A commit that is sent again is answered from the commits that the version row records.
        snapshot
            .version_row
            .recent
            .iter()
            .try_for_each(|record| self.number(table, record.version, record.id))
    }

    fn number(&mut self, table: TableId, version: u64, commit: CommitId) -> Result<(), String> {
        match *self.numbers.entry((table, version)).or_insert(commit) {
            used if used == commit => Ok(()),
            _ => Err(format!("v{version} is used for two commits")),
        }
    }

    fn judge(
        &mut self,
        process: ProcessId,
        open: &Open,
        token: &VersionToken,
    ) -> Result<(), String> {
        let (table, version, commit) = history::state(token);
        if open.history != self.history.number {
            return Ok(());
        }
        if let Some((_, _, last)) = open
            .newest
            .filter(|(h, t, _)| *h == open.history && *t == table)
            && version < last
        {
            return Err(format!("received v{version} after v{last}"));
        }
        match self.numbers.get(&(table, version)) {
            None => {
                return Err(format!(
                    "received v{version}, which never existed in the table"
                ));
            }
            Some(id) if *id != commit => {
                return Err(format!("received v{version} of another commit"));
            }
            Some(_) => {}
        }
        self.newest.insert(process, (open.history, table, version));
        Ok(())
    }
}

impl Check for TableVersions {
    fn invariant(&self) -> &'static str {
        "T1"
    }

    fn observe(&mut self, fact: &Fact<'_>, truth: &GroundTruth) -> Result<(), String> {
        self.history.observe(fact);
        match fact {
            Fact::Created(snapshot) => return self.created(snapshot),
            Fact::Committed {
                before,
                after,
                request,
            } => {
                let (table, version, commit) = history::state(&after.token);
                if before.table_id() != table || version != before.version() + 1 {
                    return Err(format!(
                        "a commit created v{version} from v{}",
                        before.version()
                    ));
                }
                if commit != request.id {
                    return Err(format!("v{version} has the id of another commit"));
                }
                return self.number(table, version, commit);
            }
            _ => {}
        }
        if let Some((process, call, question)) = table_request(fact) {
            let creates = match question {
                TableRequest::Commit(request) => Some((
                    request.expected.table_id(),
                    request.next_version(),
                    request.id,
                )),
                TableRequest::Read(_) => None,
            };
            let open = Open {
                history: self.history.number,
                newest: self.newest.get(&process).copied(),
                creates,
            };
            self.open.insert((process, call), open);
        }
        if let Some((process, call, answer)) = table_answer(fact)
            && let Some(open) = self.open.remove(&(process, call))
        {
            let token = match answer {
                TableAnswer::Snapshot(snapshot) | TableAnswer::Conflict(Some(snapshot)) => {
                    &snapshot.token
                }
                TableAnswer::Committed(token) => token,
                _ => return Ok(()),
            };
            let name = truth.process_name(process);
            if matches!(answer, TableAnswer::Committed(_))
                && open
                    .creates
                    .is_some_and(|creates| creates != history::state(token))
            {
                return Err(format!(
                    "{name}'s commit created v{}, not the version after its base",
                    token.version()
                ));
            }
            return self
                .judge(process, &open, token)
                .map_err(|what| format!("{name} {what}"));
        }
        Ok(())
    }
}
