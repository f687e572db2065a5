//! P7: when faults end, everything is well again in bounded time.

use std::collections::BTreeSet;
use std::time::Duration;

use super::{Check, Fact};
use crate::testing::circumstances::Circumstances;
use crate::{ClusterView, Config, SiloAddress, SiloStatus};

/// P7: 3 refresh periods and 5 failure windows after the last fault, all live silos publish the same view, exactly the live silos are
/// Active, and no row that is not Dead is without a live process.
#[derive(Debug, Default)]
pub struct Recovery;

impl Recovery {
    /// How long that may take.
    #[must_use]
    pub fn within(config: &Config) -> Duration {
        config.table_refresh_period * 3 + config.failure_window() * 5
    }
}

impl Check for Recovery {
    fn invariant(&self) -> &'static str {
        "P7"
    }

    fn see(&mut self, fact: &Fact<'_>, truth: &Circumstances) -> Result<(), String> {
        let Fact::Settled { live, table } = fact else {
            return Ok(());
        };
        let name = |p| truth.life(p).map_or("?", |l| l.name.as_str());
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
            match truth.life(*process).and_then(|l| l.silo) {
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
                    "{name} is {} and has no live process",
                    entry.status
                ));
            }
            if entry.status != SiloStatus::Active {
                return Err(format!("{name} lives and is {}", entry.status));
            }
        }
        match expected.first() {
            Some(silo) => Err(format!("{} lives and is not Active", truth.name(silo))),
            None => Ok(()),
        }
    }
}
