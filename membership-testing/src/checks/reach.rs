//! P10: one sick accuser, or one broken path, cannot cause a death.

use std::collections::BTreeMap;

use super::votes::may_count;
use super::{Check, Fact, NewlyDead, active, changed, newly_dead};
use crate::clock::VirtualTime;
use crate::ground_truth::GroundTruth;
use membership_core::{CommitRequest, SiloAddress, Snapshot, WallTime};

/// P10: with at least 3 Active silos, a silo that all of them but at most one reach in both
/// directions, and that does not pause, is never declared dead. The check covers all the time from
/// which votes can count, which is longer where clocks are wrong. It does not judge while messages
/// are lost at random, nor a silo whose table was changed from outside: such a silo writes no
/// heartbeat until it is restarted. Nor does it judge a silo that was cut off from the table while
/// almost no other silo has the present table: a silo without heartbeats has no vote.
#[derive(Debug, Default)]
pub struct Reach {
    judged: u64,
    /// When each vote first appeared: suspect, accuser, time of the vote.
    appeared: BTreeMap<(SiloAddress, SiloAddress, WallTime), VirtualTime>,
}

impl Reach {
    fn note(&mut self, after: &Snapshot, request: &CommitRequest, truth: &GroundTruth) {
        for silo in changed(request) {
            for vote in after.rows.get(&silo).iter().flat_map(|e| &e.suspicions) {
                self.appeared
                    .entry((silo, vote.accuser, vote.at))
                    .or_insert(truth.now);
            }
        }
    }

    /// The earliest time of a possible cause of this death.
    fn memory(
        &self,
        dead: &NewlyDead<'_>,
        request: &CommitRequest,
        truth: &GroundTruth,
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
            .saturating_sub(truth.vote_lookback())
    }

    /// Whether enough other silos write heartbeats to the present table.
    fn has_voters(
        before: &Snapshot,
        silo: &SiloAddress,
        from: VirtualTime,
        truth: &GroundTruth,
    ) -> bool {
        let cut = |silo: &SiloAddress| {
            truth
                .owner(silo)
                .is_none_or(|record| record.table_cut.overlaps(from))
        };
        let votes =
            |other: &&SiloAddress| *other != silo && truth.has_original_table(other) && !cut(other);
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

    fn observe(&mut self, fact: &Fact<'_>, truth: &GroundTruth) -> Result<(), String> {
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
            .overlaps(truth.ago(truth.vote_lookback()))
            || active(before).nth(2).is_none()
        {
            return Ok(());
        }
        for dead in newly_dead(before, after, request).filter(|dead| dead.is_verdict(truth)) {
            let (silo, from) = (dead.silo(), self.memory(&dead, request, truth));
            self.judged += 1;
            if truth.rough_network.overlaps(from) || !Self::has_voters(before, &silo, from, truth) {
                continue;
            }
            let apart = active(before)
                .filter(|e| e.address != silo && !truth.connected_since(&silo, &e.address, from))
                .count();
            if apart <= 1 && truth.has_original_table(&silo) && truth.ran_since(&silo, from) {
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
