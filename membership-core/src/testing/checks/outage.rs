//! P6: what strikes all alike kills nobody.

use std::time::Duration;

use super::{Check, Fact, newly_dead};
use crate::testing::circumstances::Circumstances;

/// For how long after an outage nobody healthy may die of it.
const AFTERMATH: Duration = Duration::from_secs(300);

/// P6: no healthy silo is declared dead during, or within 5 minutes after, an outage of the table, of the network, or of both, that strikes
/// all silos alike. Healthy: it ran all the time, and nothing but such outages was wrong with the network, its own way to the
/// table, or the table itself ([`has_its_table`](Circumstances::has_its_table)), of which it knows that its row is in.
#[derive(Debug, Default)]
pub struct Outage {
    judged: u64,
}

impl Check for Outage {
    fn invariant(&self) -> &'static str {
        "P6"
    }

    fn see(&mut self, fact: &Fact<'_>, truth: &Circumstances) -> Result<(), String> {
        let Fact::Committed {
            before,
            after,
            request,
        } = fact
        else {
            return Ok(());
        };
        let since = truth.ago(AFTERMATH);
        let outages = [truth.network_down, truth.table_down];
        let Some(began) = outages
            .iter()
            .filter(|s| s.touched(since))
            .filter_map(|s| s.began())
            .min()
        else {
            return Ok(());
        };
        let from = began.saturating_sub(truth.memory_of_votes());
        if truth.rough_network.touched(from) || truth.any_block.touched(from) {
            return Ok(());
        }
        self.judged += 1;
        for dead in newly_dead(before, after, request).filter(|dead| dead.is_verdict(truth)) {
            let silo = dead.silo();
            let reaches_it = truth
                .owner(&silo)
                .is_some_and(|l| !l.table_cut.touched(from));
            let knows = !truth.may_not_know_its_row(&silo, from);
            if truth.ran_since(&silo, from) && truth.has_its_table(&silo) && reaches_it && knows {
                return Err(format!(
                    "{}, healthy, is declared dead during or after an outage that struck all alike",
                    truth.name(&silo)
                ));
            }
        }
        Ok(())
    }

    fn judged(&self) -> u64 {
        self.judged
    }
}
