//! P9: a silo becomes Active only after contact with all Active silos.

use std::cell::LazyCell;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::{Check, Fact, active, changed};
use crate::clock::VirtualTime;
use crate::ground_truth::{GroundTruth, ProcessId};
use membership_core::intent::check_set;
use membership_core::protocol::Message;
use membership_core::{MembershipEntry, SiloAddress, SiloStatus, Snapshot};

/// The joiner may skip a silo whose row is this far behind its clock, if the silo does not answer.
const FAR_BEHIND: Duration = Duration::from_secs(15 * 60);

/// The longest time from a heartbeat, over its reading and the decision, to the commit. Clocks may
/// be set meanwhile.
const CLOCKS_SINCE: Duration = Duration::from_secs(10 * 60);

/// P9: a silo becomes Active only after two-way contact with every Active silo that is not stale,
/// and with the silos that become Active in the same commit. Contact means delivered messages: the
/// other silo's answer to the joiner, and the other silo's own dial to it. If no Active silo wrote
/// heartbeats after they were challenged, half of the usual time makes them stale. Above
/// [`GroundTruth::full_check_limit`], the joiner's check set stands for all. A member that lies may say
/// that it has dialled the joiner: nobody else knows.
#[derive(Debug, Default)]
pub struct Contact {
    answered: BTreeSet<(ProcessId, ProcessId)>,
    dialled: BTreeSet<(ProcessId, ProcessId)>,
    seen: BTreeMap<SiloAddress, VirtualTime>,
}

impl Contact {
    fn must_meet(
        &self,
        other: &SiloAddress,
        joiner: &SiloAddress,
        decided: VirtualTime,
        truth: &GroundTruth,
    ) -> bool {
        let apart = |a: i64, b: i64| {
            Duration::from_millis(a.abs_diff(b)) + Duration::from_secs(120) >= FAR_BEHIND
        };
        let young = self
            .seen
            .get(other)
            .is_some_and(|t| truth.now.saturating_sub(*t) < truth.shortest_staleness());
        match (truth.owner(other), truth.owner(joiner)) {
            (Some(o), Some(j)) => {
                // The joiner decided by its own clock and the other's, as they were when it read
                // and when it sent.
                let from = truth.ago(CLOCKS_SINCE);
                let theirs = o.skews(from, truth.now);
                let were_apart = j
                    .skews(from, truth.now)
                    .any(|mine| theirs.clone().any(|their| apart(mine, their)));
                !were_apart && (young || truth.certainly_fresh(other, decided))
            }
            _ => false,
        }
    }

    fn judge(
        &self,
        before: &Snapshot,
        after: &Snapshot,
        joiner: SiloAddress,
        together: &[SiloAddress],
        decided: VirtualTime,
        truth: &GroundTruth,
    ) -> Result<(), String> {
        let Some(me) = truth.owners.get(&joiner) else {
            return Ok(());
        };
        let limit = truth.full_check_limit;
        let set = limit.and_then(|limit| check_set(&before.rows, &joiner, limit));
        let writes = |e: &MembershipEntry| truth.certainly_writes(&e.address, decided);
        let lost = LazyCell::new(|| !active(before).any(writes));
        let is_active = |at: &Snapshot, silo: &SiloAddress| {
            let entry = at.rows.get(silo);
            entry.is_some_and(|e| e.status == SiloStatus::Active)
        };
        let were_active: Vec<SiloAddress> = match &set {
            Some(set) => set
                .iter()
                .filter(|s| is_active(before, s))
                .copied()
                .collect(),
            None => active(before).map(|e| e.address).collect(),
        };
        let others = were_active.into_iter();
        let others = others.filter(|silo| is_active(after, silo));
        let is_checked = |silo: &SiloAddress| set.as_ref().is_none_or(|set| set.contains(silo));
        let together = together.iter().copied().filter(is_checked);
        for other in others.chain(together).filter(|o| *o != joiner) {
            let Some(they) = truth.owners.get(&other) else {
                continue;
            };
            // The Active silos that nobody heard and that wrote nothing after they were challenged.
            let gone = truth.is_challenged(&other, decided) && *lost;
            if gone || !self.must_meet(&other, &joiner, decided, truth) {
                continue;
            }
            let (heard, met) = (
                self.answered.contains(&(*they, *me)),
                self.dialled.contains(&(*they, *me)),
            );
            if !(heard && met) {
                let what = if heard {
                    "was never dialled by"
                } else {
                    "never heard from"
                };
                return Err(format!(
                    "{} became Active, but {what} {}",
                    truth.name(&joiner),
                    truth.name(&other)
                ));
            }
        }
        Ok(())
    }
}

impl Check for Contact {
    fn invariant(&self) -> &'static str {
        "P9"
    }

    fn observe(&mut self, fact: &Fact<'_>, truth: &GroundTruth) -> Result<(), String> {
        match fact {
            Fact::Delivered { from, to, body } => match body {
                Message::ProbeAck { .. } => {
                    self.answered.insert((*from, *to));
                }
                // It goes over a connection that its sender has dialled.
                Message::Meet { .. } => {
                    self.dialled.insert((*from, *to));
                }
                // It answers a request that was delivered, so both directions work.
                Message::DialBack { .. } | Message::Vouch { .. } => {
                    self.answered.insert((*from, *to));
                    self.dialled.insert((*from, *to));
                }
                _ => {}
            },
            Fact::Lied {
                from,
                to,
                body: Message::Meet { .. },
            } => {
                self.dialled.insert((*from, *to));
            }
            Fact::Committed {
                before,
                after,
                request,
            } => {
                for silo in changed(request).filter(|s| before.rows.get(s).is_none()) {
                    self.seen.insert(silo, truth.now);
                }
                let status = |s: &Snapshot, silo: &SiloAddress| s.rows.get(silo).map(|e| e.status);
                let together: Vec<SiloAddress> = changed(request)
                    .filter(|s| {
                        status(after, s) == Some(SiloStatus::Active)
                            && status(before, s) != Some(SiloStatus::Active)
                    })
                    .collect();
                for joiner in &together {
                    self.judge(
                        before,
                        after,
                        *joiner,
                        &together,
                        truth.decided(request.id),
                        truth,
                    )?;
                }
            }
            _ => {}
        }
        Ok(())
    }
}
