//! P5: no silo is Dead without a cause, nor voted out without enough valid votes.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use super::{Check, Fact, NewlyDead, active, changed, newly_dead};
use crate::clock::VirtualTime;
use crate::ground_truth::{GroundTruth, ProcessId};
use membership_core::protocol::{Finding, Message, OwnChange};
use membership_core::{
    CauseOfDeath, CommitRequest, SiloAddress, SiloStatus, Snapshot, Suspicion, SuspicionReason,
    WallTime,
};

/// P5: a silo is Dead only with one of the five causes: `left` only if it wrote that itself or asked
/// the writer to, `evicted` only if an operator ordered it,
/// and `voted` only with enough distinct, fresh, consenting votes of Active accusers in that
/// commit. A vote is valid if its accuser wrote it. A vote that another silo wrote is valid only if
/// that silo had asked for it in a roll call and got the consent of the accuser, about that suspect,
/// shortly before.
/// Deaths in one commit happen one after the other: accusers do not kill each other.
#[derive(Debug, Default)]
pub struct Votes {
    appeared: BTreeMap<(SiloAddress, SiloAddress), (WallTime, VirtualTime)>,
    joining: BTreeMap<SiloAddress, VirtualTime>,
    /// The suspects about which one process asked another in its last roll calls. Questions that were
    /// held up may arrive after those of a later call.
    asked: BTreeMap<(ProcessId, ProcessId), VecDeque<Asked>>,
    /// When a consent was last delivered: caller, suspect, accuser.
    consents: BTreeMap<(SiloAddress, SiloAddress, SiloAddress), VirtualTime>,
    /// Silos that asked another one to write that they left, and whom.
    leaves: BTreeSet<(SiloAddress, SiloAddress)>,
    /// Votes in the table without the consent of their accuser.
    unfounded: BTreeSet<Vote>,
}

/// A roll call, and its suspects.
type Asked = (u64, BTreeSet<SiloAddress>);

/// How many roll calls of one process to another are remembered.
const CALLS: usize = 8;

/// A vote: suspect, accuser, time.
type Vote = (SiloAddress, SiloAddress, WallTime);

impl Votes {
    /// Records requests for votes, and consents.
    fn record_consent(
        &mut self,
        from: ProcessId,
        to: ProcessId,
        body: &Message,
        truth: &GroundTruth,
    ) {
        match body {
            Message::RollCall { call, suspects } => {
                let calls = self.asked.entry((from, to)).or_default();
                let suspects = suspects.iter().map(|(silo, _)| *silo);
                if let Some((_, asked)) = calls.iter_mut().find(|(number, _)| number == call) {
                    asked.extend(suspects);
                } else {
                    calls.push_back((*call, suspects.collect()));
                    if calls.len() > CALLS {
                        calls.pop_front();
                    }
                }
            }
            Message::RollAnswer { call, findings, .. } => {
                let silo = |process| truth.record(process).and_then(|l| l.silo);
                let calls = self.asked.get(&(to, from));
                let asked = calls.and_then(|calls| calls.iter().find(|(number, _)| number == call));
                let (Some((_, suspects)), Some(accuser), Some(caller)) =
                    (asked, silo(from), silo(to))
                else {
                    return;
                };
                for (suspect, finding) in findings {
                    if let Finding::Failed {
                        consent: Some(_), ..
                    } = finding
                        && suspects.contains(suspect)
                    {
                        self.consents.insert((caller, *suspect, accuser), truth.now);
                    }
                }
            }
            Message::Forward { changes } => {
                let silo = |process| truth.record(process).and_then(|l| l.silo);
                let leaves = changes.iter().any(|(_, c)| *c == OwnChange::Leave);
                if let (true, Some(silo), Some(writer)) = (leaves, silo(from), silo(to)) {
                    self.leaves.insert((silo, writer));
                }
            }
            _ => {}
        }
    }

    fn record_votes(
        &mut self,
        before: &Snapshot,
        after: &Snapshot,
        request: &CommitRequest,
        truth: &GroundTruth,
    ) {
        for silo in changed(request) {
            let Some(entry) = after.rows.get(&silo) else {
                continue;
            };
            self.joining.entry(silo).or_insert(truth.now);
            let known = before.rows.get(&silo).map_or(&[][..], |e| &e.suspicions);
            for vote in &entry.suspicions {
                let seen = self
                    .appeared
                    .entry((silo, vote.accuser))
                    .or_insert((vote.at, truth.now));
                if seen.0 != vote.at {
                    *seen = (vote.at, truth.now);
                }
                let this = (silo, vote.accuser, vote.at);
                let is_new = !known.contains(vote);
                let own = request.committer == Some(vote.accuser);
                let consented = vote.evidence.via == request.committer
                    && request.committer.is_some_and(|caller| {
                        self.consents
                            .get(&(caller, silo, vote.accuser))
                            .is_some_and(|t| {
                                truth.decided(request.id).saturating_sub(*t) <= lasts(truth)
                            })
                    });
                if is_new && !own && !consented {
                    self.unfounded.insert(this);
                }
            }
        }
    }

    fn fresh(
        &self,
        suspect: SiloAddress,
        vote: &Suspicion,
        request: &CommitRequest,
        truth: &GroundTruth,
    ) -> bool {
        let seen = self
            .appeared
            .get(&(suspect, vote.accuser))
            .map_or(truth.now, |(_, when)| *when);
        may_count(suspect, vote, seen, request, truth)
    }

    /// The endpoints whose votes count.
    fn counting(
        &self,
        dead: &NewlyDead<'_>,
        reason: SuspicionReason,
        may_vote: &BTreeSet<SiloAddress>,
        request: &CommitRequest,
        truth: &GroundTruth,
    ) -> BTreeSet<std::net::SocketAddr> {
        let votes = dead.after.suspicions.iter();
        votes
            .filter(|v| {
                v.reason == reason
                    && may_vote.contains(&v.accuser)
                    && !v.accuser.same_endpoint(&dead.silo())
            })
            .filter(|v| !self.unfounded.contains(&(dead.silo(), v.accuser, v.at)))
            .filter(|v| reason == SuspicionReason::Stuck || v.evidence.misses > 0)
            .filter(|v| self.fresh(dead.silo(), v, request, truth))
            .map(|v| v.accuser.endpoint())
            .collect()
    }

    fn judge(
        &self,
        before: &Snapshot,
        after: &Snapshot,
        request: &CommitRequest,
        truth: &GroundTruth,
    ) -> Result<(), String> {
        let voters: BTreeSet<SiloAddress> = active(before).map(|e| e.address).collect();
        let live = voters
            .iter()
            .filter(|silo| truth.certainly_fresh(silo, truth.decided(request.id)))
            .count();
        let configured = before.version_row.settings.num_votes_for_death_declaration as usize;
        // The only one that writes needs no second vote.
        let lost = truth.may_be_lost(before, truth.decided(request.id));
        let live = if lost { live.min(1) } else { live };
        let needed = configured.min(2).min(live.div_ceil(2)).max(1);
        let mut by_vote = Vec::new();
        for dead in newly_dead(before, after, request) {
            let (silo, name) = (dead.silo(), truth.name(&dead.silo()));
            let was = dead.before.map(|e| e.status);
            match &dead.death.cause {
                CauseOfDeath::Left
                    if request.committer != Some(silo)
                        && !request
                            .committer
                            .is_some_and(|by| self.leaves.contains(&(silo, by))) =>
                {
                    return Err(format!("{name} left, but another silo wrote that"));
                }
                CauseOfDeath::Superseded
                    if !after
                        .rows
                        .at_endpoint(silo.endpoint())
                        .any(|e| e.address > silo) =>
                {
                    return Err(format!("{name} is superseded, but has no successor"));
                }
                CauseOfDeath::Evicted { by, .. }
                    if !truth.evictions.contains(&(silo, by.clone())) =>
                {
                    return Err(format!(
                        "{name} is evicted by {by}, but no operator ordered it"
                    ));
                }
                CauseOfDeath::Left | CauseOfDeath::Superseded | CauseOfDeath::Evicted { .. } => {}
                CauseOfDeath::Stuck if was != Some(SiloStatus::Joining) => {
                    return Err(format!("{name} is declared stuck, but was {was:?}"));
                }
                CauseOfDeath::Stuck => {
                    let waited = truth
                        .now
                        .saturating_sub(self.joining.get(&silo).copied().unwrap_or(truth.now));
                    if waited < truth.shortest(before.version_row.settings.max_join_attempt_time) {
                        return Err(format!("{name} is declared stuck after only {waited:?}"));
                    }
                    by_vote.push((dead, SuspicionReason::Stuck));
                }
                CauseOfDeath::Voted => by_vote.push((dead, SuspicionReason::Silent)),
                other => return Err(format!("{name} died of an unknown cause, {other:?}")),
            }
        }
        let dying: Vec<SiloAddress> = by_vote.iter().map(|(dead, _)| dead.silo()).collect();
        let count = |i: usize, voters: &BTreeSet<SiloAddress>| {
            let (dead, reason) = &by_vote[i];
            self.counting(dead, *reason, voters, request, truth).len()
        };
        in_some_order(&dying, &voters, |i, voters| count(i, voters) >= needed).map_err(
            |(i, voters)| {
                let (name, how) = (
                    truth.name(&dying[i]),
                    if by_vote[i].1 == SuspicionReason::Stuck {
                        "declared stuck"
                    } else {
                        "voted out"
                    },
                );
                format!(
                    "{name} is {how} with {} valid votes, {needed} are needed",
                    count(i, &voters)
                )
            },
        )
    }
}

/// How long a consent can be used: until the roll call has ended, and then as long as its result
/// counts.
fn lasts(truth: &GroundTruth) -> Duration {
    let c = &truth.config;
    truth.longest(c.failure_window * 2 + c.max_probe_timeout * 2 + c.probe_period)
}

/// Whether a vote that appeared at a time could count when a commit was decided. A reader may see a
/// vote some time after it appeared, so the limit by virtual time is generous.
pub(super) fn may_count(
    suspect: SiloAddress,
    vote: &Suspicion,
    appeared: VirtualTime,
    request: &CommitRequest,
    truth: &GroundTruth,
) -> bool {
    let expiry = truth.config.death_vote_expiration;
    let decided = truth.decided(request.id);
    let clock = truth.wall(&request.committer.unwrap_or(suspect), decided);
    decided.saturating_sub(appeared)
        <= truth.longest(expiry + truth.config.table_refresh_period * 2)
        || clock.distance(vote.at) <= expiry
}

/// Whether the deaths can have happened one after the other, each with `enough` votes of the silos
/// that were still Active. If not: one death that has too few votes in every order, with the voters
/// that it has left.
///
/// Works backwards. The silo that dies last has only the votes of the survivors; for the silos that
/// die before it, it is a voter like the survivors. More voters never hurt, so any silo that can be
/// last may be last; if no silo can, there is no valid order.
pub(super) fn in_some_order(
    dying: &[SiloAddress],
    voters: &BTreeSet<SiloAddress>,
    enough: impl Fn(usize, &BTreeSet<SiloAddress>) -> bool,
) -> Result<(), (usize, BTreeSet<SiloAddress>)> {
    let mut left: Vec<usize> = (0..dying.len()).collect();
    let mut alive: BTreeSet<SiloAddress> = voters
        .iter()
        .filter(|v| !dying.contains(v))
        .copied()
        .collect();
    while let Some(first) = left.first().copied() {
        let Some(host) = left.iter().position(|i| enough(*i, &alive)) else {
            return Err((first, alive));
        };
        let last = dying[left.remove(host)];
        if voters.contains(&last) {
            alive.insert(last);
        }
    }
    Ok(())
}

impl Check for Votes {
    fn invariant(&self) -> &'static str {
        "P5"
    }

    fn observe(&mut self, fact: &Fact<'_>, truth: &GroundTruth) -> Result<(), String> {
        match fact {
            Fact::Committed {
                before,
                after,
                request,
            } => {
                self.record_votes(before, after, request, truth);
                self.judge(before, after, request, truth)
            }
            Fact::Delivered { from, to, body } => {
                self.record_consent(*from, *to, body, truth);
                Ok(())
            }
            Fact::Created(snapshot) => {
                // A silo that lagged behind has not noticed the change, and continues with the
                // votes that it saw in these rows.
                let there = |silo: &SiloAddress| snapshot.rows.get(silo);
                self.appeared.retain(|(silo, accuser), (at, _)| {
                    there(silo).is_some_and(|e| {
                        e.suspicions
                            .iter()
                            .any(|v| v.accuser == *accuser && v.at == *at)
                    })
                });
                // For them, the age of a row that was removed and restored does not start again
                // either.
                for entry in snapshot.rows.entries() {
                    self.joining.entry(entry.address).or_insert(truth.now);
                }
                Ok(())
            }
            _ => Ok(()),
        }
    }
}
