//! The roll call before a vote: this silo asks all Active silos which of its suspects they reach,
//! about all suspects at once. Invariants P10 to P13.
//!
//! A suspect may be voted out only if more than half of all Active silos that are not stale have
//! just failed to reach it (of exactly half, with more than two Active: the half with the leader),
//! and only a failure window after the first messages of two of them that it has left unanswered since:
//! of up to 16 silos, what they said before that does not count, so everybody is asked once more when it is over.
//! Silos that do not answer the call, and silos that an answering one has missed itself, become
//! suspects of the same call, so that silos that died together leave together. A call without a
//! majority is not repeated as long as nothing changes; see `standoff`.

mod electorate;
mod held;
mod judge;
mod running;
mod tally;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use super::answerer::Own;
use super::context::Ctx;
use super::expense::Expense;
use super::message::{Finding, MAX_NAMED, Message};
use super::observation::{Observation, RollCallResult};
use super::rings::{self, Rings};
use super::standoff::{Expiry, Standoff};
use super::timers::Timer;
use crate::hooks::Calls;
use crate::{MonoTime, RollCount, SiloAddress, Suspicion};
pub(crate) use electorate::{Electorate, expiry};
use held::Held;
use judge::Judgement;
pub(crate) use judge::{Verdict, refusal};
use running::Running;
use tally::Tally;

/// Up to this number of Active silos all are asked; beyond it a sample of this size.
pub(crate) const SAMPLE: usize = 512;

/// Of so many suspects also those silos are asked that probe them, where only a sample is asked.
const WATCHED: usize = 16;

/// How many Joining silos challenge, among those that answer each other.
pub(crate) const CHALLENGERS: usize = 2;

/// How many silos one that nobody answers challenges at most. Rather than that all others are gone, it
/// may hear nobody; if they are, the rest become stale without it.
const ALONE: usize = 32;
/// Where heartbeats are rare, the rest do not become stale without it: for each silo that it has found gone
/// since somebody last answered it, it challenges so many.
const FOR_EACH_GONE: usize = 8;

/// The longest time between the beginnings of two calls that give no majority.
const LONGEST_GAP: Duration = Duration::from_secs(30);

/// A call, and the suspects that it names, each with how many milliseconds it has been silent.
pub(crate) type Asked = (u64, Vec<(SiloAddress, u64)>);

#[derive(Debug, Default)]
pub(crate) struct RollCall {
    running: Option<Running>,
    /// The last call that has come to its end, and when it began: an answer that comes later is still
    /// a sign of life.
    ended: Option<(u64, MonoTime)>,
    pub(crate) standoff: Standoff,
    /// When the last call began.
    began: Option<MonoTime>,
    /// How many calls in a row gave no majority, none of them long after the one before.
    fruitless: u32,
    /// Whether the table takes no commits, so that votes are not written: a call with a majority is in
    /// vain then, too.
    pub(crate) unwritten: bool,
    /// The calls of others.
    pub(crate) held: Held,
    /// How many suspects the next call would be about.
    size: usize,
    /// When the words of others hold back a call no longer: set while this silo has suspects.
    patient_until: Option<MonoTime>,
    /// No majority answered the last call.
    outnumbered: bool,
    /// How many were lost in calls that nobody answered, since the last that somebody did.
    gone: usize,
    /// Whom to challenge after it.
    challenges: Vec<(SiloAddress, Vec<Suspicion>)>,
    /// What it gave of those that were not voted out, for people.
    kept: Vec<(SiloAddress, Option<RollCount>)>,
}

impl RollCall {
    pub(crate) fn is_running(&self) -> bool {
        self.running.is_some()
    }

    /// Whether no majority answered the last call of this silo.
    pub(crate) fn is_outnumbered(&self) -> bool {
        self.outnumbered
    }

    /// Whom to challenge after the last call.
    pub(crate) fn take_challenges(&mut self) -> Vec<(SiloAddress, Vec<Suspicion>)> {
        std::mem::take(&mut self.challenges)
    }

    /// What the last call gave of each suspect that was not voted out: counts, if this silo failed to
    /// reach it and others reached it.
    pub(crate) fn take_kept(&mut self) -> Vec<(SiloAddress, Option<RollCount>)> {
        std::mem::take(&mut self.kept)
    }

    pub(crate) fn void(&mut self, ctx: &mut Ctx) {
        self.running = None;
        self.outnumbered = false;
        self.gone = 0;
        self.standoff.clear();
        ctx.timers.clear(Timer::Check);
    }

    /// This silo has just stood still for a moment: what it has not read yet may clear a suspect, so
    /// nobody is lost before that is read.
    pub(crate) fn on_stall(&mut self, ctx: &Ctx) {
        if let Some(running) = &mut self.running {
            running.hold = running.hold.max(ctx.mono() + least_time(ctx));
        }
    }

    /// The time between the beginnings of two calls: it doubles with each one that gives no majority.
    fn gap(&self, ctx: &Ctx) -> Duration {
        let times = 2u32.saturating_pow(self.fruitless) - 1;
        let grown = ctx.failure_window().saturating_mul(times);
        (least_time(ctx) * 2).max(grown.min(longest_gap(ctx)))
    }

    /// When the next call may begin.
    fn free_at(&self, ctx: &Ctx) -> MonoTime {
        let next = self
            .began
            .map_or(MonoTime::ZERO, |began| began + self.gap(ctx));
        let others = self.standoff.was_told(ctx.mono(), LONGEST_GAP * 2);
        if self.fruitless == 0 && !others && !self.unwritten {
            next
        } else {
            let all = ctx.members.active.len();
            let mut free = ctx
                .expense
                .free_at(&ctx.config, self.size, all.min(SAMPLE), all);
            if few_vote(ctx) {
                // A silo that only one of these can end may keep all others from joining. P14
                let began = self.began.unwrap_or(MonoTime::ZERO);
                free = free.min(began + Expense::shared(&ctx.config, self.size, all));
            }
            next.max(free + self.held.spread())
        }
    }

    /// Whether this silo should ask about a suspect now.
    pub(crate) fn is_due(&self, ctx: &Ctx, silo: &SiloAddress, expiry: Expiry) -> bool {
        let now = ctx.mono();
        // That a silo has become stale is news.
        let is_news = self.standoff.has_expired(silo, expiry) || self.standoff.has_news_of(silo);
        let impatient = self.is_impatient(ctx);
        self.running.is_none()
            && (is_news || impatient || self.free_at(ctx) <= now)
            && (impatient || self.held.until(ctx).is_none())
            && !self.standoff.covers(ctx, silo, expiry, impatient)
    }

    /// Whether this silo may ask about a suspect now, whatever others have said: only its own calls hold it
    /// back.
    pub(crate) fn is_free(&self, ctx: &Ctx, silo: &SiloAddress) -> bool {
        let gap = self.gap(ctx);
        let free = self.began.is_none_or(|at| ctx.mono().since(at) >= gap);
        self.running.is_none() && free && !self.standoff.covers(ctx, silo, Expiry::No, true)
    }

    /// Records how many suspects this silo has, so that nothing that others say holds back its calls
    /// for ever.
    pub(crate) fn has_suspects(&mut self, ctx: &mut Ctx, suspects: usize) {
        self.size = suspects;
        if suspects == 0 {
            self.patient_until = None;
        } else if self.patient_until.is_none() {
            let longest = longest_hold(ctx);
            self.patient_until = Some(ctx.mono() + longest);
        }
    }

    /// Whether the words of others have held back a call for long enough.
    fn is_impatient(&self, ctx: &Ctx) -> bool {
        self.patient_until.is_some_and(|until| until <= ctx.mono())
    }

    /// Wakes this silo when it may call next, if that is not now.
    pub(crate) fn wake(&self, ctx: &mut Ctx) {
        let until = self.held.until(ctx).max(Some(self.free_at(ctx)));
        let until = self.patient_until.map_or(until, |at| until.min(Some(at)));
        if let Some(until) = until.filter(|t| *t > ctx.mono())
            && !ctx.timers.is_set(Timer::Check)
        {
            ctx.set_timer_at(Timer::Check, until);
        }
    }

    /// Starts a call about these suspects. Returns it with the suspects of which this silo must find
    /// out itself.
    pub(crate) fn start(
        &mut self,
        ctx: &mut Ctx,
        suspects: &BTreeMap<SiloAddress, (MonoTime, bool)>,
        named: &[SiloAddress],
        with: &Electorate<'_>,
    ) -> Asked {
        let mut asked: Vec<SiloAddress> = ctx.members.active.clone();
        // A silo that joins asks those that do as well: who of them challenges is agreed so.
        let few = with.joining_count(ctx) || !ctx.is_active();
        if few || suspects.keys().any(|s| is_joining(ctx, s)) {
            asked.extend(ctx.members.joining.iter().copied());
        }
        asked.retain(|s| *s != ctx.me);
        let most = match ctx.variant.calls {
            Calls::Everybody => SAMPLE,
            Calls::One => 1,
            Calls::Nobody => 0,
        };
        let sampled = asked.len() > most;
        if ctx.variant.calls == Calls::One {
            asked.retain(|s| !suspects.contains_key(s));
        }
        for at in 0..most.min(asked.len()) {
            let other = at + ctx.below(asked.len() - at);
            asked.swap(at, other);
        }
        asked.truncate(most);
        let mut asked: BTreeSet<SiloAddress> = asked.into_iter().collect();
        if sampled && ctx.variant.calls == Calls::Everybody {
            // Those that would call next hear of it, and wait for what it gives.
            for suspect in suspects.keys().take(WATCHED) {
                asked.extend(watchers(ctx, suspect));
            }
        }
        if ctx.variant.calls == Calls::Everybody {
            asked.extend(suspects.keys().copied());
        }
        let (now, call) = (ctx.mono(), ctx.random());
        if self
            .began
            .is_none_or(|began| now.since(began) > LONGEST_GAP * 2)
        {
            self.fruitless = 0;
        }
        // The first calls of many wait for nothing: what they may cost follows from what the last ones found.
        let more = ctx.expense.affords(now, &ctx.config);
        let tally = |(silo, (since, stuck)): (&SiloAddress, &(MonoTime, bool))| {
            let mut tally = Tally::new(now, *since);
            tally.stuck = *stuck;
            if with.is_expired(silo) {
                tally.asked = self.standoff.asked_since(silo).unwrap_or(now);
            }
            (*silo, tally)
        };
        let mut running = Running {
            call,
            began: now,
            timeout: with.timeout,
            last_round: now,
            next_round: now,
            awaited: BTreeSet::new(),
            asks_new: None,
            few,
            unasked: asked.clone(),
            all_asked: None,
            asked,
            sampled,
            here: BTreeSet::new(),
            heard: BTreeSet::new(),
            hold: now,
            named: named.iter().copied().collect(),
            beside: BTreeMap::new(),
            asked_again: 0,
            asked_at: now,
            silent_added: false,
            more,
            suspects: suspects.iter().map(tally).collect(),
            changed: true,
        };
        let asked = running.ask(ctx, with);
        ctx.set_timer_at(Timer::Check, running.next_wakeup(ctx));
        self.began = Some(now);
        self.patient_until = None;
        self.running = Some(running);
        (call, asked)
    }

    /// Handles an answer. Returns when the call began, if it is an answer to the call under way or to
    /// the last one.
    pub(crate) fn on_answer(
        &mut self,
        ctx: &Ctx,
        from: SiloAddress,
        call: u64,
        findings: &[(SiloAddress, Finding)],
        missed: &[SiloAddress],
    ) -> Option<MonoTime> {
        let Some(running) = self.running.as_mut().filter(|r| r.call == call) else {
            let ended = self.ended.filter(|(last, _)| *last == call);
            return ended.map(|(_, began)| began);
        };
        if !running.asked.contains(&from) {
            return running.is_there(&from).then_some(running.began);
        }
        running.changed = true;
        running.awaited.remove(&from);
        let is_late = ctx.mono().since(running.began) >= least_time(ctx);
        if running.here.insert(from) && is_late && ctx.variant.calls == Calls::Everybody {
            running.comes_back(ctx);
        }
        if running.suspects.get(&from).is_some_and(|t| !t.stuck) {
            running.suspects.remove(&from);
        }
        for (silo, finding) in findings {
            running.find(ctx, from, silo, *finding);
        }
        for silo in missed {
            let known = ctx.members.alive.binary_search(silo).is_ok() && *silo != ctx.me;
            let is_here = running.here.contains(silo) || running.beside.get(silo) == Some(&None);
            let may_be_lost = !is_here && !running.suspects.contains_key(silo);
            if known
                && may_be_lost
                && running.named.len() < MAX_NAMED
                && running.named.insert(*silo)
            {
                running.changed = true;
            }
        }
        Some(running.began)
    }

    /// Takes what this silo found itself.
    pub(crate) fn on_own(&mut self, ctx: &Ctx, own: Own) {
        let Some(running) = &mut self.running else {
            return;
        };
        for (call, silo, finding) in own {
            if call == running.call {
                running.changed = true;
                running.find(ctx, ctx.me, &silo, finding);
            }
        }
    }

    /// A silo answered this one.
    pub(crate) fn on_sign_of_life(&mut self, silo: &SiloAddress) {
        self.standoff.on_sign_of_life(silo);
        let Some(running) = &mut self.running else {
            return;
        };
        if running.asked.contains(silo) {
            running.heard.insert(*silo);
        }
        if running.suspects.get(silo).is_some_and(|t| !t.stuck) {
            running.suspects.remove(silo);
            running.changed = true;
        }
    }

    /// The time of the next step has come, or the view has changed.
    pub(crate) fn look(&mut self) {
        if let Some(running) = &mut self.running {
            running.changed = true;
        }
    }

    /// Continues the call: asks about new suspects, asks again, or ends it. Returns what it found,
    /// and new suspects of which this silo must find out itself.
    pub(crate) fn poll(
        &mut self,
        ctx: &mut Ctx,
        with: &Electorate<'_>,
    ) -> (Vec<Verdict>, Option<Asked>) {
        let Some(running) = self.running.as_mut().filter(|r| r.changed) else {
            return (Vec::new(), None);
        };
        running.changed = false;
        let now = ctx.mono();
        if ctx.variant.calls == Calls::Everybody {
            running.ask_named(ctx);
        }
        let alive = |s: &SiloAddress| ctx.members.alive.binary_search(s).is_ok();
        running.suspects.retain(|s, _| alive(s));
        if ctx.variant.calls == Calls::Everybody {
            running.look_for_others(now, alive, |s| {
                let since = self.standoff.asked_since(s);
                since.filter(|_| with.is_expired(s))
            });
            running.ask_silent(ctx, with);
        }
        let (mut open, mut about, mut decides) = (false, BTreeSet::new(), Vec::new());
        for (silo, tally) in &running.suspects {
            let judgement = running.judge(ctx, silo, tally, with);
            open |= matches!(judgement, Judgement::Open);
            if !matches!(judgement, Judgement::Kept) {
                about.insert(*silo);
                decides.extend(running.decides_at(ctx, silo, tally, with));
            }
        }
        running.ask_when(now, &decides);
        let mut limit = longest_time(ctx, running.timeout);
        if running.is_put_off() {
            limit += ctx.failure_window();
        }
        let elapsed = now.since(running.began);
        // A short while is left to the others to name silos that died at the same moment.
        let few = elapsed < least_time(ctx) && !running.suspects.is_empty();
        if ((open || !running.named.is_empty()) && elapsed < limit) || few {
            let due = now >= running.next_round;
            let asked = due.then(|| (running.call, running.ask_further(ctx, &about, with)));
            ctx.set_timer_at(Timer::Check, running.next_wakeup(ctx));
            return (Vec::new(), asked);
        }
        (self.end(ctx, with), None)
    }

    fn end(&mut self, ctx: &mut Ctx, with: &Electorate<'_>) -> Vec<Verdict> {
        let Some(running) = self.running.take() else {
            return Vec::new();
        };
        ctx.timers.clear(Timer::Check);
        self.ended = Some((running.call, running.began));
        let (mut verdicts, mut kept) = (Vec::new(), BTreeMap::new());
        let sample = running.sampled.then_some(running.asked.len());
        let with_me = || running.here.iter().chain([&ctx.me]);
        self.outnumbered = false;
        let joins = !ctx.is_active();
        // A silo that joins has no vote, and challenges only if no Active silo is there. Of those
        // that answer each other the first two do, so that not each of many writes.
        let active = |s: &SiloAddress| ctx.members.active.binary_search(s).is_ok();
        let someone = |t: &Tally| !t.reached.is_empty();
        let lost = !running.here.iter().any(active) && !running.suspects.values().any(someone);
        let first = running.here.iter().filter(|s| **s < ctx.me).count() < CHALLENGERS;
        let alone = running.here.is_empty();
        let mut most = ALONE;
        if !alone {
            self.gone = 0;
        } else if ctx.has_pulse() {
            most = most.max(self.gone.saturating_mul(FOR_EACH_GONE));
        }
        for (silo, tally) in &running.suspects {
            let judgement = running.judge(ctx, silo, tally, with);
            if !matches!(judgement, Judgement::Lost(_)) {
                let counted = running.reached_by_others(ctx, silo, tally);
                self.kept.push((*silo, counted));
            }
            match judgement {
                Judgement::Lost(_) | Judgement::Open | Judgement::Kept if joins => {
                    kept.insert(*silo, tally.asked);
                    if lost && active(silo) {
                        self.outnumbered = true;
                        if first {
                            let votes = running.challenge(ctx, *silo, tally, with);
                            self.challenges.extend(votes.map(|votes| (*silo, votes)));
                        }
                    }
                }
                Judgement::Lost(since) => {
                    // Its challenge counts until the vote is written.
                    self.outnumbered |= !with.majority(ctx, silo, with_me(), true, sample);
                    verdicts.push(running.verdict(ctx, *silo, tally, (with, since)));
                }
                Judgement::Open | Judgement::Kept => {
                    kept.insert(*silo, tally.asked);
                    if !with.majority(ctx, silo, with_me(), true, sample) {
                        self.outnumbered = true;
                        if alone && self.challenges.len() >= most {
                            continue;
                        }
                        let votes = running.challenge(ctx, *silo, tally, with);
                        self.challenges.extend(votes.map(|votes| (*silo, votes)));
                    }
                }
            }
        }
        if alone {
            self.gone = self.gone.saturating_add(verdicts.len());
        }
        self.fruitless = if verdicts.is_empty() {
            self.fruitless + 1
        } else {
            0
        };
        let result = match (verdicts.is_empty(), kept.is_empty()) {
            (false, _) => RollCallResult::Majority,
            (true, true) => RollCallResult::Answered,
            (true, false) if running.suspects.values().any(someone) => RollCallResult::Reached,
            (true, false) => RollCallResult::NoMajority,
        };
        ctx.observe(Observation::RollCallEnded { result });
        let reached = running.here.len() + 1;
        // The question, or the answer, may have been lost before the network came back.
        let there = running.here.union(&running.heard).count() + 1;
        // Who writes no heartbeats either will not answer: that changes nothing for the others.
        let silent = running.asked.difference(&running.here);
        let gone = silent.filter(|s| with.expiry(s) == Expiry::Stale).count();
        let quorum = there * 2 > running.asked.len() - gone + 1;
        let wait = self
            .standoff
            .after_call(ctx, &kept, reached, quorum, |s| with.expiry(s));
        // So many have died meanwhile that others count, who were not asked.
        if !running.few && with.joining_count(ctx) {
            self.fruitless = 0;
            self.standoff.is_outdated();
        }
        if let Some(wait) = wait {
            let says_nothing = |of: &SiloAddress, by: &SiloAddress| {
                let tally = running.suspects.get(of).filter(|_| of != by);
                tally.is_some_and(|t| !t.has_word_of(by))
            };
            let joining = running.asked.iter().filter(|s| is_joining(ctx, s));
            let unsure = joining.filter(|by| kept.keys().any(|of| says_nothing(of, by)));
            self.standoff.are_unsure(unsure.copied().collect());
            let result: Arc<Message> = Message::RollResult {
                suspects: kept.into_keys().take(MAX_NAMED).collect(),
                reached: u32::try_from(reached).unwrap_or(u32::MAX),
                wait,
            }
            .into();
            for silo in running.here {
                ctx.send_to(silo, result.clone());
            }
        }
        verdicts
    }
}

/// Whether so few may vote that each of them may be needed for a death. The calls of so few cost little.
pub(crate) fn few_vote(ctx: &Ctx) -> bool {
    let needed = ctx.settings().num_votes_for_death_declaration as usize;
    ctx.members.active.len() <= needed.saturating_mul(4)
}

/// The longest time between two calls of a silo.
pub(crate) fn longest_gap(ctx: &Ctx) -> Duration {
    if few_vote(ctx) {
        LONGEST_GAP.min(ctx.failure_window() * 4)
    } else {
        LONGEST_GAP
    }
}

/// The Active silos that probe a silo.
fn watchers(ctx: &Ctx, silo: &SiloAddress) -> Vec<SiloAddress> {
    let silos = ctx.config.num_probed_silos;
    let one = ctx.variant.one_ring;
    let watchers = rings::watchers(
        silo,
        &ctx.members.alive,
        &ctx.members.places,
        Rings { silos, one },
    );
    let votes = |s: &SiloAddress| *s != ctx.me && ctx.members.active.binary_search(s).is_ok();
    watchers.into_iter().filter(votes).collect()
}

/// For how long the words of others hold back the calls of this silo. In a cluster of N silos a call
/// costs each of them up to N messages, so the times are spread over a time that grows with N squared:
/// then the first silo of all calls after about N/2 seconds more than the least, and one in N/2
/// seconds.
fn longest_hold(ctx: &mut Ctx) -> Duration {
    let silos = u32::try_from(ctx.members.alive.len()).unwrap_or(u32::MAX);
    let spread = Duration::from_millis(500).saturating_mul(silos.saturating_mul(silos));
    LONGEST_GAP * 2 + ctx.jitter(spread)
}

/// The longest time that a call takes: whoever becomes a suspect of it soon must have been silent for long
/// enough, and others that are not well may take two timeouts to say so.
fn longest_time(ctx: &Ctx, timeout: Duration) -> Duration {
    ctx.failure_window() + timeout * if words_last(ctx) { 2 } else { 3 }
}

/// Of more silos, no single word decides.
const MANY: usize = 16;

/// Whether what was said in a call before the end of the window still counts then. Where many answer, nothing
/// depends on when each of them said so: a suspect that is back is told to all, and not all of that is lost.
/// Where heartbeats are rare, a call that is in vain costs minutes.
pub(crate) fn words_last(ctx: &Ctx) -> bool {
    ctx.has_pulse() || ctx.members.alive.len() > MANY
}

/// The shortest time that a call takes.
fn least_time(ctx: &Ctx) -> Duration {
    ctx.probe_timeout() / 8
}

fn is_joining(ctx: &Ctx, silo: &SiloAddress) -> bool {
    ctx.members.joining.binary_search(silo).is_ok()
}
