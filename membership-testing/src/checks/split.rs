//! P11: the larger side of a partition survives.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use super::{Check, Fact, active, changed, newly_dead};
use crate::clock::VirtualTime;
use crate::ground_truth::{GroundTruth, Split};
use membership_core::{MembershipEntry, SiloAddress, SiloStatus, Snapshot};

/// The longest time that a commit needs to reach the table and to be applied.
const UNDER_WAY: Duration = Duration::from_secs(30);

/// P11: after a partition of the network in which all silos reach the table, no silo of the larger
/// side is declared dead that ran all the time and still has its table
/// ([`has_original_table`](GroundTruth::has_original_table)). The larger side has more than half of
/// the Active silos, counting only those that really run. For a Joining silo it must also have more
/// than half of the Active and Joining silos, which is what votes against it need, counting only
/// rows that existed when the partition began: the other side need not know later ones.
#[derive(Debug, Default)]
pub struct LargerSide {
    judged: u64,
    /// The start of the partition that was judged last.
    last: Option<VirtualTime>,
    /// When each row appeared in this table.
    there: BTreeMap<SiloAddress, VirtualTime>,
    /// Earlier states of the table, and when each one ended.
    earlier: VecDeque<(VirtualTime, Snapshot)>,
}

impl LargerSide {
    fn note(&mut self, fact: &Fact<'_>, truth: &GroundTruth) {
        let c = &truth.config;
        let counts =
            truth.ago(truth.longest(c.max_probe_timeout * 2) + c.table_call_timeout + UNDER_WAY);
        while self
            .earlier
            .front()
            .is_some_and(|(until, _)| *until < counts)
        {
            self.earlier.pop_front();
        }
        match fact {
            Fact::Created(table) => {
                self.there = table
                    .rows
                    .entries()
                    .map(|e| (e.address, truth.now))
                    .collect()
            }
            Fact::Committed {
                before, request, ..
            } => {
                self.earlier.push_back((truth.now, (*before).clone()));
                self.there.extend(
                    changed(request)
                        .filter(|s| before.rows.get(s).is_none())
                        .map(|s| (s, truth.now)),
                );
            }
            _ => {}
        }
    }

    fn is_larger(
        &self,
        group: Option<Option<usize>>,
        joining: bool,
        table: &Snapshot,
        split: &Split,
        truth: &GroundTruth,
    ) -> bool {
        let counts = |e: &&MembershipEntry| {
            e.status == SiloStatus::Active || (joining && e.status == SiloStatus::Joining)
        };
        let known = |e: &&MembershipEntry| {
            e.status == SiloStatus::Active
                || self.there.get(&e.address).is_none_or(|t| *t <= split.since)
        };
        let here = |e: &&MembershipEntry| {
            side(&e.address, split, truth) == group && truth.ran_since(&e.address, split.since)
        };
        let all = || table.rows.entries().filter(counts);
        all().filter(known).filter(here).count() * 2 > all().count()
    }
}

/// The group of a silo's host.
fn side(silo: &SiloAddress, split: &Split, truth: &GroundTruth) -> Option<Option<usize>> {
    truth
        .owner(silo)
        .map(|record| split.group.get(&record.host).copied())
}

impl Check for LargerSide {
    fn invariant(&self) -> &'static str {
        "P11"
    }

    fn observe(&mut self, fact: &Fact<'_>, truth: &GroundTruth) -> Result<(), String> {
        self.note(fact, truth);
        let (
            Fact::Committed {
                before,
                after,
                request,
            },
            Some(split),
        ) = (fact, &truth.split)
        else {
            return Ok(());
        };
        let over = split
            .healed
            .is_some_and(|t| truth.now > t + truth.vote_lookback());
        if !split.clean
            || over
            || truth.table_down.overlaps(split.since)
            || truth
                .records
                .iter()
                .any(|l| l.table_cut.overlaps(split.since))
        {
            return Ok(());
        }
        let from = split.since.saturating_sub(truth.vote_lookback());
        for dead in newly_dead(before, after, request).filter(|dead| dead.is_verdict(truth)) {
            let silo = dead.silo();
            let larger = |group, joining| self.is_larger(group, joining, before, split, truth);
            if self.last != Some(split.since)
                && active(before).any(|e| larger(side(&e.address, split, truth), false))
            {
                self.last = Some(split.since);
                self.judged += 1;
            }
            let tables = || {
                self.earlier
                    .iter()
                    .filter(|(until, _)| *until >= split.since)
                    .map(|(_, table)| table)
            };
            let larger = |joining| {
                tables().all(|table| {
                    self.is_larger(side(&silo, split, truth), joining, table, split, truth)
                })
            };
            let joining = before
                .rows
                .get(&silo)
                .is_some_and(|e| e.status == SiloStatus::Joining);
            let healthy = truth.ran_since(&silo, from)
                && truth.has_original_table(&silo)
                && !truth.may_not_know_its_row(&silo, from);
            if healthy && larger(false) && (!joining || larger(true)) {
                return Err(format!(
                    "{} is declared dead, but is on the larger side of the partition",
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
