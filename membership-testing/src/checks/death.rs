//! P3: Dead is final, and no address returns.

use std::collections::BTreeSet;

use super::{Check, Fact, changed};
use crate::ground_truth::GroundTruth;
use membership_core::{SiloAddress, SiloStatus, Snapshot};

/// P3: within one history, a Dead row stays Dead until it is removed, and statuses only move
/// forward. An address that was removed, or that has a successor, is never inserted again.
#[derive(Debug, Default)]
pub struct DeadIsFinal {
    gone: BTreeSet<SiloAddress>,
}

impl DeadIsFinal {
    fn compare(
        &mut self,
        before: &Snapshot,
        after: &Snapshot,
        silo: SiloAddress,
        truth: &GroundTruth,
    ) -> Result<(), String> {
        let (old, new) = (before.rows.get(&silo), after.rows.get(&silo));
        let name = truth.name(&silo);
        match (old.map(|e| e.status), new.map(|e| e.status)) {
            (Some(SiloStatus::Dead), Some(now)) if now != SiloStatus::Dead => {
                Err(format!("{name} was Dead and is {now}"))
            }
            (Some(was), Some(now)) if now < was => Err(format!("{name} was {was} and is {now}")),
            (None, Some(_)) if self.gone.contains(&silo) => {
                Err(format!("{name} ({silo}) had been removed, and is back"))
            }
            (None, Some(_))
                if before
                    .rows
                    .at_endpoint(silo.endpoint())
                    .any(|e| e.address > silo) =>
            {
                Err(format!("{name} ({silo}) came in after its successor"))
            }
            (Some(was), None) => {
                self.gone.insert(silo);
                if was == SiloStatus::Dead {
                    Ok(())
                } else {
                    Err(format!("the row of {name}, {was}, was removed"))
                }
            }
            _ => Ok(()),
        }
    }
}

impl Check for DeadIsFinal {
    fn invariant(&self) -> &'static str {
        "P3"
    }

    fn observe(&mut self, fact: &Fact<'_>, truth: &GroundTruth) -> Result<(), String> {
        match fact {
            Fact::Created(_) => self.gone.clear(),
            Fact::Committed {
                before,
                after,
                request,
            } => {
                for silo in changed(request) {
                    self.compare(before, after, silo, truth)?;
                }
            }
            _ => {}
        }
        Ok(())
    }
}
