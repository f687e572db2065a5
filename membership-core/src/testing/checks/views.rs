//! P1: same version, same members, for ever. P2: the versions one silo publishes strictly rise.

use std::collections::BTreeMap;

use super::{Check, Fact};
use crate::testing::circumstances::{Circumstances, ProcessId};
use crate::{CommitId, Snapshot, TableId};

/// P1: within one history, same version means same members with the same statuses, on all silos. Checked against the table itself:
/// every published view must be a state that the table really had.
#[derive(Debug, Default)]
pub struct SameVersionSameMembers {
    states: BTreeMap<(TableId, u64, CommitId), u128>,
}

impl SameVersionSameMembers {
    fn record(&mut self, s: &Snapshot) {
        self.states.insert(
            (s.table_id(), s.version(), s.token.commit()),
            s.rows.digest(),
        );
    }
}

impl Check for SameVersionSameMembers {
    fn invariant(&self) -> &'static str {
        "P1"
    }

    fn see(&mut self, fact: &Fact<'_>, truth: &Circumstances) -> Result<(), String> {
        match fact {
            Fact::Founded(snapshot)
            | Fact::Committed {
                after: snapshot, ..
            } => self.record(snapshot),
            Fact::Published { process, view } => {
                let name = truth.life(*process).map_or("?", |l| l.name.as_str());
                match self
                    .states
                    .get(&(view.table_id(), view.version(), view.token().commit()))
                {
                    None => {
                        return Err(format!(
                            "{name} published v{}, which the table never had",
                            view.version()
                        ));
                    }
                    Some(digest) if *digest != view.digest() => {
                        return Err(format!(
                            "{name} published v{} with other members than the table had",
                            view.version()
                        ));
                    }
                    Some(_) => {}
                }
            }
            _ => {}
        }
        Ok(())
    }
}

/// P2: versions published by one silo strictly rise, and stay with one table.
#[derive(Debug, Default)]
pub struct Rising {
    last: BTreeMap<ProcessId, (TableId, u64)>,
}

impl Check for Rising {
    fn invariant(&self) -> &'static str {
        "P2"
    }

    fn see(&mut self, fact: &Fact<'_>, truth: &Circumstances) -> Result<(), String> {
        let Fact::Published { process, view } = fact else {
            return Ok(());
        };
        let name = truth.life(*process).map_or("?", |l| l.name.as_str());
        match self
            .last
            .insert(*process, (view.table_id(), view.version()))
        {
            Some((table, _)) if table != view.table_id() => {
                Err(format!("{name} published views of two tables"))
            }
            Some((_, last)) if last >= view.version() => Err(format!(
                "{name} published v{} after v{last}",
                view.version()
            )),
            _ => Ok(()),
        }
    }
}
