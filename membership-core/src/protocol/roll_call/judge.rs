//! What a call has found of a suspect: whether it may be voted out, and with which votes.

use std::collections::BTreeSet;
use std::time::Duration;

use super::Electorate;
use super::running::Running;
use super::tally::{Failing, Tally};
use crate::hooks::Calls;
use crate::intent::{self, Call};
use crate::protocol::context::Ctx;
use crate::protocol::message::Consent;
use crate::{Evidence, MonoTime, RollCount, SiloAddress, Suspicion, SuspicionReason, WallTime};

/// How long a machine must refuse connections, until that counts for as much as a failure window of
/// silence. Those that probe it have tried twice more by then.
pub(crate) fn refusal(ctx: &Ctx) -> Duration {
    ctx.failure_window() / 4
}

/// What a call found of one suspect.
#[derive(Debug, Clone)]
pub(crate) struct Verdict {
    pub(crate) silo: SiloAddress,
    /// The votes to write: that of this silo, and those of the silos that consent.
    pub(crate) votes: Vec<Suspicion>,
    pub(crate) call: Call,
    pub(crate) at: MonoTime,
}

pub(super) enum Judgement {
    Open,
    /// It may be voted out.
    Lost,
    Kept,
}

fn count(n: usize) -> u32 {
    u32::try_from(n).unwrap_or(u32::MAX)
}

impl Running {
    /// The silos that have just failed to reach a suspect.
    fn failing<'a>(
        &'a self,
        now: MonoTime,
        tally: &'a Tally,
    ) -> impl Iterator<Item = (&'a SiloAddress, &'a Failing)> {
        let lasts = self.timeout * 2;
        let recent = move |(_, f): &(&SiloAddress, &Failing)| now.since(f.at) <= lasts;
        tally.failed.iter().filter(recent)
    }

    /// What the call has found of a suspect. Nobody is lost at the moment at which others have come
    /// back: it may be about to answer, too.
    pub(super) fn judge(
        &self,
        ctx: &Ctx,
        silo: &SiloAddress,
        tally: &Tally,
        with: &Electorate<'_>,
    ) -> Judgement {
        match self.found(ctx, silo, tally, with) {
            Judgement::Lost if ctx.mono() < self.hold => Judgement::Open,
            judgement => judgement,
        }
    }

    fn found(
        &self,
        ctx: &Ctx,
        silo: &SiloAddress,
        tally: &Tally,
        with: &Electorate<'_>,
    ) -> Judgement {
        let now = ctx.mono();
        let sample = self.sampled.then_some(self.asked.len());
        let waited = now.since(tally.added) >= self.patience();
        if ctx.variant.calls == Calls::One {
            let over = now.since(self.began) >= self.timeout * 5 / 2;
            let told = self.asked.iter().all(|s| {
                tally.failed.contains_key(s)
                    || tally.reached.contains(s)
                    || tally.unknown.contains(s)
            });
            return match (told || over, tally.reached.is_empty()) {
                (false, _) => Judgement::Open,
                (true, true) => Judgement::Lost,
                (true, false) => Judgement::Kept,
            };
        }
        if tally.stuck {
            // Whether it may be voted out is a question of time. Who asks must be on the larger
            // side.
            let there = self.here.iter().chain([&ctx.me]);
            let larger = with.majority(ctx, silo, there, true, sample);
            return match (larger, waited) {
                (true, _) => Judgement::Lost,
                (false, false) => Judgement::Open,
                (false, true) => Judgement::Kept,
            };
        }
        if !self.failing(now, tally).any(|(s, _)| *s == ctx.me) {
            // This silo's own probes have not ended, or it reaches the suspect.
            let mine = tally.reached.contains(&ctx.me) || tally.unknown.contains(&ctx.me);
            return if mine || (waited && !tally.failed.contains_key(&ctx.me)) {
                Judgement::Kept
            } else {
                Judgement::Open
            };
        }
        // What was missed before the call may have been missed while nobody reached anybody: the suspect
        // has the time of one probe to answer the call itself.
        let asked = now.since(tally.added) >= ctx.probe_timeout();
        let silent = asked && now.since(tally.silent_since()) >= ctx.failure_window();
        let failing = || self.failing(now, tally).map(|(s, _)| s);
        let unopposed = tally.reached.is_empty();
        let most = with.majority(ctx, silo, failing(), unopposed, sample);
        // Against a stale suspect, silos that are only slow for a moment are waited for.
        let patient = now.since(tally.added) >= ctx.failure_window();
        if most && (patient || !with.is_expired(silo)) {
            let refused = self.failing(now, tally).filter(|(_, f)| f.refused);
            let refused = refused.map(|(s, _)| s);
            // A firewall or a proxy that starts again refuses connections for a moment.
            let lasts = now.since(tally.added) >= refusal(ctx);
            if silent || (lasts && with.majority(ctx, silo, refused, unopposed, sample)) {
                return Judgement::Lost;
            }
        }
        if with.is_expired(silo) {
            let votes = |s: &SiloAddress| ctx.members.active.binary_search(s).is_ok();
            let votes = 1 + self
                .failing(now, tally)
                .filter(|(s, f)| **s != ctx.me && f.consent.is_some() && votes(s))
                .count();
            let needed = ctx.base.as_ref().map_or(usize::MAX, |v| {
                intent::needed_after_challenge(v.snapshot(), with.stale, with.challenged) as usize
            });
            // A silo that may be slow for a moment is waited for: until it has said something of the
            // suspect, is stale itself, or has been silent or has known nothing for a failure window.
            let told = |s: &SiloAddress| {
                tally.failed.contains_key(s)
                    || (tally.unknown.contains(s) && patient)
                    || with.is_expired(s)
                    || self.suspects.get(s).is_some_and(|other| {
                        now.since(other.silent_since()) >= ctx.failure_window()
                    })
                    || (self.here.contains(s) && !tally.unknown.contains(s) && waited)
            };
            let mute = |s: &SiloAddress| {
                // It answers probes and no calls.
                let all_along = now.since(self.began) >= ctx.failure_window();
                !self.here.contains(s) && !self.suspects.contains_key(s) && all_along
            };
            let all = self.asked.iter().all(|s| s == silo || told(s) || mute(s));
            return match (tally.reached.is_empty(), all) {
                // Its silence may only not be long enough yet.
                (false, _) if most => Judgement::Open,
                (false, _) => Judgement::Kept,
                (true, false) => Judgement::Open,
                (true, true) if self.is_cut_off(ctx, silo, with) => Judgement::Kept,
                (true, true) if votes >= needed && silent => Judgement::Lost,
                (true, true) if votes >= needed => Judgement::Open,
                (true, true) => Judgement::Kept,
            };
        }
        // What somebody said a while ago counts no longer; it has been asked again.
        if most || with.majority(ctx, silo, tally.failed.keys(), unopposed, sample) {
            return Judgement::Open;
        }
        // Could the silos that have not said anything yet make a majority?
        let hoped =
            self.asked.iter().chain([&ctx.me]).filter(|s| {
                *s != silo && !tally.reached.contains(*s) && !tally.unknown.contains(*s)
            });
        if !waited && with.majority(ctx, silo, hoped, unopposed, sample) {
            Judgement::Open
        } else {
            Judgement::Kept
        }
    }

    /// Whether most of those that may reach a suspect are out of this silo's sight, although they write
    /// heartbeats: then this silo is the one that is cut off. (Half of them, if the leader is one.)
    fn is_cut_off(&self, ctx: &Ctx, silo: &SiloAddress, with: &Electorate<'_>) -> bool {
        let live = |s: &&SiloAddress| {
            *s != silo && !with.is_expired(s) && ctx.members.active.binary_search(s).is_ok()
        };
        let away = || {
            let asked = self.asked.iter().filter(live);
            asked.filter(|s| !self.here.contains(*s))
        };
        let (gone, there) = (away().count(), self.here.iter().filter(live).count() + 1);
        let leads = |s: &SiloAddress| ctx.leader() == Some(*s);
        gone > there || (gone == there && gone + there > 2 && away().any(leads))
    }

    /// The votes with which this silo challenges a suspect that nobody reached, in a call to which no
    /// majority answered: its own, and as a Joining silo that of another one, too.
    pub(super) fn challenge(
        &self,
        ctx: &Ctx,
        silo: SiloAddress,
        tally: &Tally,
        with: &Electorate<'_>,
    ) -> Option<Vec<Suspicion>> {
        let failed = self.failing(ctx.mono(), tally).any(|(s, _)| *s == ctx.me);
        if !failed || tally.stuck || !tally.reached.is_empty() || with.is_expired(&silo) {
            return None;
        }
        let votes = if ctx.is_active() { 1 } else { 2 };
        let mut votes: Vec<Suspicion> = self
            .verdict(ctx, silo, tally, with)
            .votes
            .into_iter()
            .take(votes)
            .collect();
        for vote in &mut votes {
            vote.reason = SuspicionReason::Challenge;
        }
        Some(votes)
    }

    fn count(&self, now: MonoTime, silo: &SiloAddress, tally: &Tally) -> RollCount {
        let others = || self.asked.iter().filter(|s| *s != silo);
        RollCount {
            asked: count(others().count() + 1),
            failed: count(self.failing(now, tally).count()),
            reached: count(tally.reached.len()),
            silent: count(others().filter(|s| !self.here.contains(s)).count()),
        }
    }

    /// The counts of a suspect that this silo has just failed to reach, and others reached.
    pub(super) fn reached_by_others(
        &self,
        ctx: &Ctx,
        silo: &SiloAddress,
        tally: &Tally,
    ) -> Option<RollCount> {
        let now = ctx.mono();
        let failed = self.failing(now, tally).any(|(s, _)| *s == ctx.me);
        (failed && !tally.stuck && !tally.reached.is_empty()).then(|| self.count(now, silo, tally))
    }

    pub(super) fn verdict(
        &self,
        ctx: &Ctx,
        silo: SiloAddress,
        tally: &Tally,
        with: &Electorate<'_>,
    ) -> Verdict {
        let now = ctx.mono();
        let failed: BTreeSet<SiloAddress> = self.failing(now, tally).map(|(s, _)| *s).collect();
        let counted = self.count(now, &silo, tally);
        let reason = if tally.stuck {
            SuspicionReason::Stuck
        } else {
            SuspicionReason::Silent
        };
        let is_stale = with.is_expired(&silo);
        let vote =
            |accuser: SiloAddress, consent: Consent, health: u8, via: Option<SiloAddress>| {
                Suspicion {
                    accuser,
                    // This silo sets the time, because the accuser's clock may be wrong.
                    at: ctx.now.wall,
                    reason,
                    evidence: Evidence {
                        misses: consent.misses,
                        timeout_ms: consent.timeout_ms,
                        last_answer: consent.last_answer_ms.map(WallTime::from_millis),
                        via,
                        accuser_health: health,
                        stale: is_stale,
                        roll_call: Some(counted),
                    },
                    extra: crate::Extra::default(),
                }
            };
        let own = tally.failed.get(&ctx.me).and_then(|f| f.consent);
        let timeout_ms = u64::try_from(self.timeout.as_millis()).unwrap_or(u64::MAX);
        let own = own.unwrap_or(Consent {
            misses: if tally.stuck { 0 } else { 2 },
            timeout_ms,
            last_answer_ms: None,
        });
        let votes_too = |s: &SiloAddress| ctx.members.active.binary_search(s).is_ok();
        let mut votes = vec![vote(ctx.me, own, with.score, None)];
        for (accuser, failing) in self.failing(now, tally) {
            if *accuser != ctx.me
                && !accuser.same_endpoint(&silo)
                && (votes_too(accuser) || !ctx.is_active())
                && let Some(consent) = failing.consent
            {
                votes.push(vote(*accuser, consent, 0, Some(ctx.me)));
            }
        }
        Verdict {
            silo,
            votes,
            call: Call {
                failed: failed.into_iter().collect(),
                reached: counted.reached,
                sample: self.sampled.then(|| count(self.asked.len())),
            },
            at: now,
        }
    }
}
