//! P6: an outage that affects all silos alike kills none.

use std::time::Duration;

use super::{Check, Fact, newly_dead};
use crate::ground_truth::GroundTruth;

/// How long after an outage no healthy silo may die of it.
const AFTERMATH: Duration = Duration::from_secs(300);

/// P6: no healthy silo is declared dead during, or within 5 minutes after, an outage of the table,
/// of the network, or of both, that affects all silos alike. A silo is healthy if it ran all the
/// time, and apart from such outages there was no fault of the network, of its own path to the
/// table, or of the table itself ([`has_original_table`](GroundTruth::has_original_table)), and if
/// it knows that its row is in the table.
#[derive(Debug, Default)]
pub struct Outage {
    judged: u64,
}

impl Check for Outage {
    fn invariant(&self) -> &'static str {
        "P6"
    }

    fn observe(&mut self, fact: &Fact<'_>, truth: &GroundTruth) -> Result<(), String> {
        let Fact::Committed {
            before,
            after,
            request,
        } = fact
        else {
            return Ok(());
        };
        let since = truth.ago(AFTERMATH);
        let outages = [&truth.network_down, &truth.table_down];
        let Some(began) = outages
            .iter()
            .filter(|s| s.overlaps(since))
            .filter_map(|s| s.began())
            .min()
        else {
            return Ok(());
        };
        let from = began.saturating_sub(truth.vote_lookback());
        if truth.rough_network.overlaps(from) || truth.any_block.overlaps(from) {
            return Ok(());
        }
        self.judged += 1;
        for dead in newly_dead(before, after, request).filter(|dead| dead.is_verdict(truth)) {
            let silo = dead.silo();
            let reaches_it = truth
                .owner(&silo)
                .is_some_and(|l| !l.table_cut.overlaps(from));
            let knows = !truth.may_not_know_its_row(&silo, from);
            if truth.ran_since(&silo, from)
                && truth.has_original_table(&silo)
                && reaches_it
                && knows
            {
                return Err(format!(
                    "{} was healthy, but is declared dead during or after an outage that affected all silos alike",
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
