//! P1: equal versions have equal members. P2: the versions that one silo publishes increase.

use std::collections::{BTreeMap, BTreeSet};

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

/// P2: the versions that one silo publishes increase, and belong to one table. Only the withdrawal
/// of an announced view may be followed by a smaller version, the table's.
#[derive(Debug, Default)]
pub struct Rising {
    last: BTreeMap<ProcessId, (TableId, u64)>,
    withdrawn: BTreeSet<ProcessId>,
}

impl Check for Rising {
    fn invariant(&self) -> &'static str {
        "P2"
    }

    fn observe(&mut self, fact: &Fact<'_>, truth: &GroundTruth) -> Result<(), String> {
        if let Fact::Effect {
            process,
            effect: Effect::Tell(Notice::ViewWithdrawn { .. }),
        } = fact
        {
            self.withdrawn.insert(*process);
        }
        let Fact::Published { process, view } = fact else {
            return Ok(());
        };
        let withdrawn = self.withdrawn.remove(process);
        if withdrawn && !view.is_confirmed() {
            let name = truth.process_name(*process);
            return Err(format!(
                "{name} went back to a view that is not the table's"
            ));
        }
        let name = truth.process_name(*process);
        match self
            .last
            .insert(*process, (view.table_id(), view.version()))
        {
            Some((table, _)) if table != view.table_id() => {
                Err(format!("{name} published views of two tables"))
            }
            Some((_, last)) if last >= view.version() && !withdrawn => Err(format!(
                "{name} published v{} after v{last}",
                view.version()
            )),
            _ => Ok(()),
        }
    }
}
