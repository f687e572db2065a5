//! P10: one sick accuser, or one broken path, kills nobody.

use std::collections::BTreeMap;

use super::votes::may_count;
use super::{Check, Fact, NewlyDead, active, changed, newly_dead};
use crate::testing::circumstances::{Circumstances, VirtualTime};
use crate::{CommitRequest, SiloAddress, Snapshot, WallTime};

/// P10: with at least 3 Active, a silo that all of them but at most one reach both ways, and that does not pause, is never declared dead.
/// Judged over all the time from which votes can count, which where clocks are wrong is longer; not judged while messages get lost at random,
/// nor for a silo whose table was changed from outside: it knows, and writes no heartbeat until it is started anew. Nor for one that was cut
/// off from the table while nearly nobody else has the table that is there: who writes no heartbeat is no voter.
#[derive(Debug, Default)]
pub struct Reach {
    judged: u64,
    /// When votes first appeared: against whom, whose, and their time.
    appeared: BTreeMap<(SiloAddress, SiloAddress, WallTime), VirtualTime>,
}

impl Reach {
    fn note(&mut self, after: &Snapshot, request: &CommitRequest, truth: &Circumstances) {
        for silo in changed(request) {
            for vote in after.rows.get(&silo).iter().flat_map(|e| &e.suspicions) {
                self.appeared
                    .entry((silo, vote.accuser, vote.at))
                    .or_insert(truth.now);
            }
        }
    }

    /// Since when something may have led to this death.
    fn memory(
        &self,
        dead: &NewlyDead<'_>,
        request: &CommitRequest,
        truth: &Circumstances,
    ) -> VirtualTime {
        let silo = dead.silo();
        let votes = dead.after.suspicions.iter();
        let appeared = votes.map(|vote| {
            (
                vote,
                self.appeared
                    .get(&(silo, vote.accuser, vote.at))
                    .copied()
                    .unwrap_or_default(),
            )
        });
        let counted = appeared
            .filter(|(vote, when)| may_count(silo, vote, *when, request, truth))
            .map(|(_, when)| when);
        counted
            .min()
            .unwrap_or(truth.now)
            .min(truth.now)
            .saturating_sub(truth.memory_of_votes())
    }

    /// Whether enough others write heartbeats to the table that is there now, so that nobody is a cluster of its own.
    fn has_voters(
        before: &Snapshot,
        silo: &SiloAddress,
        from: VirtualTime,
        truth: &Circumstances,
    ) -> bool {
        let cut = |silo: &SiloAddress| {
            truth
                .owner(silo)
                .is_none_or(|life| life.table_cut.touched(from))
        };
        let votes =
            |other: &&SiloAddress| *other != silo && truth.has_its_table(other) && !cut(other);
        !cut(silo)
            || active(before)
                .map(|e| &e.address)
                .filter(votes)
                .nth(2)
                .is_some()
    }
}

impl Check for Reach {
    fn invariant(&self) -> &'static str {
        "P10"
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
        self.note(after, request, truth);
        if truth
            .rough_network
            .touched(truth.ago(truth.memory_of_votes()))
            || active(before).nth(2).is_none()
        {
            return Ok(());
        }
        for dead in newly_dead(before, after, request).filter(|dead| dead.is_verdict(truth)) {
            let (silo, from) = (dead.silo(), self.memory(&dead, request, truth));
            self.judged += 1;
            if truth.rough_network.touched(from) || !Self::has_voters(before, &silo, from, truth) {
                continue;
            }
            let apart = active(before)
                .filter(|e| e.address != silo && !truth.in_touch_since(&silo, &e.address, from))
                .count();
            if apart <= 1 && truth.has_its_table(&silo) && truth.ran_since(&silo, from) {
                return Err(format!(
                    "{} is declared dead, though all Active silos but {apart} reach it both ways",
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
