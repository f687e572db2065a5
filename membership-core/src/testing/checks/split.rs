//! P11: the larger side of a split survives whole.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use super::{Check, Fact, active, changed, newly_dead};
use crate::testing::circumstances::{Circumstances, Split, VirtualTime};
use crate::{MembershipEntry, SiloAddress, SiloStatus, Snapshot};

/// A commit may be under way for so long, to the table and within it.
const UNDER_WAY: Duration = Duration::from_secs(30);

/// P11: after a split of the network with the table reachable by all, nobody of the larger side is declared dead who ran all the time and has
/// its table ([`has_its_table`](Circumstances::has_its_table)). The larger side: more than half of the Active silos, counting only those of
/// it that really run. For a silo that is Joining it must also be more than half of the Active and Joining ones, which is what votes against
/// it take, counting only rows that were there when the split began: of later ones the other side need not know.
#[derive(Debug, Default)]
pub struct LargerSide {
    judged: u64,
    /// When the split began that was judged last.
    last: Option<VirtualTime>,
    /// Since when rows are in this table.
    there: BTreeMap<SiloAddress, VirtualTime>,
    /// Earlier tables, and until when they were the table.
    earlier: VecDeque<(VirtualTime, Snapshot)>,
}

impl LargerSide {
    fn note(&mut self, fact: &Fact<'_>, truth: &Circumstances) {
        let c = &truth.config;
        let counts =
            truth.ago(truth.stretched(c.max_probe_timeout * 2) + c.table_call_timeout + UNDER_WAY);
        while self
            .earlier
            .front()
            .is_some_and(|(until, _)| *until < counts)
        {
            self.earlier.pop_front();
        }
        match fact {
            Fact::Founded(table) => {
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
        truth: &Circumstances,
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

/// The group of a silo's machine.
fn side(silo: &SiloAddress, split: &Split, truth: &Circumstances) -> Option<Option<usize>> {
    truth
        .owner(silo)
        .map(|life| split.group.get(&life.place).copied())
}

impl Check for LargerSide {
    fn invariant(&self) -> &'static str {
        "P11"
    }

    fn see(&mut self, fact: &Fact<'_>, truth: &Circumstances) -> Result<(), String> {
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
            .is_some_and(|t| truth.now > t + truth.memory_of_votes());
        if !split.clean
            || over
            || truth.table_down.touched(split.since)
            || truth.lives.iter().any(|l| l.table_cut.touched(split.since))
        {
            return Ok(());
        }
        let from = split.since.saturating_sub(truth.memory_of_votes());
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
                && truth.has_its_table(&silo)
                && !truth.may_not_know_its_row(&silo, from);
            if healthy && larger(false) && (!joining || larger(true)) {
                return Err(format!(
                    "{}, on the larger side of a split, is declared dead",
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
