//! P10: one sick accuser, or one broken path, kills nobody.

use super::{Check, Fact, active, newly_dead};
use crate::testing::circumstances::Circumstances;

/// P10: with at least 3 Active, a silo that all of them but at most one reach both ways, and that does not pause, is never declared dead.
/// Judged over all the time from which votes can count; not judged while messages get lost at random, nor for a silo whose table was
/// changed from outside: it knows, and writes no heartbeat until it is started anew.
#[derive(Debug, Default)]
pub struct Reach {
    judged: u64,
}

impl Check for Reach {
    fn invariant(&self) -> &'static str {
        "P10"
    }

    fn see(&mut self, fact: &Fact<'_>, truth: &Circumstances) -> Result<(), String> {
        let Fact::Committed { before, after, request } = fact else { return Ok(()) };
        let from = truth.ago(truth.memory_of_votes());
        if truth.rough_network.touched(from) || active(before).nth(2).is_none() {
            return Ok(());
        }
        for dead in newly_dead(before, after, request).filter(|dead| dead.is_verdict(truth)) {
            let silo = dead.silo();
            self.judged += 1;
            let apart = active(before).filter(|e| e.address != silo && !truth.in_touch_since(&silo, &e.address, from)).count();
            if apart <= 1 && truth.has_its_table(&silo) && truth.ran_since(&silo, from) {
                return Err(format!("{} is declared dead, though all Active silos but {apart} reach it both ways", truth.name(&silo)));
            }
        }
        Ok(())
    }

    fn judged(&self) -> u64 {
        self.judged
    }
}
