//! A call under way: who is asked, who has answered, and who becomes a suspect.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use super::judge::refusal;
use super::tally::{Failing, Tally};
use super::{Electorate, least_time};
use crate::hooks::Calls;
use crate::protocol::context::Ctx;
use crate::protocol::message::{Finding, MAX_NAMED, Message};
use crate::{MonoTime, SiloAddress};

/// How many are asked while nobody answers.
const FEW: usize = 10;
/// For each silo that answers, so many silent ones are asked again.
const ANSWERS: usize = 8;

#[derive(Debug)]
pub(super) struct Running {
    pub(super) call: u64,
    pub(super) began: MonoTime,
    pub(super) timeout: Duration,
    pub(super) last_round: MonoTime,
    pub(super) next_round: MonoTime,
    /// Who was asked in the last round and has not answered since.
    pub(super) awaited: BTreeSet<SiloAddress>,
    /// When everybody is asked about suspects that the call has taken on.
    pub(super) asks_new: Option<MonoTime>,
    /// Joining silos were asked as well, because few are Active.
    pub(super) few: bool,
    /// Everybody who is asked, the suspects included.
    pub(super) asked: BTreeSet<SiloAddress>,
    /// Those of them to whom no question was sent yet: while this silo hears nobody, it asks a few.
    pub(super) unasked: BTreeSet<SiloAddress>,
    /// Since when there are none.
    pub(super) all_asked: Option<MonoTime>,
    pub(super) sampled: bool,
    /// Who has answered the call.
    pub(super) here: BTreeSet<SiloAddress>,
    /// Who has answered this silo since it began, on whatever it was asked.
    pub(super) heard: BTreeSet<SiloAddress>,
    /// Nobody is lost before: the network may have come back, or this silo has stood still, and the
    /// others need a moment to answer as well.
    pub(super) hold: MonoTime,
    /// Others that somebody has missed: they become suspects if they do not answer soon.
    pub(super) named: BTreeSet<SiloAddress>,
    /// Those of them that were not asked, and when they were asked whether they are there; none =
    /// they are. They are not part of the sample.
    pub(super) beside: BTreeMap<SiloAddress, Option<MonoTime>>,
    /// How often those that did not answer have been asked again, and since when that is counted.
    pub(super) asked_again: u32,
    pub(super) asked_at: MonoTime,
    /// Those that did not answer have become suspects.
    pub(super) silent_added: bool,
    pub(super) suspects: BTreeMap<SiloAddress, Tally>,
    /// How many suspects more the call may take on.
    pub(super) more: usize,
    /// Something has changed since this call was judged.
    pub(super) changed: bool,
}

impl Running {
    /// Silos that others have missed, and later all that have not answered, become suspects.
    pub(super) fn look_for_others(
        &mut self,
        now: MonoTime,
        alive: impl Fn(&SiloAddress) -> bool,
        asked: impl Fn(&SiloAddress) -> Option<MonoTime>,
    ) {
        // They have been asked twice by then.
        if self.is_named_long_enough(now) {
            for silo in std::mem::take(&mut self.named) {
                let waits =
                    |at: &Option<MonoTime>| at.is_some_and(|at| at + self.timeout / 4 > now);
                if self.beside.get(&silo).is_some_and(waits) {
                    self.named.insert(silo);
                } else if !self.here.contains(&silo) && alive(&silo) {
                    self.suspect(now, silo, self.began, asked(&silo));
                }
            }
        }
        if !self.silent_added && now >= self.waits_for_silent_until() {
            self.silent_added = true;
            let silent: BTreeSet<SiloAddress> = if self.is_refuted() {
                BTreeSet::new()
            } else {
                self.asked.difference(&self.here).copied().collect()
            };
            if self.are_many_silent() {
                // They were asked three times: that is no loss, whatever was in vain before.
                self.more = usize::MAX;
            }
            for silo in silent.into_iter().filter(alive) {
                self.suspect(now, silo, self.began, asked(&silo));
            }
        }
    }

    /// Whether those that others have missed, and that have not answered, become suspects. Where it is this silo
    /// or its part of the network that hears badly, many may be missed that are there, and have more time.
    fn is_named_long_enough(&self, now: MonoTime) -> bool {
        let quarters = if self.is_refuted() { 3 } else { 1 };
        now.since(self.began) >= self.timeout * quarters / 4
    }

    /// Whether somebody who was asked in the last round may still answer that the suspect is there: then nobody
    /// is lost, even with a majority.
    pub(super) fn is_waiting(&self, ctx: &Ctx) -> bool {
        !self.awaited.is_empty() && ctx.mono() < self.last_round + least_time(ctx)
    }

    /// Until when the silos that do not answer are waited for: not for long where many died, or the
    /// network is cut. If the calls before this one were in vain, that must be seen in more messages. Who
    /// was asked later, because this silo asked a few first or the network has come back, has as much time.
    fn waits_for_silent_until(&self) -> MonoTime {
        let longest = self.asked_at + self.timeout * 3 / 4;
        let is_limited = self.more < self.asked.len();
        match self.all_asked {
            Some(at) if self.are_many_silent() && !is_limited => {
                longest.min(at.max(self.asked_at) + self.timeout / 4)
            }
            _ => longest,
        }
    }

    /// Whether one in eight answers and one in three does not: that is no loss of single messages.
    fn are_many_silent(&self) -> bool {
        let (asked, here) = (self.asked.len(), self.here.len());
        here * ANSWERS >= asked && (asked - here) * 3 >= asked
    }

    /// Whether at least one in eight of those that answer reaches most of the suspects: then the
    /// network is not cut between this silo and the silent ones, it only hears badly. To ask about
    /// all whom it does not hear would cost a multiple of the call.
    fn is_refuted(&self) -> bool {
        let many = |t: &&Tally| !t.reached.is_empty() && t.reached.len() * 8 >= self.here.len();
        self.suspects.values().filter(many).count() * 2 > self.suspects.len()
    }

    /// Whether a silo has said late that it reaches a suspect: the silence begins anew, and may last
    /// for longer than a call takes. Nobody can say so twice, so one that lies puts off no death for
    /// ever.
    pub(super) fn is_put_off(&self) -> bool {
        let late = |t: &Tally| t.heard.is_some_and(|at| at > t.added + self.timeout);
        self.suspects
            .values()
            .any(|t| !t.reached.is_empty() && late(t))
    }

    /// Asks those that were named and not asked whether they are there: else one that names everybody
    /// would have all of a sample probe them.
    pub(super) fn ask_named(&mut self, ctx: &mut Ctx) {
        let all = self.named.difference(&self.asked);
        let new: Vec<SiloAddress> = all
            .filter(|s| !self.beside.contains_key(s))
            .copied()
            .collect();
        if new.is_empty() {
            return;
        }
        let message = self.question(Vec::new());
        for silo in new {
            self.beside.insert(silo, Some(ctx.mono()));
            ctx.send_to(silo, message.clone());
        }
    }

    /// Whether a silo that was asked only whether it is there has answered.
    pub(super) fn is_there(&mut self, silo: &SiloAddress) -> bool {
        let Some(at) = self.beside.get_mut(silo) else {
            return false;
        };
        *at = None;
        self.named.remove(silo);
        self.changed = true;
        true
    }

    /// A silo that had not answered for a while does. If it is the first one of all, the network has
    /// come back: the suspects are asked again, and have the time of a probe to answer.
    pub(super) fn comes_back(&mut self, ctx: &Ctx) {
        let now = ctx.mono();
        let mut moment = least_time(ctx);
        if self.here.len() == 1 {
            (self.asked_again, self.asked_at) = (0, now);
            moment = ctx.probe_timeout();
        }
        self.hold = self.hold.max(now + moment);
    }

    /// When those that have not answered are asked again.
    pub(super) fn next_repeat(&self) -> Option<MonoTime> {
        match self.asked_again {
            0 => Some(self.asked_at + self.timeout / 8),
            1 => Some(self.asked_at + self.timeout / 2),
            _ => None,
        }
    }

    /// Asks those again that have not answered: the question or the answer may have been lost.
    pub(super) fn ask_silent(&mut self, ctx: &mut Ctx, with: &Electorate<'_>) {
        if self.next_repeat().is_none_or(|at| at > ctx.mono()) {
            return;
        }
        self.asked_again += 1;
        let message = self.question(self.name(ctx.mono(), |_| true));
        let silent: Vec<SiloAddress> = self.asked.difference(&self.here).copied().collect();
        // Where hardly anybody answers, hardly anybody is there.
        let most = FEW.max(self.here.len() * ANSWERS);
        let few = (most < self.asked.len()).then_some(most);
        self.send(ctx, &message, silent, few, with);
    }

    /// Sends to all of these, or to so many of them, those first that write heartbeats. While this silo
    /// hears nobody, a few are enough to find out whether that is still so; as soon as some have
    /// answered, more are asked.
    fn send(
        &mut self,
        ctx: &mut Ctx,
        message: &Arc<Message>,
        mut to: Vec<SiloAddress>,
        few: Option<usize>,
        with: &Electorate<'_>,
    ) {
        if let Some(most) = few.filter(|most| to.len() > *most) {
            draw_first(ctx, &mut to, most, |silo| !with.is_expired(silo));
        }
        for silo in to {
            self.unasked.remove(&silo);
            ctx.send_to(silo, message.clone());
        }
        if self.unasked.is_empty() {
            self.all_asked.get_or_insert(ctx.mono());
        }
    }

    /// Takes on one more suspect, if the call may have more than it has.
    pub(super) fn suspect(
        &mut self,
        now: MonoTime,
        silo: SiloAddress,
        since: MonoTime,
        asked: Option<MonoTime>,
    ) {
        if self.more == 0 {
            return;
        }
        if let Entry::Vacant(place) = self.suspects.entry(silo) {
            self.more -= 1;
            let tally = place.insert(Tally::new(now, since));
            tally.asked = asked.unwrap_or(now);
            // Others may name more of them within a moment.
            let soon = now + self.timeout / 16;
            self.next_round = self.next_round.min(soon);
            self.asks_new.get_or_insert(soon);
        }
    }

    /// Asks everybody about all suspects; returns those.
    pub(super) fn ask(&mut self, ctx: &mut Ctx, with: &Electorate<'_>) -> Vec<(SiloAddress, u64)> {
        let named = self.name(ctx.mono(), |_| true);
        let message = self.question(named.clone());
        let asked = self.asked.iter().copied().collect();
        self.send(ctx, &message, asked, with.quiet.then_some(FEW), with);
        self.round(ctx.mono());
        named
    }

    fn round(&mut self, now: MonoTime) {
        (self.last_round, self.asks_new) = (now, None);
        self.next_round = now + self.timeout;
    }

    /// Finds the time of the next round. Everybody is asked at the moment at which the last suspect may be
    /// lost, and soon again whoever says nothing then. A question before the first may be makes all probe the
    /// suspects in the meantime.
    pub(super) fn ask_when(&mut self, now: MonoTime, decides: &[MonoTime]) {
        let (Some(first), Some(at)) = (decides.iter().min(), decides.iter().max()) else {
            return;
        };
        let (last, before) = (self.last_round, first.minus(self.timeout * 3 / 4));
        let at = *at;
        let next = if last >= at {
            let soon = last.since(at) < self.timeout / 2;
            last + self.timeout / if soon { 4 } else { 1 }
        } else if before >= last + self.timeout / 2 {
            before
        } else {
            at
        };
        // Whoever says when it last heard a suspect moves that time.
        let next = next.min(last + self.timeout).max(now);
        self.next_round = self.asks_new.map_or(next, |soon| soon.min(next));
    }

    /// Asks about these suspects whoever answers and has said nothing of one of them for a while;
    /// returns them.
    pub(super) fn ask_further(
        &mut self,
        ctx: &mut Ctx,
        about: &BTreeSet<SiloAddress>,
        with: &Electorate<'_>,
    ) -> Vec<(SiloAddress, u64)> {
        let now = ctx.mono();
        self.round(now);
        let named = self.name(now, |silo| about.contains(silo));
        if named.is_empty() {
            return named;
        }
        let message = self.question(named.clone());
        let tallies = about.iter().filter_map(|s| self.suspects.get_key_value(s));
        let tallies: Vec<_> = tallies
            .map(|(of, tally)| (of, tally, self.decides_at(ctx, of, tally, with)))
            .collect();
        // A stale suspect needs few votes, and when the window is over, all of them: whoever did not know is
        // asked again.
        let says_nothing =
            |by: &SiloAddress, of: &SiloAddress, tally: &Tally, at: Option<MonoTime>| {
                let over = at.is_some_and(|at| at <= now);
                tally.failed.get(by).map_or_else(
                    || {
                        let matters = over || with.stale.contains(of);
                        let knows_not = tally.unknown.contains(by) && !matters;
                        !tally.reached.contains(by) && !knows_not
                    },
                    |f| now.since(f.at) >= self.timeout * 3 / 4 || (over && Some(f.at) < at),
                )
            };
        let asks = |silo: &&SiloAddress| {
            let mut tallies = tallies.iter();
            let says_nothing = |(of, tally, at): &(&SiloAddress, &Tally, Option<MonoTime>)| {
                says_nothing(silo, of, tally, *at)
            };
            !about.contains(*silo) && tallies.any(says_nothing)
        };
        let there = self.here.union(&self.heard);
        let awaited: BTreeSet<SiloAddress> = there.filter(asks).copied().collect();
        for silo in &awaited {
            ctx.send_to(*silo, message.clone());
        }
        self.awaited = awaited;
        named
    }

    pub(super) fn name(
        &self,
        now: MonoTime,
        which: impl Fn(&SiloAddress) -> bool,
    ) -> Vec<(SiloAddress, u64)> {
        let silent = |t: &Tally| u64::try_from(now.since(t.silent_since()).as_millis());
        let suspects = self.suspects.iter().filter(|(silo, _)| which(silo));
        let mut suspects: Vec<_> = suspects.collect();
        // Its own come first: a caller has an allowance, and that has an end.
        suspects.sort_by_key(|(_, tally)| tally.added);
        suspects
            .into_iter()
            .map(|(silo, tally)| (*silo, silent(tally).unwrap_or(u64::MAX)))
            .take(MAX_NAMED)
            .collect()
    }

    /// How long the others are waited for: a silo that is accused, maybe by the suspect, probes it for
    /// two timeouts, and its answer has to travel.
    pub(super) fn patience(&self) -> Duration {
        self.timeout * 5 / 2
    }

    pub(super) fn question(&self, suspects: Vec<(SiloAddress, u64)>) -> Arc<Message> {
        let call = self.call;
        Arc::new(Message::RollCall { call, suspects })
    }

    /// The next time at which something changes although nobody answers.
    pub(super) fn next_wakeup(&self, ctx: &Ctx) -> MonoTime {
        let now = ctx.mono();
        let mut times = vec![
            self.began + least_time(ctx),
            self.began + self.timeout * 5 / 2,
            self.next_round,
        ];
        if ctx.variant.calls == Calls::Everybody {
            times.extend(self.next_repeat());
            if !self.named.is_empty() || !self.silent_added {
                times.push(self.began + self.timeout / 4);
                times.push(self.began + self.timeout * 3 / 4);
                let beside = self.named.iter().filter_map(|s| *self.beside.get(s)?);
                times.extend(beside.map(|at| at + self.timeout / 4));
            }
            if !self.silent_added {
                times.push(self.waits_for_silent_until());
            }
            times.push(self.hold);
            times.push(self.last_round + least_time(ctx));
            for tally in self.suspects.values() {
                times.push(tally.silent_since() + ctx.failure_window());
                times.push(tally.added + ctx.probe_timeout());
                times.push(tally.added + self.patience());
                times.push(tally.added + refusal(ctx));
                times.push(tally.added + ctx.failure_window());
            }
        }
        let later = times.into_iter().filter(|at| *at > now).min();
        later.unwrap_or(now + least_time(ctx))
    }

    pub(super) fn find(
        &mut self,
        ctx: &Ctx,
        by: SiloAddress,
        silo: &SiloAddress,
        finding: Finding,
    ) {
        let Some(tally) = self.suspects.get_mut(silo).filter(|_| by != *silo) else {
            return;
        };
        let now = ctx.mono();
        let silent_at = Self::is_silent_at(ctx, tally);
        // Whoever has reached it cannot fail afterwards in the same call: by that, it could put off
        // the end of the silence for ever.
        if tally.reached.contains(&by) {
            return;
        }
        // Who has just stood still does not know it at this moment. That it failed to reach the suspect until
        // the window was over stays true.
        if finding == Finding::Unknown && tally.failed.get(&by).is_some_and(|f| f.at >= silent_at) {
            return;
        }
        let before = tally.failed.remove(&by);
        tally.unknown.remove(&by);
        match finding {
            Finding::Reached => {
                // A silo that loses most of what it sends is reached by some of a large sample in
                // each call, which must end nevertheless.
                if !self.sampled {
                    let least = now.minus(self.timeout);
                    tally.heard = tally.heard.max(Some(least));
                }
                tally.reached.insert(by);
            }
            Finding::Unknown => {
                tally.unknown.insert(by);
            }
            Finding::Failed {
                silent_ms,
                heard_ms,
                refused,
                consent,
            } => {
                let ago = |ms| now.minus(Duration::from_millis(ms));
                // It may not feel well because the suspect, which is gone, no longer probes it.
                let consent = consent.or(before.and_then(|f| f.consent));
                // What a silo says first counts: had it heard the suspect since, it would have
                // reached it. A question takes no longer than a timeout.
                let (since, heard) = *tally.first.entry(by).or_insert_with(|| {
                    let heard = heard_ms.map(ago);
                    let latest = tally.added + self.timeout;
                    let heard = heard.map(|at| if by == ctx.me { at } else { at.min(latest) });
                    (ago(silent_ms), heard)
                });
                tally.heard = tally.heard.max(heard);
                tally.failed.insert(
                    by,
                    Failing {
                        at: now,
                        since,
                        heard,
                        refused,
                        consent,
                    },
                );
            }
        }
        // Whoever is asked, but for the suspect, and this silo.
        let silos = self.asked.len() + usize::from(!self.asked.contains(silo));
        let recently = ctx.config.probe_period * 2;
        tally.follow(silos, recently, self.timeout, self.sampled);
    }
}

/// Draws so many of these silos, those first of which `likely` is true.
pub(in crate::protocol) fn draw_first(
    ctx: &mut Ctx,
    silos: &mut Vec<SiloAddress>,
    most: usize,
    likely: impl Fn(&SiloAddress) -> bool,
) {
    silos.sort_by_key(|silo| !likely(silo));
    let first = silos.iter().filter(|silo| likely(silo)).count();
    for at in 0..most.min(silos.len()) {
        let end = if at < first { first } else { silos.len() };
        let other = at + ctx.below(end - at);
        silos.swap(at, other);
    }
    silos.truncate(most);
}
