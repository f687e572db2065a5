//! Periodic checks: pauses of this process, stale rows, and accusations against this silo.

use std::collections::BTreeSet;
use std::time::Duration;

use super::machine::Protocol;
use super::notice::Notice;
use super::observation::Observation;
use super::pause::{Length, Pause};
use super::timers::Timer;
use crate::{SiloAddress, Suspicion};

impl Protocol {
    pub(super) fn judge_staleness(&mut self) {
        self.follow_pulse();
        let settings = self.ctx.settings();
        let now = self.ctx.mono();
        let alive = &self.ctx.members.alive;
        let counts = |s: &SiloAddress| {
            *s != self.ctx.me
                && alive.binary_search(s).is_ok()
                && !self.prober.answered_within(s, now, settings.failure_window)
        };
        let stale: BTreeSet<SiloAddress> = self
            .staleness
            .standing_still(now, &settings)
            .filter(|(silo, read)| counts(silo) && self.should_beat(silo, *read))
            .map(|(silo, _)| silo)
            .collect();
        if stale != self.stale {
            self.stale = stale;
            self.dirty = true;
        }
        let still = self.challenges.standing_still(now, &settings);
        let challenged: BTreeSet<SiloAddress> = still
            .filter(|s| self.waits_for.contains(s) && counts(s))
            .collect();
        self.challenged = challenged;
        self.answerer.on_expired(&self.stale, &self.challenged);
        self.look_who_is_gone();
    }

    /// While this silo joins: whether nobody who is Active is left.
    fn look_who_is_gone(&mut self) {
        let expired = |s: &SiloAddress| self.stale.contains(s) || self.challenged.contains(s);
        let joins = self.joiner.is_joining() && !self.challenged.is_empty();
        if joins && self.ctx.members.active.iter().all(expired) {
            self.gone.clone_from(&self.challenged);
        } else {
            self.gone.clear();
        }
    }

    /// Which challenged silos this silo waits for: none, unless its last roll call reached no
    /// majority, or it joins and no Active silo answers it. A silo that is challenged, or waits for
    /// others, writes heartbeats more often.
    pub(super) fn look_at_challenges(&mut self) {
        let ctx = &self.ctx;
        let me_too = ctx.is_challenged(&ctx.me);
        self.waits_for.clear();
        // Many may be accused at once, and this is done with every input: they are looked through only
        // where it matters.
        let accused = ctx.members.accused.iter().filter(|s| **s != ctx.me);
        if accused.clone().next().is_some() && self.is_left_alone() {
            let challenged = accused.filter(|s| ctx.is_challenged(s)).copied();
            self.waits_for.extend(challenged);
        }
        self.challenged.retain(|s| self.waits_for.contains(s));
        self.look_who_is_gone();
        let hurried = me_too || !self.waits_for.is_empty();
        self.heartbeat_writer.hurry(&mut self.ctx, hurried);
    }

    /// Whether nobody can vote the silent silos out: the last roll call reached no majority, or this
    /// silo joins and no Active one answers it.
    fn is_left_alone(&self) -> bool {
        if self.ctx.is_active() {
            return self.roll_call.is_outnumbered();
        }
        let (contacts, passed) = (&self.joiner.contacts, self.passed_over());
        let silent = || contacts.silent(&self.ctx, &self.prober, &passed);
        self.joiner.is_contacting() && (!self.gone.is_empty() || !silent().is_empty())
    }

    /// Active silos with a fresh vote against this silo.
    pub(super) fn accusers(&self) -> Vec<SiloAddress> {
        if self
            .ctx
            .members
            .accused
            .binary_search(&self.ctx.me)
            .is_err()
        {
            return Vec::new();
        }
        let entry = self.ctx.confirmed_entry(&self.ctx.me);
        let active = |s: &SiloAddress| self.ctx.members.active.binary_search(s).is_ok();
        let fresh = |s: &&Suspicion| active(&s.accuser) && self.ctx.is_fresh(self.ctx.me, s);
        entry
            .map(|e| {
                e.suspicions
                    .iter()
                    .filter(fresh)
                    .map(|s| s.accuser)
                    .collect()
            })
            .unwrap_or_default()
    }

    pub(super) fn notice_pause(&mut self) {
        let now = self.ctx.mono();
        let late = self
            .ctx
            .timers
            .next()
            .map_or(Duration::ZERO, |due| now.since(due));
        self.monitor.timers_late(now, late);
        self.ctx.lag.on_late(now, late);
        let length = Pause::judge(late, self.ctx.probe_timeout(), self.ctx.failure_window());
        if length == Length::None {
            if late > self.ctx.probe_timeout() / 4 {
                self.roll_call.on_stall(&self.ctx);
            }
            return;
        }
        // Other silos may have declared this one dead: it reads the table before anything else. (A
        // table that is no longer the one it knew cannot tell.)
        // A stall during that read starts another one: the first may be from before it.
        let suspend = (length == Length::Long || self.ctx.suspended)
            && self.is_exposed()
            && !self.ctx.table_changed();
        if suspend {
            self.writer.read_first(&mut self.ctx);
        }
        self.ctx.observe(Observation::Paused(late));
        self.pause.last_at = Some(now);
        self.prober.void(&mut self.ctx);
        self.prober.forget_misses();
        self.roll_call.void(&mut self.ctx);
        self.answerer.void(&mut self.ctx);
        self.staleness.reset();
        self.challenges.reset();
        self.isolation.reset();
        self.stale.clear();
        self.challenged.clear();
        self.answerer.on_expired(&self.stale, &self.challenged);
        self.gone.clear();
        self.voter.reset(now);
        self.monitor.reset();
        self.dirty = true;
        if suspend {
            if !self.ctx.suspended {
                self.ctx.suspended = true;
                self.ctx.tell(Notice::Suspended(true));
            }
            if length == Length::Long {
                // Most tables answer in that time. Others wait for the word of this silo already.
                let until = now + self.ctx.probe_timeout() / 8;
                self.pause.be_silent(until);
                self.ctx.set_timer_at(Timer::Tick, until);
            }
        }
    }
}
