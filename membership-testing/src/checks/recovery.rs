//! P7: after the last fault, the cluster recovers in bounded time.

use std::collections::BTreeSet;
use std::time::Duration;

use super::{Check, Fact};
use crate::ground_truth::GroundTruth;
use membership_core::{ClusterView, Config, SiloAddress, SiloStatus};

/// P7: 3 refresh periods and 5 failure windows after the last fault, all running silos publish the
/// same view, exactly the running silos are Active, and every row that is not Dead has a running
/// process.
#[derive(Debug, Default)]
pub struct Recovery;

impl Recovery {
    /// How long the recovery may take.
    #[must_use]
    pub fn within(config: &Config) -> Duration {
        config.table_refresh_period * 3 + config.failure_window * 5
    }
}

impl Check for Recovery {
    fn invariant(&self) -> &'static str {
        "P7"
    }

    fn observe(&mut self, fact: &Fact<'_>, truth: &GroundTruth) -> Result<(), String> {
        let Fact::Settled { live, table } = fact else {
            return Ok(());
        };
        let name = |p| truth.process_name(p);
        let Some(table) = table else {
            return if live.is_empty() {
                Ok(())
            } else {
                Err("there is no table".to_owned())
            };
        };
        let current = ClusterView::new((*table).clone());
        let mut expected = BTreeSet::<SiloAddress>::new();
        for (process, view) in *live {
            match view {
                None => return Err(format!("{} publishes no view", name(*process))),
                Some(view) if *view != current => {
                    return Err(format!(
                        "{} is at v{}, the table at v{}",
                        name(*process),
                        view.version(),
                        current.version()
                    ));
                }
                Some(_) => {}
            }
            match truth.record(*process).and_then(|l| l.silo) {
                Some(silo) => expected.insert(silo),
                None => return Err(format!("{} has no address", name(*process))),
            };
        }
        for entry in table
            .rows
            .entries()
            .filter(|e| e.status != SiloStatus::Dead)
        {
            let name = truth.name(&entry.address);
            if !expected.remove(&entry.address) {
                return Err(format!(
                    "{name} is {} but has no running process",
                    entry.status
                ));
            }
            if entry.status != SiloStatus::Active {
                return Err(format!("{name} is running and is {}", entry.status));
            }
        }
        match expected.first() {
            Some(silo) => Err(format!("{} is running and is not Active", truth.name(silo))),
            None => Ok(()),
        }
    }
}
