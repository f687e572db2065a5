//! Turns suspicions into votes. It takes suspicions fresh from the prober, has a roll call about
//! them, and holds back each vote that a rule forbids.

use std::collections::{BTreeMap, BTreeSet};

use super::context::Ctx;
use super::message::Finding;
use super::prober::{Prober, Suspect};
use super::roll_call::{RollCall, Verdict, expiry, few_vote};
use super::standoff::Expiry;
use super::stuck::Joining;
use crate::hooks::Calls;
use crate::intent::{Action, Call, FEW, Intent, needed_after_challenge};
use crate::{IntentId, MonoTime, SiloAddress, SiloStatus, Suspicion, SuspicionReason};

#[derive(Debug, Default)]
pub(crate) struct Voter {
    /// What the last roll call found of each suspect that may be voted out.
    verdicts: BTreeMap<SiloAddress, Verdict>,
    /// When a vote of this silo against each silo was last written.
    voted: BTreeMap<SiloAddress, MonoTime>,
    /// Challenges of the last roll calls, and when each ended.
    challenges: BTreeMap<SiloAddress, (MonoTime, Vec<Suspicion>)>,
    /// Since when this silo sees each silo Joining.
    joining: Joining,
}

/// The inputs of the voter.
pub(crate) struct VoterInput<'a> {
    pub(crate) stale: &'a BTreeSet<SiloAddress>,
    /// Challenged silos that have written no heartbeat since.
    pub(crate) challenged: &'a BTreeSet<SiloAddress>,
    /// All probed silos are silent: only stale silos may be accused.
    pub(crate) deaf: bool,
    pub(crate) score: u8,
    pub(crate) local: u8,
    /// No majority answered the last roll call.
    pub(crate) outnumbered: bool,
}

impl VoterInput<'_> {
    /// Whether the silo does not write heartbeats.
    fn is_expired(&self, silo: &SiloAddress) -> bool {
        self.expiry(silo) > Expiry::No
    }

    fn expiry(&self, silo: &SiloAddress) -> Expiry {
        expiry(self.stale, self.challenged, silo)
    }
}

/// Whom to ask about in a roll call.
#[derive(Debug, Default)]
pub(crate) struct ToAsk {
    /// The suspects, each with when it fell silent and whether it is stuck.
    pub(crate) suspects: BTreeMap<SiloAddress, (MonoTime, bool)>,
    /// Others that have missed a probe.
    pub(crate) named: Vec<SiloAddress>,
}

impl Voter {
    /// Discards all earlier observations.
    pub(crate) fn reset(&mut self, now: MonoTime) {
        self.verdicts.clear();
        self.challenges.clear();
        self.joining.reset(now);
    }

    pub(crate) fn on_view(&mut self, ctx: &Ctx) {
        self.joining.follow(&ctx.members.joining, ctx.mono());
        let alive = |s: &SiloAddress| ctx.members.alive.binary_search(s).is_ok();
        self.verdicts.retain(|s, _| alive(s));
        self.challenges.retain(|s, _| alive(s));
        self.voted.retain(|s, _| alive(s));
    }

    pub(crate) fn on_verdicts(&mut self, verdicts: Vec<Verdict>) {
        for verdict in verdicts {
            self.verdicts.insert(verdict.silo, verdict);
        }
    }

    /// Suspects of a call that reached no majority.
    pub(crate) fn on_challenges(
        &mut self,
        now: MonoTime,
        challenges: Vec<(SiloAddress, Vec<Suspicion>)>,
    ) {
        for (silo, votes) in challenges {
            self.challenges.insert(silo, (now, votes));
        }
    }

    /// A silo answered: what was found of it no longer holds.
    pub(crate) fn on_sign_of_life(&mut self, silo: &SiloAddress) {
        self.challenges.remove(silo);
        if self.verdicts.get(silo).is_some_and(Verdict::is_of_silence) {
            self.verdicts.remove(silo);
        }
    }

    /// A silo answers a call that may have ended: whom it has reached since, it does not help to end.
    pub(crate) fn on_answer(
        &mut self,
        by: &SiloAddress,
        of: u64,
        found: &[(SiloAddress, Finding)],
    ) {
        for (silo, finding) in found {
            if *finding == Finding::Reached
                && let Some(verdict) = self.verdicts.get_mut(silo)
                && verdict.of == of
                && verdict.is_of_silence()
            {
                verdict.is_reached_by(by);
            }
        }
    }

    /// Records that a vote of this silo was written.
    pub(crate) fn landed(&mut self, ctx: &Ctx, silo: SiloAddress) {
        self.voted.insert(silo, ctx.mono());
    }

    /// Whether this silo may accuse others at all. An announced view is confirmed first: majorities
    /// are counted in what the table says.
    fn may_accuse(ctx: &Ctx) -> bool {
        ctx.is_active() && !ctx.suspended && !ctx.table_doubted() && !ctx.is_announced()
    }

    /// Whether this silo may accuse this one: with a local reason to doubt itself, or if it hears
    /// nobody, only stale silos.
    fn may_judge(input: &VoterInput<'_>, silo: &SiloAddress) -> bool {
        (input.local == 0 && !input.deaf) || input.is_expired(silo)
    }

    /// Silos that have been Joining for too long.
    fn stuck(&self, ctx: &Ctx) -> impl Iterator<Item = SiloAddress> {
        let (now, limit, me) = (ctx.mono(), ctx.settings().max_join_attempt_time, ctx.me);
        let stuck = self.joining.for_long(now, limit);
        stuck.filter(move |silo| *silo != me)
    }

    /// All silos that this silo suspects now, and may ask about. A silo that hears nobody asks as
    /// well: it may be the only one left.
    fn suspects(ctx: &Ctx, prober: &Prober, input: &VoterInput<'_>) -> Vec<Suspect> {
        if !Self::may_accuse(ctx) {
            return Vec::new();
        }
        let recovered = ctx.table.recovered_at;
        let mut all = prober.suspects(ctx, input.score);
        all.retain(|s| {
            // Nothing that was found before the table recovered counts.
            recovered.is_none_or(|t| s.failed_at >= t)
                && (input.local == 0 || input.is_expired(&s.silo))
                && ctx.members.alive.binary_search(&s.silo).is_ok()
        });
        all
    }

    /// The suspects to ask about now; empty when no call is due. Holds back suspicions of silos that show signs of life.
    pub(crate) fn to_ask(
        &self,
        ctx: &mut Ctx,
        prober: &mut Prober,
        roll_call: &mut RollCall,
        input: &VoterInput<'_>,
    ) -> ToAsk {
        let none = ToAsk::default();
        roll_call.held.follow_losses(ctx);
        // While the table fails nobody can be declared dead, and nobody is asked.
        let away = ctx.table.failing_since.is_some();
        if roll_call.is_running() || away || !Self::may_accuse(ctx) {
            return none;
        }
        let suspects = Self::suspects(ctx, prober, input);
        for suspect in suspects.iter().filter(|s| s.evidence_of_life) {
            prober.suppressed(&suspect.silo);
        }
        let silent = suspects.iter().filter(|s| !s.evidence_of_life);
        let mut all: BTreeMap<SiloAddress, (MonoTime, bool)> = silent
            .map(|s| {
                let since = prober.unanswered_since(&s.silo).unwrap_or(s.failed_at);
                (s.silo, (since, false))
            })
            .collect();
        let joins = |s: &SiloAddress| !input.stale.contains(s);
        let few = ctx.members.active.len() <= FEW && !ctx.members.joining.iter().any(joins);
        // There is no majority to ask for, so they are asked about once, to be challenged.
        all.retain(|s, _| !few || input.is_expired(s) || !ctx.is_challenged(s));
        if input.local == 0 && !input.deaf {
            for silo in self.stuck(ctx) {
                all.entry(silo).or_insert((ctx.mono(), true));
            }
        }
        if all.is_empty() {
            roll_call.has_suspects(ctx, 0);
            if prober.missed().next().is_none() {
                roll_call.standoff.settle(ctx);
            }
            return none;
        }
        let now = ctx.mono();
        let window = ctx.failure_window();
        let recent = |at: &MonoTime| now.since(*at) < window;
        let done = |s: &SiloAddress| {
            self.voted.get(s).is_some_and(recent)
                || self.verdicts.get(s).is_some_and(|v| recent(&v.at))
        };
        roll_call.has_suspects(ctx, all.keys().filter(|s| !done(s)).count());
        let due = |s: &SiloAddress| {
            let is_due = roll_call.is_due(ctx, s, input.expiry(s));
            !done(s) && (is_due || (lacks_own_vote(ctx, input, s) && roll_call.is_free(ctx, s)))
        };
        if !all.keys().any(due) {
            if !all.keys().all(done) {
                roll_call.wake(ctx);
            }
            roll_call.standoff.check(ctx);
            return none;
        }
        // Whoever has missed one probe is looked at as well: silos that died together leave
        // together.
        let mut named = Vec::new();
        if input.local == 0 && !input.deaf && !few {
            named.extend(prober.missed().filter(|s| !all.contains_key(s)));
        }
        // So is whoever writes no heartbeats: the next call may have to wait.
        if !few {
            let expired = input.challenged.iter().chain(input.stale);
            named.extend(expired.filter(|s| !all.contains_key(s)));
        }
        ToAsk {
            suspects: all,
            named,
        }
    }

    /// The votes to write now.
    pub(crate) fn intents(
        &mut self,
        ctx: &mut Ctx,
        prober: &Prober,
        input: &VoterInput<'_>,
    ) -> Vec<Intent> {
        let joins = ctx.status == SiloStatus::Joining && !self.challenges.is_empty();
        if !joins && !Self::may_accuse(ctx) {
            return Vec::new();
        }
        let now = ctx.mono();
        let window = ctx.failure_window();
        if ctx.variant.calls == Calls::Nobody {
            return self.without_a_call(ctx, prober, input);
        }
        let lasts = window.max(ctx.config.probe_period);
        // The table may be busy with the call before for as long.
        let in_time = |v: &Verdict| now.since(v.at) <= if v.offered { lasts } else { lasts * 2 };
        let due: Vec<Verdict> = self
            .verdicts
            .values()
            .filter(|v| {
                let voted = |at: &MonoTime| now.since(*at) < window;
                in_time(v)
                    && ctx.table.recovered_at.is_none_or(|t| v.at >= t)
                    && Self::may_judge(input, &v.silo)
                    && !self.voted.get(&v.silo).is_some_and(voted)
            })
            .cloned()
            .collect();
        for verdict in self.verdicts.values_mut() {
            verdict.offered = true;
        }
        // Where heartbeats are rare, nobody becomes stale without it: it waits until it can be written.
        let patience = if ctx.has_pulse() {
            window.max(ctx.settings().death_vote_expiration / 2)
        } else {
            window
        };
        // One challenge is enough, but for a silo that leaves because of two.
        let answers_many = joins && ctx.members.active.len() <= FEW;
        let challenges = self.challenges.iter().filter(|(silo, (at, _))| {
            let written = |voted: &MonoTime| voted >= at;
            now.since(*at) <= patience
                && input.local == 0
                && (answers_many || !ctx.is_challenged(silo))
                && !self.voted.get(silo).is_some_and(written)
        });
        let challenges: Vec<(SiloAddress, Vec<Suspicion>)> = challenges
            .map(|(silo, (_, votes))| (*silo, votes.clone()))
            .collect();
        let challenges = challenges
            .into_iter()
            .map(|(suspect, votes)| Action::Suspect {
                suspect,
                votes,
                call: Some(Call::default()),
            });
        let votes = due.into_iter().map(|verdict| Action::Suspect {
            suspect: verdict.silo,
            votes: verdict.votes,
            call: Some(verdict.call),
        });
        let mut actions: Vec<Action> = votes.chain(challenges).collect();
        actions.extend(self.unjudged(ctx, prober, input));
        actions
            .into_iter()
            .map(|action| Intent::new(IntentId::new(ctx.random_id()), Some(ctx.me), action))
            .collect()
    }

    /// The challenge of a silo that this one misses, and may not judge, because its own timers are late or
    /// it is left alone. Where heartbeats are rare, that it writes none says nothing until somebody
    /// accuses it, and goes on to.
    fn unjudged(&self, ctx: &Ctx, prober: &Prober, input: &VoterInput<'_>) -> Option<Action> {
        let away = ctx.table.failing_since.is_some();
        let may_not = (input.local > 0 && !input.deaf) || input.outnumbered;
        if !may_not || away || !Self::may_accuse(ctx) || !ctx.has_pulse() {
            return None;
        }
        let (now, window) = (ctx.mono(), ctx.failure_window());
        let voted = |at: &MonoTime| now.since(*at) < window;
        let mut suspects = prober.suspects(ctx, input.score).into_iter();
        let missed = suspects.find(|s| {
            !s.evidence_of_life
                && ctx.members.alive.binary_search(&s.silo).is_ok()
                && !ctx.stays_accused(&s.silo)
                && !self.voted.get(&s.silo).is_some_and(voted)
        })?;
        Some(Action::Suspect {
            suspect: missed.silo,
            votes: vec![ctx.challenge()],
            call: Some(Call::default()),
        })
    }

    /// The votes of a silo that asks nobody.
    fn without_a_call(
        &self,
        ctx: &mut Ctx,
        prober: &Prober,
        input: &VoterInput<'_>,
    ) -> Vec<Intent> {
        let (now, window) = (ctx.mono(), ctx.failure_window());
        let mut suspects = Self::suspects(ctx, prober, input);
        suspects.retain(|s| {
            let voted = |at: &MonoTime| now.since(*at) < window;
            Self::may_judge(input, &s.silo)
                && !s.evidence_of_life
                && !self.voted.get(&s.silo).is_some_and(voted)
        });
        suspects
            .into_iter()
            .map(|s| {
                let action = Action::Suspect {
                    suspect: s.silo,
                    votes: vec![s.mine],
                    call: Some(Call::default()),
                };
                Intent::new(IntentId::new(ctx.random_id()), Some(ctx.me), action)
            })
            .collect()
    }

    /// Whether this silo suspects anybody whose heartbeat it has not seen stand still: then it reads
    /// heartbeats more often.
    pub(crate) fn waits_for_staleness(
        &self,
        ctx: &Ctx,
        prober: &Prober,
        input: &VoterInput<'_>,
    ) -> bool {
        Self::may_accuse(ctx)
            && prober
                .suspects(ctx, input.score)
                .iter()
                .any(|s| !input.is_expired(&s.silo))
    }
}

/// Whether a vote of this silo would be enough, and few others may vote. They would not consent to the vote
/// of another one if they do not feel well, which may be so for as long as many silos are out of reach; so
/// this silo does not wait for what their calls give. Invariant P14.
fn lacks_own_vote(ctx: &Ctx, input: &VoterInput<'_>, suspect: &SiloAddress) -> bool {
    if !few_vote(ctx) || ctx.members.accused.binary_search(suspect).is_err() {
        return false;
    }
    let (Some(base), Some(entry)) = (&ctx.base, ctx.confirmed_entry(suspect)) else {
        return false;
    };
    let needed = needed_after_challenge(base.snapshot(), input.stale, input.challenged) as usize;
    let fresh = |by: &SiloAddress| {
        let mut votes = entry.suspicions.iter();
        // A challenge says that there is no majority.
        let counts = |v: &Suspicion| v.reason != SuspicionReason::Challenge;
        votes.any(|v| v.accuser == *by && counts(v) && ctx.is_fresh(*suspect, v))
    };
    let others = ctx.members.active.iter().filter(|s| **s != ctx.me);
    !fresh(&ctx.me) && others.filter(|s| fresh(s)).count() + 1 >= needed
}
