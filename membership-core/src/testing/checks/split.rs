//! P11: the larger side of a split survives whole.

use super::{Check, Fact, active, newly_dead};
use crate::SiloAddress;
use crate::testing::circumstances::{Circumstances, VirtualTime};

/// P11: after a split of the network with the table reachable by all, nobody of the larger side is declared dead who ran all the time and has
/// its table ([`has_its_table`](Circumstances::has_its_table)). The larger side: more than half of the Active silos, counting only those of
/// it that really run.
#[derive(Debug, Default)]
pub struct LargerSide {
    judged: u64,
    /// When the split began that was judged last.
    last: Option<VirtualTime>,
}

impl Check for LargerSide {
    fn invariant(&self) -> &'static str {
        "P11"
    }

    fn see(&mut self, fact: &Fact<'_>, truth: &Circumstances) -> Result<(), String> {
        let (Fact::Committed { before, after, request }, Some(split)) = (fact, &truth.split) else { return Ok(()) };
        let over = split.healed.is_some_and(|t| truth.now > t + truth.memory_of_votes());
        if !split.clean || over || truth.table_down.touched(split.since) || truth.lives.iter().any(|l| l.table_cut.touched(split.since)) {
            return Ok(());
        }
        let from = split.since.saturating_sub(truth.memory_of_votes());
        let side = |silo: &SiloAddress| truth.owner(silo).map(|l| split.group.get(&l.place).copied());
        let is_larger = |one| {
            let here = active(before).filter(|e| side(&e.address) == one && truth.ran_since(&e.address, split.since)).count();
            here * 2 > active(before).count()
        };
        for dead in newly_dead(before, after, request).filter(|dead| dead.is_verdict(truth)) {
            let silo = dead.silo();
            if self.last != Some(split.since) && active(before).any(|e| is_larger(side(&e.address))) {
                self.last = Some(split.since);
                self.judged += 1;
            }
            if is_larger(side(&silo)) && truth.ran_since(&silo, from) && truth.has_its_table(&silo) {
                return Err(format!("{}, on the larger side of a split, is declared dead", truth.name(&silo)));
            }
        }
        Ok(())
    }

    fn judged(&self) -> u64 {
        self.judged
    }
}
