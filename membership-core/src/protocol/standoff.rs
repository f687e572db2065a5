//! After a roll call without a majority: when to ask again. This bounds the load of a lasting fault
//! (invariant P15).
//!
//! If most silos answered the call, or anything else meanwhile, it is repeated after a wait that doubles
//! up to a minute. If they did not, no suspect can be voted out as long as nothing changes: then only a few of the silent
//! silos are probed at these times. An answer of one of them, a new view, or a suspect that has
//! become stale makes a full call again in both cases.
//!
//! Other silos tell what their calls gave. Each of them delays this silo's next call once.
//!
//! With at most two Active silos the word of a Joining one counts. If it has said nothing of a suspect,
//! because it was not well, and then asks about it itself, it can say something now. It has no vote, so
//! this silo asks again. The results of calls in which it could say nothing do not delay it. Invariant
//! P14.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::context::Ctx;
use super::message::{MAX_NAMED, Message};
use super::roll_call::{few_vote, longest_gap};
use super::timers::Timer;
use crate::{MonoTime, SiloAddress};

/// The longest wait.
const LONGEST: Duration = Duration::from_secs(60);
/// How many of the silent silos are probed in a check.
const CHECKED: usize = 10;

/// Whether a suspect writes heartbeats.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Expiry {
    /// It does, as far as is known.
    No,
    /// It has written none since it was challenged. It still counts for majorities and needed votes.
    Challenged,
    /// It is stale.
    Stale,
}

#[derive(Debug, Default)]
pub(crate) struct Standoff {
    /// The suspects that the last call could not vote out, and since when they have been suspects of
    /// calls without an answer.
    silent: BTreeMap<SiloAddress, MonoTime>,
    /// Those of them that wrote no heartbeats then.
    expired: BTreeMap<SiloAddress, Expiry>,
    /// The version of the view then.
    version: u64,
    /// Whether more than half of those that were asked answered the call, or anything else meanwhile.
    quorum: bool,
    /// When the wait before the next call or check ends, how long it is, and when it began.
    next: Option<(MonoTime, Duration, MonoTime)>,
    /// Probes of the last check.
    nonces: BTreeMap<u64, SiloAddress>,
    /// One of the silent silos has answered.
    broken: bool,
    /// Joining silos that were asked and said nothing of one of the silent silos.
    unsure: BTreeSet<SiloAddress>,
    /// One of them asks about a silent silo itself.
    has_news: bool,
    /// How many silos this one reached in its last call.
    reached: usize,
    /// Suspects of the calls of others, and until when this silo waits because of their results.
    told: BTreeMap<SiloAddress, MonoTime>,
    /// Whose calls this silo could say nothing in, because it was not well.
    no_part: BTreeSet<SiloAddress>,
    /// Who told a result since this silo's last call.
    tellers: BTreeSet<SiloAddress>,
    /// When another silo last told that its call gave no majority.
    told_at: Option<MonoTime>,
}

impl Standoff {
    pub(crate) fn clear(&mut self) {
        *self = Self::default();
    }

    /// Whether the call of another silo has given no majority within this time.
    pub(crate) fn was_told(&self, now: MonoTime, within: Duration) -> bool {
        self.told_at.is_some_and(|at| now.since(at) <= within)
    }

    /// Whether a call about this suspect has to wait.
    /// `impatient` = the words of others count no longer.
    pub(crate) fn covers(
        &self,
        ctx: &Ctx,
        silo: &SiloAddress,
        expiry: Expiry,
        impatient: bool,
    ) -> bool {
        let now = ctx.mono();
        let known = self.silent.contains_key(silo);
        if known && expiry == Expiry::Challenged && self.expiry(silo) < expiry {
            // Nothing can have changed for the better, and this happens once after a challenge.
            return false;
        }
        if self.broken || self.has_news || self.version != ctx.base_version() {
            // At most one call in a failure window all the same.
            let soon = |(.., began): (_, _, MonoTime)| now < began + ctx.failure_window();
            return known && self.next.is_some_and(soon);
        }
        if expiry > self.expiry(silo) {
            return false;
        }
        if !impatient && self.told.get(silo).is_some_and(|until| now < *until) {
            return true;
        }
        match self.next {
            // Nothing may change by itself where a silo that nobody accuses does not become stale.
            Some((until, ..)) if !self.quorum => {
                !ctx.has_pulse() || ctx.is_accused(silo) || now < until
            }
            Some((until, ..)) => known && now < until,
            None => false,
        }
    }

    /// Since when this silo has been a suspect of calls without an answer.
    pub(crate) fn asked_since(&self, silo: &SiloAddress) -> Option<MonoTime> {
        self.silent.get(silo).copied()
    }

    /// Records which Joining silos said nothing of a suspect in the last call.
    pub(crate) fn are_unsure(&mut self, silos: BTreeSet<SiloAddress>) {
        self.unsure = silos;
    }

    /// A Joining silo asks about these suspects. Returns whether that is news of a silent one: then
    /// this silo, which has a vote, does not wait for the result.
    pub(crate) fn on_call_of_joiner(
        &mut self,
        caller: &SiloAddress,
        suspects: &[(SiloAddress, u64)],
    ) -> bool {
        if suspects.iter().any(|(s, _)| self.silent.contains_key(s)) {
            self.has_news |= self.unsure.remove(caller);
        }
        self.has_news
    }

    /// Whether somebody who said nothing of a suspect can say something now.
    pub(crate) fn has_news_of(&self, silo: &SiloAddress) -> bool {
        self.has_news && self.silent.contains_key(silo)
    }

    fn expiry(&self, silo: &SiloAddress) -> Expiry {
        self.expired.get(silo).copied().unwrap_or(Expiry::No)
    }

    /// Whether a suspect wrote heartbeats, or may have written some, when it was last asked about.
    pub(crate) fn has_expired(&self, silo: &SiloAddress, expiry: Expiry) -> bool {
        self.silent.contains_key(silo) && expiry > self.expiry(silo)
    }

    /// Records the result of a call. Returns how long this silo waits, if there are suspects that
    /// could not be voted out.
    pub(crate) fn after_call(
        &mut self,
        ctx: &mut Ctx,
        kept: &BTreeMap<SiloAddress, MonoTime>,
        reached: usize,
        quorum: bool,
        expiry: impl Fn(&SiloAddress) -> Expiry,
    ) -> Option<Duration> {
        self.reached = reached;
        self.nonces.clear();
        self.unsure.clear();
        self.tellers.clear();
        self.told.clear();
        if kept.is_empty() {
            self.settle(ctx);
            return None;
        }
        let again =
            self.version == ctx.base_version() && kept.keys().any(|s| self.silent.contains_key(s));
        let wait = match self.next {
            Some((_, wait, _)) if again && !self.broken => (wait * 2).min(longest(ctx)),
            _ => ctx.failure_window().min(LONGEST),
        };
        self.broken = false;
        self.has_news = false;
        self.version = ctx.base_version();
        self.silent.clone_from(kept);
        self.expired = kept.keys().map(|s| (*s, expiry(s))).collect();
        self.quorum = quorum;
        self.wait(ctx, wait);
        Some(wait)
    }

    /// Others count now than those that were asked in the last call: that is as good as a new view.
    pub(crate) fn is_outdated(&mut self) {
        self.version = 0;
    }

    /// Waits for this time and up to a half more, so that of several silos one is the first.
    fn wait(&mut self, ctx: &mut Ctx, wait: Duration) {
        let until = wait + ctx.jitter(wait / 2);
        self.next = Some((ctx.mono() + until, wait, ctx.mono()));
        ctx.set_timer(Timer::Standoff, until);
    }

    /// Another silo's call gave no majority against these suspects.
    pub(crate) fn on_result(
        &mut self,
        ctx: &mut Ctx,
        from: SiloAddress,
        suspects: &[SiloAddress],
        reached: u32,
        wait: Duration,
    ) {
        self.told_at = Some(ctx.mono());
        let more = self.reached > usize::try_from(reached).unwrap_or(usize::MAX);
        if more || !self.tellers.insert(from) {
            return;
        }
        if self.next.is_none() {
            self.version = ctx.base_version();
        }
        let until = ctx.mono() + wait.min(LONGEST);
        for silo in suspects.iter().take(MAX_NAMED) {
            if ctx.members.alive.binary_search(silo).is_ok() {
                self.told.insert(*silo, until);
            }
        }
        if suspects.iter().any(|s| self.silent.contains_key(s))
            && let Some((at, ..)) = &mut self.next
        {
            let later = until + ctx.jitter(wait.min(LONGEST) / 2);
            *at = later.max(*at);
            let at = *at;
            ctx.set_timer_at(Timer::Standoff, at);
        }
    }

    /// Another silo asks, and this one may say what it finds, or not.
    pub(crate) fn is_asked(&mut self, caller: SiloAddress, takes_part: bool) {
        if takes_part {
            self.no_part.remove(&caller);
        } else {
            self.no_part.insert(caller);
        }
    }

    /// Whether this silo could say nothing in the call whose result a silo tells.
    pub(crate) fn took_no_part(&mut self, caller: &SiloAddress) -> bool {
        self.no_part.remove(caller)
    }

    /// Another silo's call gave no majority, and this silo had nothing to say in it: it does not wait.
    pub(crate) fn on_result_without_me(&mut self, ctx: &Ctx) {
        self.told_at = Some(ctx.mono());
    }

    /// Probes a few of the silent silos, if that is due.
    pub(crate) fn check(&mut self, ctx: &mut Ctx) {
        let Some((_, wait, _)) = self.next.filter(|(until, ..)| *until <= ctx.mono()) else {
            return;
        };
        let is_alive = |s: &&SiloAddress| ctx.members.alive.binary_search(s).is_ok();
        let silent = self.silent.keys().filter(is_alive).copied();
        // Those that wrote heartbeats come first: they are more likely to answer.
        let (mut likely, mut others): (Vec<SiloAddress>, Vec<SiloAddress>) =
            silent.partition(|silo| self.expiry(silo) == Expiry::No);
        self.nonces.clear();
        for _ in 0..CHECKED.min(likely.len() + others.len()) {
            let from = match likely.is_empty() {
                true => &mut others,
                false => &mut likely,
            };
            let silo = from.swap_remove(ctx.below(from.len()));
            let nonce = ctx.probe_nonce();
            self.nonces.insert(nonce, silo);
            ctx.send_to(silo, Message::Probe { nonce });
        }
        self.wait(ctx, (wait * 2).min(LONGEST));
    }

    /// Nobody is suspected any more.
    pub(crate) fn settle(&mut self, ctx: &mut Ctx) {
        self.silent.clear();
        self.nonces.clear();
        self.unsure.clear();
        self.no_part.clear();
        self.broken = false;
        self.has_news = false;
        if self.next.take().is_some() {
            ctx.timers.clear(Timer::Standoff);
        }
    }

    /// Handles an answer to a probe of a check.
    pub(crate) fn on_ack(&mut self, from: SiloAddress, nonce: u64) -> bool {
        self.nonces.get(&nonce) == Some(&from)
    }

    pub(crate) fn on_sign_of_life(&mut self, silo: &SiloAddress) {
        self.broken |= self.silent.remove(silo).is_some();
        self.told.remove(silo);
    }
}

/// The longest wait before the next call: a shorter one where few vote, as between their calls.
fn longest(ctx: &Ctx) -> Duration {
    if few_vote(ctx) {
        LONGEST.min(longest_gap(ctx))
    } else {
        LONGEST
    }
}
