//! P10: one sick accuser, or one broken path, cannot cause a death.

use super::{Check, Fact, active, newly_dead};
use crate::ground_truth::GroundTruth;

/// P10: with at least 3 Active silos, a silo that all of them but at most one reach in both
/// directions, and that does not pause for longer than a failure window, is never declared dead.
/// Any number of shorter pauses is no excuse, nor is a table that it cannot reach.
///
/// Two exemptions are necessary:
///
/// * Only Active silos that are certainly not stale count as the three. Majorities are of those
///   that are not stale; one of two such silos, or the only one, may decide alone. So may the only
///   one that writes heartbeats after all others were challenged.
/// * Nobody knows who reaches whom while messages are lost at random, and a silo whose table was
///   changed from outside is no member of the present one: neither counts as
///   [reached](GroundTruth::reached).
///
/// A member that lies counts as the one that does not reach the silo.
#[derive(Debug, Default)]
pub struct Reached {
    judged: u64,
}

impl Check for Reached {
    fn invariant(&self) -> &'static str {
        "P10"
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
        for dead in newly_dead(before, after, request).filter(|dead| dead.is_verdict(truth)) {
            let (silo, decided) = (dead.silo(), truth.decided(request.id));
            let from = decided.saturating_sub(truth.roll_call_lookback());
            let fresh = active(before)
                .filter(|e| truth.certainly_fresh(&e.address, decided))
                .count();
            if fresh < 3 || truth.may_be_lost(before, decided) {
                continue;
            }
            self.judged += 1;
            let apart = active(before)
                .filter(|e| e.address != silo && !truth.reached(&silo, &e.address, from, decided))
                .count()
                + usize::from(truth.lies);
            if apart <= 1 {
                return Err(format!(
                    "{} is declared dead, but all Active silos except {apart} reach it in both directions",
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
