//! P1: equal versions have equal members. P2: the versions that one silo publishes increase.

use std::collections::BTreeMap;

use super::{Check, Fact};
use crate::ground_truth::{GroundTruth, ProcessId};
use membership_core::protocol::{Effect, Notice};
use membership_core::{CommitId, Snapshot, TableId};

/// P1: within one history, equal versions have the same members with the same statuses, on all
/// silos. Every published view must equal a state that the table really had.
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

    fn observe(&mut self, fact: &Fact<'_>, truth: &GroundTruth) -> Result<(), String> {
        match fact {
            Fact::Created(snapshot)
            | Fact::Committed {
                after: snapshot, ..
            } => self.record(snapshot),
            Fact::Published { process, view } => {
                let name = truth.process_name(*process);
                match self
                    .states
                    .get(&(view.table_id(), view.version(), view.token().commit()))
                {
                    None => {
                        return Err(format!(
                            "{name} published v{}, which never existed in the table",
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

/// P2: the versions that one silo publishes increase, and belong to one table. Only the table's own
/// view may follow a higher version, which another silo announced; the silo says so next.
#[derive(Debug, Default)]
pub struct Rising {
    last: BTreeMap<ProcessId, (TableId, u64)>,
    /// Who went back, until it says so.
    went_back: BTreeMap<ProcessId, String>,
}

impl Check for Rising {
    fn invariant(&self) -> &'static str {
        "P2"
    }

    fn observe(&mut self, fact: &Fact<'_>, truth: &GroundTruth) -> Result<(), String> {
        let (process, view) = match fact {
            Fact::Effect { process, effect } => {
                let silent = self.went_back.remove(process);
                let told = matches!(effect, Effect::Tell(Notice::ViewWithdrawn { .. }));
                return silent.filter(|_| !told).map_or(Ok(()), Err);
            }
            Fact::Published { process, view } => (process, view),
            _ => return Ok(()),
        };
        let name = truth.process_name(*process);
        match self
            .last
            .insert(*process, (view.table_id(), view.version()))
        {
            Some((table, _)) if table != view.table_id() => {
                Err(format!("{name} published views of two tables"))
            }
            Some((_, last)) if last >= view.version() => {
                let back = format!("{name} published v{} after v{last}", view.version());
                if !view.is_confirmed() {
                    return Err(back);
                }
                self.went_back.insert(*process, back);
                Ok(())
            }
            _ => Ok(()),
        }
    }
}
