//! T1: how the versions of the table rise.

use std::collections::{BTreeMap, BTreeSet};

use super::history::{self, History, Question, Told, asks, told};
use super::{Check, Fact};
use crate::protocol::CallId;
use crate::testing::circumstances::{Circumstances, ProcessId};
use crate::{CommitId, Snapshot, TableId, VersionToken};

/// T1: within one table id the version is 0 after `initialize`, rises by exactly one per commit, never falls, and no number is used twice.
/// Judged both by what lands in the table and by every answer that a silo gets. A restore or rollback begins anew at its version.
#[derive(Clone, Debug, Default)]
pub struct TableVersions {
    history: History,
    tables: BTreeSet<TableId>,
    numbers: BTreeMap<(TableId, u64), CommitId>,
    /// The newest that each process was told, and in which history.
    newest: BTreeMap<ProcessId, (u64, TableId, u64)>,
    open: BTreeMap<(ProcessId, CallId), Open>,
}

#[derive(Clone, Debug)]
struct Open {
    history: u64,
    /// What the process had been told when it asked.
    newest: Option<(u64, TableId, u64)>,
    /// What its commit must make.
    makes: Option<history::State>,
}

impl TableVersions {
    fn founded(&mut self, snapshot: &Snapshot) -> Result<(), String> {
        let (table, version, commit) = history::state(&snapshot.token);
        // What a backup holds may have gone another way than what was there last.
        self.numbers.clear();
        if self.tables.insert(table) && version != 0 {
            return Err(format!("a new table begins at v{version}"));
        }
        self.number(table, version, commit)?;
        // What it remembers of itself, a commit that is sent again is told.
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
            return Err(format!("is told v{version} after v{last}"));
        }
        match self.numbers.get(&(table, version)) {
            None => return Err(format!("is told v{version}, which the table never had")),
            Some(id) if *id != commit => {
                return Err(format!("is told a v{version} of another commit"));
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

    fn see(&mut self, fact: &Fact<'_>, truth: &Circumstances) -> Result<(), String> {
        self.history.see(fact);
        match fact {
            Fact::Founded(snapshot) => return self.founded(snapshot),
            Fact::Committed {
                before,
                after,
                request,
            } => {
                let (table, version, commit) = history::state(&after.token);
                if before.table_id() != table || version != before.version() + 1 {
                    return Err(format!(
                        "a commit makes v{version} of v{}",
                        before.version()
                    ));
                }
                if commit != request.id {
                    return Err(format!("v{version} has the name of another commit"));
                }
                return self.number(table, version, commit);
            }
            _ => {}
        }
        if let Some((process, call, question)) = asks(fact) {
            let makes = match question {
                Question::Commit(request) => {
                    Some((request.expected.table_id(), request.makes(), request.id))
                }
                Question::Read(_) => None,
            };
            let open = Open {
                history: self.history.number,
                newest: self.newest.get(&process).copied(),
                makes,
            };
            self.open.insert((process, call), open);
        }
        if let Some((process, call, told)) = told(fact)
            && let Some(open) = self.open.remove(&(process, call))
        {
            let token = match told {
                Told::Snapshot(snapshot) | Told::Conflict(Some(snapshot)) => &snapshot.token,
                Told::Committed(token) => token,
                _ => return Ok(()),
            };
            let name = truth.life(process).map_or("?", |l| l.name.as_str());
            if matches!(told, Told::Committed(_))
                && open
                    .makes
                    .is_some_and(|makes| makes != history::state(token))
            {
                return Err(format!(
                    "{name}'s commit made v{}, not the one after what it was based on",
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
