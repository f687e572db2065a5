//! The work after every input: votes, the join, commits, probe targets, and publishing.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::challenge::BETWEEN_READS;
use super::contacts::PassedOver;
use super::io::Effect;
use super::isolation::outvoters;
use super::joiner::Step;
use super::machine::Protocol;
use super::notice::{Notice, Termination};
use super::roll_call::{CHALLENGERS, Electorate};
use super::standoff::Expiry;
use super::timers::Timer;
use super::voter::{ToAsk, VoterInput};
use crate::hooks::Calls;
use crate::intent::{FEW, Observed};
use crate::{MonoTime, SiloAddress, SiloStatus, TableErrorKind};

/// Minimum time between two looks of a Joining silo at the Active ones that do not answer it.
const BETWEEN_LOOKS: Duration = Duration::from_millis(500);

/// This many silos may be challenged because their machines refuse connections.
const NOT_MANY: usize = 32;

/// The health score above which a silo writes nothing for others.
const SICK: u8 = 2;

/// Minimum time between two reads that confirm an announced view before others are accused.
const CONFIRM_PATIENCE: Duration = Duration::from_millis(500);

impl Protocol {
    /// Does the work that is due after every input.
    pub(super) fn proceed(&mut self) {
        for _ in 0..8 {
            if self.ended {
                return;
            }
            if self.dirty {
                self.dirty = false;
                self.retarget();
                self.callers.dial(&mut self.ctx);
            }
            self.callers.follow(&mut self.ctx);
            self.joiner.on_met(&mut self.ctx, &mut self.callers);
            if !self.pump() {
                break;
            }
        }
        if self.ended {
            return;
        }
        self.publish();
        self.flood.pass_on(&mut self.ctx, &self.successors);
        self.look_at_challenges();
        self.arm_fast_read();
    }

    /// Runs votes, the join and the writer; returns true when something happened that may need
    /// another pass.
    pub(super) fn pump(&mut self) -> bool {
        let stale = self.stale.clone();
        let (targets, last) = (self.prober.targets(), self.prober.last_answer());
        let challenged = self.challenged.clone();
        let input = VoterInput {
            stale: &stale,
            challenged: &challenged,
            deaf: self.monitor.hears_nobody(&self.ctx, targets, last),
            score: self.monitor.score(),
            local: self.monitor.local(),
            outnumbered: self.roll_call.is_outnumbered(),
        };
        self.call_the_roll(&input);
        self.confirm_before_judging();
        if self.joiner.is_joining() {
            let is_contacting = self.joiner.is_contacting();
            let contacts = &mut self.joiner.contacts;
            if contacts.follow(&self.ctx, is_contacting)
                || contacts.is_behind(&self.ctx)
                || contacts.may_go_on(&self.ctx)
            {
                self.joiner.contact_soon(&mut self.ctx);
            }
            let passed = PassedOver {
                stale: &self.stale,
                beats: &self.last_heartbeats,
                challenged: &self.gone,
            };
            let step = self.joiner.poll(&mut self.ctx, &mut self.writer, &passed);
            if let Step::Failed(_) = step {
                self.step(step);
                return false;
            }
        }
        let written = self.writer.written_by_others(&mut self.ctx);
        if !written.is_empty() {
            self.settle(written);
            return true;
        }
        if !self.is_fit_to_write() {
            self.writer.hand_back(&mut self.ctx);
        }
        if self.ctx.variant.scribe {
            self.writer.take_early(&mut self.ctx);
            let suspected = self.suspected();
            let contacts = &self.joiner.contacts;
            self.writer.forward(&mut self.ctx, contacts, &suspected);
            // The view may have moved while they waited here.
            let written = self.writer.written_by_others(&mut self.ctx);
            if !written.is_empty() {
                self.settle(written);
                return true;
            }
        }
        self.writer.follow(&mut self.ctx);
        let can_commit = self.writer.can_commit(&self.ctx);
        let votes = if can_commit {
            self.voter.intents(&mut self.ctx, &self.prober, &input)
        } else {
            Vec::new()
        };
        let observed = if can_commit && (!votes.is_empty() || self.writer.has_queued()) {
            let now = self.ctx.mono();
            let window = self.ctx.failure_window();
            let answered = self.prober.answered(now, window);
            let sighted = self
                .ctx
                .members
                .first_seen
                .iter()
                .flat_map(|(silo, votes)| votes.iter().map(|(by, seen)| ((*silo, *by), *seen)));
            let first_seen = sighted
                .filter_map(|(vote, (at, when))| Some((vote, (at, when?))))
                .collect();
            let mut stale = stale;
            if self.joiner.is_joining() {
                // A silo that need not be reached must not delay the commit either.
                stale.append(
                    &mut self
                        .joiner
                        .contacts
                        .abandoned(&self.ctx, &self.passed_over()),
                );
                stale.extend(&self.gone);
            }
            Observed {
                stale,
                challenged,
                answered,
                first_seen,
                full_check_limit: self.ctx.variant.full_check_limit,
                stops_when_full: self.ctx.variant.stops_when_full,
                without_calls: self.ctx.variant.calls != Calls::Everybody,
            }
        } else {
            Observed::default()
        };
        let outcomes = self.writer.pump(&mut self.ctx, votes, &observed);
        if outcomes.is_empty() {
            return false;
        }
        self.settle(outcomes);
        true
    }

    /// The silos that this one does not ask to write: they do not answer.
    pub(super) fn suspected(&self) -> BTreeSet<SiloAddress> {
        let missed = self.prober.missed();
        missed.chain(self.stale.iter().copied()).collect()
    }

    /// Whether this silo may write the changes of others: it is well, stays, and has the table.
    pub(super) fn is_fit_to_write(&self) -> bool {
        let ctx = &self.ctx;
        ctx.variant.scribe
            && matches!(ctx.status, SiloStatus::Joining | SiloStatus::Active)
            && !self.leaver.is_leaving()
            && !self.joiner.is_failing()
            && !ctx.suspended
            && !self.pause.is_silent()
            && !ctx.table_doubted()
            && ctx.table.failing_since.is_none()
            && self.monitor.score() <= SICK
    }

    /// Asks the other silos about suspects, and takes what they found.
    fn call_the_roll(&mut self, input: &VoterInput<'_>) {
        self.roll_call.unwritten = self.writer.waits_in_vain();
        let own = self.answerer.take_own();
        self.roll_call.on_own(&self.ctx, own);
        let judge = self.judge();
        let timeout = self
            .ctx
            .probe_timeout()
            .saturating_mul(judge.multiplier)
            .min(self.ctx.config.max_probe_timeout);
        let silent = |at: MonoTime| self.ctx.mono().since(at) > timeout;
        let with = Electorate {
            stale: input.stale,
            challenged: input.challenged,
            score: input.score,
            quiet: self.prober.last_answer().is_none_or(silent),
            timeout,
        };
        let (verdicts, mut asked) = self.roll_call.poll(&mut self.ctx, &with);
        self.voter.on_verdicts(verdicts);
        let kept = self.roll_call.take_kept();
        self.reach.on_call(self.ctx.mono(), kept);
        let challenges = self.roll_call.take_challenges();
        self.voter.on_challenges(self.ctx.mono(), challenges);
        if asked.is_none() && self.ctx.variant.calls != Calls::Nobody {
            let ToAsk { suspects, named } = if self.joiner.is_contacting() {
                self.whom_to_challenge()
            } else {
                self.voter
                    .to_ask(&mut self.ctx, &mut self.prober, &mut self.roll_call, input)
            };
            if !suspects.is_empty() {
                asked = Some(
                    self.roll_call
                        .start(&mut self.ctx, &suspects, &named, &with),
                );
            }
        }
        if let Some((call, suspects)) = asked {
            self.answerer
                .on_call(&mut self.ctx, &self.prober, None, call, &suspects, judge);
            let own = self.answerer.take_own();
            if !own.is_empty() {
                self.roll_call.on_own(&self.ctx, own);
                // They may end the call: that waits for no message.
                let now = self.ctx.mono();
                self.ctx.set_timer_at(Timer::Check, now);
            }
        }
    }

    /// The silos that a Joining one asks about: all Active ones, if none of them answers it, and they
    /// are at most two or none of them writes heartbeats. It tells one or two by a challenge that
    /// most do not reach them; see [`super::isolation`].
    fn whom_to_challenge(&mut self) -> ToAsk {
        let (ctx, roll_call) = (&self.ctx, &self.roll_call);
        let away = ctx.table.failing_since.is_some() || ctx.suspended || ctx.table_doubted();
        if roll_call.is_running() || away || ctx.is_announced() || self.monitor.local() > 0 {
            return ToAsk::default();
        }
        let few = ctx.members.active.len() <= FEW;
        if !few {
            // There may be many.
            let now = ctx.mono();
            if now.since(self.looked_at_silent) < BETWEEN_LOOKS {
                return ToAsk::default();
            }
            self.looked_at_silent = now;
        }
        let mut leads = false;
        let (ctx, roll_call) = (&self.ctx, &self.roll_call);
        let mut suspects = self
            .joiner
            .contacts
            .silent(ctx, &self.prober, &self.passed_over());
        if !few && !self.nobody_writes(&suspects) {
            return ToAsk::default();
        }
        if few {
            // It has been told, if silos enough have joined in.
            suspects.retain(|s, _| outvoters(ctx, &self.stale, s, Duration::ZERO).is_empty());
        } else {
            suspects.retain(|s, _| !ctx.is_challenged(s));
            // The first silos by address ask, and the others only if those do not.
            let first = ctx.members.joining.iter();
            let first = first.filter(|s| **s < ctx.me && !self.stale.contains(s));
            let turns = u32::try_from(first.count() / CHALLENGERS).unwrap_or(u32::MAX);
            let wait = ctx.failure_window().saturating_mul(turns);
            // Where heartbeats are rare, nobody else's words end this.
            leads = turns == 0 && ctx.has_pulse();
            suspects.retain(|_, (since, _)| {
                turns == 0 || ctx.mono().since(*since) >= wait.saturating_add(ctx.failure_window())
            });
        }
        let due = |s: &SiloAddress| {
            roll_call.is_due(ctx, s, Expiry::No) || (leads && roll_call.is_free(ctx, s))
        };
        if !suspects.keys().any(due) {
            return ToAsk::default();
        }
        ToAsk {
            suspects,
            named: Vec::new(),
        }
    }

    /// Whether these silos write no heartbeats, as far as can be known soon. If they are not many, and
    /// all their machines refuse connections, they are not watched: a wrong challenge costs little.
    fn nobody_writes(&self, suspects: &BTreeMap<SiloAddress, (MonoTime, bool)>) -> bool {
        let refuses = |s: &SiloAddress| self.joiner.contacts.refuses(s);
        if suspects.len() <= NOT_MANY && suspects.keys().all(refuses) {
            return true;
        }
        let least = self.ctx.heartbeat_period() * 9 / 10;
        let still = |s: &SiloAddress| self.staleness.stood_still_for(s) >= least;
        suspects.keys().all(still)
    }

    /// Reads the table if this silo suspects others in a view that is only announced.
    fn confirm_before_judging(&mut self) {
        if !self.ctx.is_announced() || !self.ctx.is_active() || self.monitor.local() > 0 {
            return;
        }
        let now = self.ctx.mono();
        let recently = |at: crate::MonoTime| now.since(at) < CONFIRM_PATIENCE;
        if self.last_confirming.is_some_and(recently) {
            return;
        }
        if self.prober.missed().next().is_some() {
            self.last_confirming = Some(now);
            self.look_at_the_table(true);
        }
    }

    pub(super) fn input(&self) -> VoterInput<'_> {
        let (targets, last) = (self.prober.targets(), self.prober.last_answer());
        VoterInput {
            stale: &self.stale,
            challenged: &self.challenged,
            deaf: self.monitor.hears_nobody(&self.ctx, targets, last),
            score: self.monitor.score(),
            local: self.monitor.local(),
            outnumbered: self.roll_call.is_outnumbered(),
        }
    }

    pub(super) fn arm_fast_read(&mut self) {
        if self.ctx.table_changed() {
            return;
        }
        if !self.waits_for.is_empty() {
            let next = self.last_fast_read.map(|t| t + BETWEEN_READS);
            let at = self.ctx.mono().max(next.unwrap_or_default());
            if self.ctx.timers.at(Timer::FastRead).is_none_or(|t| t > at) {
                self.ctx.set_timer_at(Timer::FastRead, at);
            }
            return;
        }
        if self.ctx.timers.is_set(Timer::FastRead) {
            return;
        }
        let passed = PassedOver {
            stale: &self.stale,
            beats: &self.last_heartbeats,
            challenged: &self.gone,
        };
        let waits = self.joiner.is_joining() && self.joiner.waits(&self.ctx, &passed);
        if waits
            || self
                .voter
                .waits_for_staleness(&self.ctx, &self.prober, &self.input())
        {
            let period = self.ctx.heartbeat_period() / 2;
            if self.ctx.variant.scribe && self.last_fast_read.is_none() {
                // A newcomer that soon meets everybody needs none: many may join.
                self.last_fast_read = Some(self.ctx.mono());
            }
            let at = self
                .last_fast_read
                .map_or(self.ctx.mono(), |t| t + period)
                .max(self.ctx.mono());
            self.ctx.set_timer_at(Timer::FastRead, at);
        }
    }

    /// The next read comes half a period after this answer, not after its question: what has stood still
    /// from one answer to a question three periods later is stale then, and not a read later.
    pub(super) fn pace_fast_reads(&mut self) {
        let waits = self.ctx.timers.is_set(Timer::FastRead) && self.waits_for.is_empty();
        if self.ctx.variant.scribe && waits {
            let at = self.ctx.mono() + self.ctx.heartbeat_period() / 2;
            self.ctx.set_timer_at(Timer::FastRead, at);
        }
    }

    pub(super) fn publish(&mut self) {
        if self.ended {
            return;
        }
        let is_visible = !self.ctx.suspended && self.ctx.status != SiloStatus::Created;
        // A suspended silo publishes nothing, so the view that is withdrawn is the last one until then.
        let withdrawn = self.to_tell_withdrawn.take_if(|_| is_visible);
        let view = self.ctx.view.clone().filter(|_| is_visible);
        if let Some(view) = &view
            && self.published.is_none_or(|v| view.version() > v)
        {
            self.published = Some(view.version());
            self.ctx.out.push(Effect::Publish(view.clone()));
        }
        if let Some((version, table)) = withdrawn {
            self.ctx.tell(Notice::ViewWithdrawn { version, table });
        }
        // A join that has failed, or that the application gave up, ends as failed: it is never told that
        // it succeeded, though the commit under way makes the row Active.
        if let Some(view) = view
            && self.ctx.is_active()
            && !self.joiner.is_failing()
            && !self.told_active
        {
            self.told_active = true;
            let mine = view.get(&self.ctx.me).and_then(|e| e.active_since);
            let version = mine.unwrap_or(0);
            self.ctx.tell(Notice::Active { version });
        }
    }

    /// Ends the silo: nothing is sent, written or published after this.
    pub(super) fn end(&mut self, termination: Termination) {
        if !self.ended {
            self.ended = true;
            self.answer_the_waiting(TableErrorKind::Unavailable, "the silo has stopped");
            self.ctx.out.push(Effect::Stop(termination));
        }
    }
}
