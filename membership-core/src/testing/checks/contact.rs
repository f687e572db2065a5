//! P9: nobody becomes Active who has not met everybody.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::{Check, Fact, active, changed};
use crate::protocol::Message;
use crate::testing::circumstances::{Circumstances, ProcessId, VirtualTime};
use crate::{SiloAddress, SiloStatus, Snapshot};

/// A row this far behind the joiner's clock may be passed over if it does not answer.
const FAR_BEHIND: Duration = Duration::from_secs(15 * 60);

/// Clocks may be set between a heartbeat, its reading, the decision and the landing of a commit; all of it takes no longer than this.
const CLOCKS_SINCE: Duration = Duration::from_secs(10 * 60);

/// P9: a silo becomes Active only after two-way contact with every Active silo that is not stale, and with those that become Active in
/// the same commit. Contact is what was really delivered: the other's answer to the joiner, and the other's own dial to it.
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
        truth: &Circumstances,
    ) -> bool {
        let apart = |a: i64, b: i64| {
            Duration::from_millis(a.abs_diff(b)) + Duration::from_secs(120) >= FAR_BEHIND
        };
        let young = self.seen.get(other).is_some_and(|t| {
            truth.now.saturating_sub(*t) < truth.shrunk(truth.config.i_am_alive_period * 3)
        });
        match (truth.owner(other), truth.owner(joiner)) {
            (Some(o), Some(j)) => {
                // It judges by what its clock and the other's showed when it read and sent.
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
        truth: &Circumstances,
    ) -> Result<(), String> {
        let Some(me) = truth.owners.get(&joiner) else {
            return Ok(());
        };
        let others = active(before).map(|e| e.address).filter(|a| {
            after
                .rows
                .get(a)
                .is_some_and(|e| e.status == SiloStatus::Active)
        });
        for other in others
            .chain(together.iter().copied())
            .filter(|o| *o != joiner)
        {
            let Some(they) = truth.owners.get(&other) else {
                continue;
            };
            if !self.must_meet(&other, &joiner, decided, truth) {
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

    fn see(&mut self, fact: &Fact<'_>, truth: &Circumstances) -> Result<(), String> {
        match fact {
            Fact::Delivered { from, to, body } => match body {
                Message::ProbeAck { .. } => {
                    self.answered.insert((*from, *to));
                }
                // It answers a request that got there, so both directions work.
                Message::DialBack { .. } => {
                    self.answered.insert((*from, *to));
                    self.dialled.insert((*from, *to));
                }
                _ => {}
            },
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
