//! What a call has found of a suspect: whether it may be voted out, and with which votes.

use std::collections::BTreeSet;
use std::time::Duration;

use super::running::Running;
use super::tally::{Failing, Tally};
use super::{Electorate, words_last};
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
    /// The number of the call that found it.
    pub(crate) of: u64,
    pub(crate) at: MonoTime,
    /// Whether it could be written since.
    pub(crate) offered: bool,
}

impl Verdict {
    /// Whether the suspect was found silent, and does not only join for too long.
    pub(crate) fn is_of_silence(&self) -> bool {
        self.votes
            .iter()
            .all(|v| v.reason == SuspicionReason::Silent)
    }

    /// One of those that were asked has reached the suspect since. The majority is counted again without it
    /// when the votes are written.
    pub(crate) fn is_reached_by(&mut self, silo: &SiloAddress) {
        let before = self.call.failed.len();
        self.call.failed.retain(|s| s != silo);
        self.votes.retain(|v| v.accuser != *silo);
        let failed_before = self.call.failed.len() < before;
        self.call.reached = (self.call.reached + u32::from(failed_before)).max(1);
    }
}

pub(super) enum Judgement {
    Open,
    /// It may be voted out, by those who have failed to reach it since.
    Lost(MonoTime),
    Kept,
}

fn count(n: usize) -> u32 {
    u32::try_from(n).unwrap_or(u32::MAX)
}

impl Running {
    /// The silos that have failed to reach a suspect since `at`, and have just said so. This silo would know
    /// if it had reached it since it said so itself.
    fn failing_since<'a>(
        &'a self,
        ctx: &'a Ctx,
        tally: &'a Tally,
        at: MonoTime,
    ) -> impl Iterator<Item = (&'a SiloAddress, &'a Failing)> {
        let since = at.max(ctx.mono().minus(self.timeout * 2));
        let failed = tally.failed.iter();
        failed.filter(move |(silo, f)| f.at >= since || **silo == ctx.me)
    }

    /// When a suspect will have been silent for long enough. What was missed before the call may have
    /// been missed while nobody reached anybody: the suspect has the time of one probe to answer the
    /// call itself.
    pub(super) fn is_silent_at(ctx: &Ctx, tally: &Tally) -> MonoTime {
        let window = tally.silent_since() + ctx.failure_window();
        window.max(tally.added + ctx.probe_timeout())
    }

    /// When the word of the others on a suspect is needed: as soon as it has been silent, or its machine
    /// has refused connections, for long enough. None, if what they said before counts.
    pub(super) fn decides_at(
        &self,
        ctx: &Ctx,
        silo: &SiloAddress,
        tally: &Tally,
        with: &Electorate<'_>,
    ) -> Option<MonoTime> {
        let silent = (!words_last(ctx)).then(|| Self::is_silent_at(ctx, tally));
        if !ctx.has_pulse() && self.refuse(ctx, silo, tally, with, tally.failed.iter()) {
            let refused = tally.added + refusal(ctx);
            Some(silent.map_or(refused, |at| at.min(refused)))
        } else {
            silent
        }
    }

    /// Whether a majority of these say that the machine of a suspect refuses connections.
    fn refuse<'a>(
        &self,
        ctx: &Ctx,
        silo: &SiloAddress,
        tally: &Tally,
        with: &Electorate<'_>,
        failing: impl Iterator<Item = (&'a SiloAddress, &'a Failing)>,
    ) -> bool {
        let refused = failing.filter(|(_, f)| f.refused).map(|(s, _)| s);
        let sample = self.sampled.then_some(self.asked.len());
        with.majority(ctx, silo, refused, tally.reached.is_empty(), sample)
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
            Judgement::Lost(_) if ctx.mono() < self.hold || self.is_waiting(ctx) => Judgement::Open,
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
                (true, true) => Judgement::Lost(MonoTime::ZERO),
                (true, false) => Judgement::Kept,
            };
        }
        if tally.stuck {
            // Whether it may be voted out is a question of time. Who asks must be on the larger
            // side.
            let there = self.here.iter().chain([&ctx.me]);
            let larger = with.majority(ctx, silo, there, true, sample);
            return match (larger, waited) {
                (true, _) => Judgement::Lost(MonoTime::ZERO),
                (false, false) => Judgement::Open,
                (false, true) => Judgement::Kept,
            };
        }
        if !tally.failed.contains_key(&ctx.me) {
            // This silo's own probes have not ended, or it reaches the suspect.
            let mine = tally.reached.contains(&ctx.me) || tally.unknown.contains(&ctx.me);
            return if mine || waited {
                Judgement::Kept
            } else {
                Judgement::Open
            };
        }
        let silent_at = Self::is_silent_at(ctx, tally);
        let silent = now >= silent_at;
        let unopposed = tally.reached.is_empty();
        if self.is_kept_by_the_leader(ctx, silo, tally, with) {
            return Judgement::Kept;
        }
        // What somebody said a while ago does not end a silo; it is asked again.
        let most = with.majority(ctx, silo, tally.failed.keys(), unopposed, sample);
        // Whoever said so before may have reached it in the rest of the time, and what it said then may
        // be lost: it has been asked again.
        let ended = if words_last(ctx) {
            MonoTime::ZERO
        } else {
            silent_at
        };
        let ever_since = || self.failing_since(ctx, tally, ended);
        // Against a stale suspect, silos that are only slow for a moment are waited for.
        let patient = now.since(tally.added) >= ctx.failure_window();
        if most && (patient || !with.is_expired(silo)) {
            let silos = ever_since().map(|(s, _)| s);
            if silent && with.majority(ctx, silo, silos, unopposed, sample) {
                return Judgement::Lost(ended);
            }
            // A firewall or a proxy that starts again refuses connections for a moment.
            let refused_at = tally.added + refusal(ctx);
            let ended = if ctx.has_pulse() {
                MonoTime::ZERO
            } else {
                refused_at
            };
            let lasting = self.failing_since(ctx, tally, ended);
            if now >= refused_at && self.refuse(ctx, silo, tally, with, lasting) {
                return Judgement::Lost(ended);
            }
        }
        if with.is_expired(silo) {
            let votes = |s: &SiloAddress| ctx.members.active.binary_search(s).is_ok();
            let consents = |(s, f): &(&SiloAddress, &Failing)| {
                **s != ctx.me && f.consent.is_some() && votes(s)
            };
            let lasting = 1 + ever_since().filter(consents).count();
            let votes = 1 + tally.failed.iter().filter(consents).count();
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
                (true, true) if lasting >= needed && silent => Judgement::Lost(ended),
                (true, true) if votes >= needed => Judgement::Open,
                (true, true) => Judgement::Kept,
            };
        }
        if most {
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

    /// Whether the leader and at least half of the Active silos that are not stale reach a suspect, although
    /// so few are left of more than two that the Joining ones count. P12
    fn is_kept_by_the_leader(
        &self,
        ctx: &Ctx,
        silo: &SiloAddress,
        tally: &Tally,
        with: &Electorate<'_>,
    ) -> bool {
        let leader = ctx.leader().filter(|leader| leader != silo);
        if !leader.is_some_and(|leader| tally.reached.contains(&leader)) {
            return false;
        }
        if !with.joining_count(ctx) || ctx.members.active.len() <= intent::FEW {
            return false;
        }
        let counts = |s: &&SiloAddress| *s != silo && !with.stale.contains(*s);
        let all = ctx.members.active.iter().filter(counts);
        let reach = all.clone().filter(|s| tally.reached.contains(s)).count();
        reach * 2 >= all.count()
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
        let failed = tally.failed.contains_key(&ctx.me);
        if !failed || tally.stuck || !tally.reached.is_empty() || with.is_expired(&silo) {
            return None;
        }
        let votes = if ctx.is_active() { 1 } else { 2 };
        let mut votes: Vec<Suspicion> = self
            .verdict(ctx, silo, tally, (with, MonoTime::ZERO))
            .votes
            .into_iter()
            .take(votes)
            .collect();
        for vote in &mut votes {
            vote.reason = SuspicionReason::Challenge;
        }
        Some(votes)
    }

    fn count(&self, ctx: &Ctx, silo: &SiloAddress, tally: &Tally) -> RollCount {
        let others = || self.asked.iter().filter(|s| *s != silo);
        RollCount {
            asked: count(others().count() + 1),
            failed: count(self.failing_since(ctx, tally, MonoTime::ZERO).count()),
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
        let failed = tally.failed.contains_key(&ctx.me);
        (failed && !tally.stuck && !tally.reached.is_empty()).then(|| self.count(ctx, silo, tally))
    }

    pub(super) fn verdict(
        &self,
        ctx: &Ctx,
        silo: SiloAddress,
        tally: &Tally,
        (with, since): (&Electorate<'_>, MonoTime),
    ) -> Verdict {
        let now = ctx.mono();
        let failing = || self.failing_since(ctx, tally, since);
        let failed: BTreeSet<SiloAddress> = failing().map(|(s, _)| *s).collect();
        let counted = self.count(ctx, &silo, tally);
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
        for (accuser, failing) in failing() {
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
            of: self.call,
            at: now,
            offered: false,
        }
    }
}
