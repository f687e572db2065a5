//! P14: one unreachable silo does not keep others out.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::{Check, Fact, active, changed};
use crate::clock::VirtualTime;
use crate::ground_truth::GroundTruth;
use membership_core::{Config, SiloAddress, SiloStatus, Snapshot};

/// Up to this number of Active silos, the Joining ones count in majorities.
const FEW: usize = 2;

/// How often the check looks.
const PERIOD: Duration = Duration::from_secs(1);

/// P14: an Active silo that is alone in being unreachable blocks joins for at most 3 failure windows
/// and 3 heartbeat periods, and as much longer as the timeouts of two probes have grown where
/// messages were slow.
///
/// A silo is alone in being unreachable if no other Active silo, and not the joining one, reaches
/// it, and all of them reach each other; and so do the other Joining silos, if at most two are Active,
/// and those that were Joining until some moment of that time. A
/// silo that pauses again and again, so that it never runs for two failure windows and a probe period in
/// the second half of that time, is not well enough to say whom it reaches: then the unreachable one is
/// not alone. The check does not judge a joining silo while the set of Active silos changes, or while
/// anybody has trouble with the table: both delay a join, too.
#[derive(Debug, Default)]
pub struct BlockedJoins {
    table: Option<Snapshot>,
    /// The rows that are Joining, and since when.
    joining: BTreeMap<SiloAddress, VirtualTime>,
    /// When the table, the set of Active silos, or somebody else's commit last disturbed a join.
    disturbed: VirtualTime,
    next: VirtualTime,
    /// The Joining silos that are so no longer and are not Active either, and since when.
    gone: BTreeMap<SiloAddress, VirtualTime>,
    /// The pairs that were judged: who joined, and who was unreachable.
    judged: BTreeSet<(SiloAddress, SiloAddress)>,
}

impl BlockedJoins {
    /// How long a join may be blocked.
    #[must_use]
    pub fn at_most(config: &Config) -> Duration {
        config.failure_window * 3 + config.i_am_alive_period * 3
    }

    fn note(&mut self, before: &Snapshot, after: &Snapshot, by_silo: bool, now: VirtualTime) {
        let actives = |table| active(table).map(|e| e.address).collect::<Vec<_>>();
        if !by_silo || actives(before) != actives(after) {
            self.disturbed = now;
        }
        self.table = Some(after.clone());
    }

    /// The silo that alone was unreachable from `from` until now, if there is one.
    fn alone(
        &self,
        table: &Snapshot,
        joiner: &SiloAddress,
        from: VirtualTime,
        truth: &GroundTruth,
    ) -> Option<SiloAddress> {
        let now = truth.now;
        let mut others: Vec<SiloAddress> = active(table).map(|e| e.address).collect();
        let mut lost = (0..others.len()).filter(|i| !truth.reached(joiner, &others[*i], from, now));
        let (Some(one), None) = (lost.next(), lost.next()) else {
            return None;
        };
        let one = others.swap_remove(one);
        if others.is_empty() {
            return None;
        }
        let few = others.len() < FEW;
        if few {
            // Who is Joining counts then, too, and an unreachable one is a second one.
            let joining = table.rows.entries().map(|e| (e.address, e.status));
            let joining = joining.filter(|(_, status)| *status == SiloStatus::Joining);
            others.extend(joining.map(|(silo, _)| silo).filter(|s| s != joiner));
        }
        let cut = |silo: &SiloAddress| {
            truth
                .owner(silo)
                .is_none_or(|record| record.table_cut.during(from, now))
        };
        let lonely = [*joiner]
            .iter()
            .chain(&others)
            .all(|silo| truth.unreachable(silo, &one, from, now) && !cut(silo));
        others.push(*joiner);
        let together = || {
            others.iter().enumerate().all(|(i, a)| {
                others[i + 1..]
                    .iter()
                    .all(|b| truth.reached(a, b, from, now))
            })
        };
        // So was who joined until some moment of that time.
        let gone = self.gone.iter().filter(|(_, until)| few && **until > from);
        let beside = || {
            gone.clone()
                .all(|(silo, until)| others.iter().all(|a| truth.reached(a, silo, from, *until)))
        };
        (lonely && together() && beside()).then_some(one)
    }

    fn look(&mut self, truth: &GroundTruth) -> Result<(), String> {
        let now = truth.now;
        let most = truth.longest(Self::at_most(&truth.config) + truth.grown_timeout() * 2);
        self.gone.retain(|_, until| *until > truth.ago(most));
        let Some(table) = &self.table else {
            return Ok(());
        };
        for (joiner, since) in &self.joining {
            for waited in [truth.config.probe_timeout(), most] {
                let from = truth.ago(waited);
                let calm = *since <= from
                    && self.disturbed <= from
                    && !truth.lies
                    && !truth.table_down.during(from, now)
                    && !truth.rough_table.during(from, now);
                if !calm {
                    break;
                }
                let Some(alone) = self.alone(table, joiner, from, truth) else {
                    break;
                };
                let mut judges = active(table).map(|e| e.address).chain([*joiner]);
                let half = from + waited / 2;
                let well = |silo| silo == alone || truth.could_judge(&silo, half, now);
                if waited == most && !judges.all(well) {
                    break;
                }
                self.judged.insert((*joiner, alone));
                if waited == most {
                    return Err(format!(
                        "{} cannot join, because {} alone has been unreachable for {:.1}s",
                        truth.name(joiner),
                        truth.name(&alone),
                        most.as_secs_f64()
                    ));
                }
            }
        }
        Ok(())
    }
}

impl Check for BlockedJoins {
    fn invariant(&self) -> &'static str {
        "P14"
    }

    fn observe(&mut self, fact: &Fact<'_>, truth: &GroundTruth) -> Result<(), String> {
        match fact {
            Fact::Created(table) => {
                self.joining = table
                    .rows
                    .entries()
                    .filter(|e| e.status == SiloStatus::Joining)
                    .map(|e| (e.address, truth.now))
                    .collect();
                self.table = Some((*table).clone());
                self.disturbed = truth.now;
            }
            Fact::Committed {
                before,
                after,
                request,
            } => {
                self.note(before, after, request.committer.is_some(), truth.now);
                for silo in changed(request) {
                    let joins =
                        |e: &membership_core::MembershipEntry| e.status == SiloStatus::Joining;
                    let entry = after.rows.get(&silo);
                    if entry.is_some_and(joins) {
                        self.joining.entry(silo).or_insert(truth.now);
                    } else if self.joining.remove(&silo).is_some()
                        && entry.is_none_or(|e| e.status != SiloStatus::Active)
                    {
                        self.gone.insert(silo, truth.now);
                    }
                }
            }
            _ => {}
        }
        if self.joining.is_empty() || truth.now < self.next {
            return Ok(());
        }
        self.next = truth.now + PERIOD;
        self.look(truth)
    }

    fn judged(&self) -> u64 {
        self.judged.len() as u64
    }
}
