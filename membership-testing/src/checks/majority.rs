//! P12: nobody dies whom a majority reaches.

use std::time::Duration;

use super::{Check, Fact, NewlyDead, active, newly_dead};
use crate::clock::VirtualTime;
use crate::ground_truth::GroundTruth;
use membership_core::{CommitRequest, MembershipEntry, SiloAddress, Snapshot};

/// The number of heartbeat periods after which a challenged silo is stale, twice.
const CHALLENGED_HALF_PERIODS: u32 = 3;

/// P12: a silo that more than half of the Active silos that are not stale reach in both directions
/// (with more than two Active: or half of them, the leader among them) is never declared dead,
/// whatever the rest of the network does. An Active silo reaches itself.
///
/// Nobody knows which rows the author of the commit considers stale. A silo counts for the victim
/// only if it is certainly not stale, and against it in any case. The author may also consider the
/// victim stale, or have challenged it; then the death needs no majority, but nobody who answers
/// the author may have reached the victim. Such a death is judged if a silo that reaches the victim
/// also reached the author. A member that lies counts against the victim once.
///
/// A silence begins with the first message that the victim left unanswered, whoever sent it. So where a few
/// silos do not all reach each other, a victim that pauses may seem silent since up to a probe period
/// before its pause: those that reach it have not asked it since.
#[derive(Debug, Default)]
pub struct Majority {
    judged: u64,
}

/// How many Active silos reach a victim, and how many may count against it.
#[derive(Debug, Default)]
struct Count {
    reach: usize,
    against: usize,
    /// Whether the leader reaches it, and is certainly not stale.
    leader: bool,
    /// Whether somebody who reaches it also reached the author of its death.
    witness: bool,
}

impl Count {
    fn of(
        dead: &NewlyDead<'_>,
        before: &Snapshot,
        request: &CommitRequest,
        from: VirtualTime,
        truth: &GroundTruth,
    ) -> Self {
        let (silo, decided) = (dead.silo(), truth.decided(request.id));
        let leader = leader(before);
        let mut count = Self {
            against: usize::from(truth.lies),
            ..Self::default()
        };
        for other in active(before).map(|e| e.address) {
            let itself = other == silo;
            let reaches = if itself {
                truth.answered(&silo, from, decided)
            } else {
                truth.reached(&silo, &other, from, decided)
            };
            count.witness |= reaches
                && !itself
                && request.committer.is_some_and(|author| {
                    author == other || truth.reached(&author, &other, from, decided)
                });
            if !reaches {
                count.against += 1;
            } else if truth.certainly_fresh(&other, decided) {
                count.reach += 1;
                count.leader |= leader == Some(other);
            }
        }
        count
    }

    fn is_majority(&self, active: usize) -> bool {
        self.reach > self.against || (self.reach == self.against && self.leader && active > 2)
    }
}

/// The Active silo that became Active at the lowest version, ties by address.
fn leader(table: &Snapshot) -> Option<SiloAddress> {
    let since = |e: &&MembershipEntry| (e.active_since.unwrap_or(u64::MAX), e.address);
    active(table).min_by_key(since).map(|e| e.address)
}

impl Check for Majority {
    fn invariant(&self) -> &'static str {
        "P12"
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
            if truth.rough_network.during(from, decided) {
                continue;
            }
            let count = Count::of(&dead, before, request, from, truth);
            let challenged = truth.config.i_am_alive_period * CHALLENGED_HALF_PERIODS / 2;
            let may_be_stale = !truth.beat_without_gap(&silo, decided, challenged)
                && !truth.pulse_speaks_for(&silo, decided);
            if may_be_stale && !count.witness {
                continue;
            }
            self.judged += 1;
            let silos = active(before).count();
            let cut = count.against > usize::from(truth.lies);
            let unasked = if cut {
                truth.between_probes(silos)
            } else {
                Duration::ZERO
            };
            let ran = truth.answered_although(&silo, from, decided, unasked)
                && truth.has_original_table(&silo);
            if ran && count.is_majority(silos) {
                return Err(format!(
                    "{} is declared dead, but {} Active silos reach it in both directions, and at most {} do not{}",
                    truth.name(&silo),
                    count.reach,
                    count.against,
                    if count.leader {
                        " (the leader reaches it)"
                    } else {
                        ""
                    }
                ));
            }
        }
        Ok(())
    }

    fn judged(&self) -> u64 {
        self.judged
    }
}
