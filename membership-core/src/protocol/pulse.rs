//! In a cluster that is so large that the heartbeats of all would be too many, the leader's heartbeat is its
//! *pulse*: as long as a silo sees it move, and nothing suggests that anybody may miss it, it writes its own
//! heartbeat rarely. Otherwise heartbeats would be nearly all that a quiet cluster writes.
//!
//! A heartbeat matters only where no majority can judge. So a silo beats as usual as soon as one of the
//! silos that it probes does not answer, nobody probes it, it is accused, the table fails, or the
//! pulse stands still. And where there is a pulse, a heartbeat that stands still says nothing of a silo
//! that nobody accuses, before three of the rare heartbeats are missing: see [`Protocol::judge_staleness`].
//!
//! So whoever misses a silo and cannot judge it must be able to accuse it. One whose own timers are late
//! accuses nobody else, but it challenges; and a silo that joins challenges whom it does not reach.

use std::collections::BTreeMap;
use std::time::Duration;

use super::context::Ctx;
use super::machine::Protocol;
use super::roll_call::CHALLENGERS;
use crate::hooks::Calls;
use crate::{Evidence, Extra, MonoTime, SiloAddress, Suspicion, SuspicionReason};

/// A pulse that was not seen to move for so many refresh periods has stopped: every second look is at
/// it, and one may be missed.
const SEEN: u32 = 5;
/// How many silos one that joins challenges at a time.
const AT_A_TIME: usize = 16;
/// How many it has reached for each that it challenges.
const MET_OF_EACH: usize = 3;

#[derive(Debug, Default)]
pub(crate) struct Pulse {
    /// The leader and its heartbeat, as the last look showed it.
    last: Option<(SiloAddress, u64)>,
    /// When a look was sent that showed that it had moved.
    moved: Option<MonoTime>,
    /// The next look is at this silo's own row.
    own_next: bool,
    /// The longest time between two heartbeats that the silos had, while it did not fall by much.
    period: Duration,
    accused: BTreeMap<SiloAddress, Accused>,
}

/// Since when a silo is accused without a break, and when a vote against it was last fresh. A vote may
/// expire before heartbeats have stood still for long enough, and be written again: what is shorter than
/// one period of heartbeats is no break.
#[derive(Clone, Copy, Debug)]
struct Accused {
    since: MonoTime,
    last: MonoTime,
}

impl Pulse {
    /// Whose row is read with the version row in the next periodic look, in turn.
    pub(crate) fn turn(&mut self, ctx: &Ctx) -> SiloAddress {
        let own = std::mem::replace(&mut self.own_next, false);
        match ctx.leader().filter(|_| !own && ctx.has_pulse()) {
            Some(leader) => {
                self.own_next = true;
                leader
            }
            None => ctx.me,
        }
    }

    /// A look that was sent at `sent` has shown this heartbeat.
    pub(crate) fn on_look(&mut self, sent: MonoTime, silo: SiloAddress, counter: u64) {
        match self.last {
            Some((last, before)) if last == silo => {
                if counter > before {
                    self.moved = Some(sent);
                }
                self.last = Some((silo, before.max(counter)));
            }
            _ => self.last = Some((silo, counter)),
        }
    }

    /// Whether whoever leads writes, as far as was seen. A new leader has as long to show it: otherwise all
    /// silos of a large cluster would beat as usual for minutes whenever a leader leaves.
    fn is_seen(&self, ctx: &Ctx) -> bool {
        let longest = ctx.config.table_refresh_period.saturating_mul(SEEN);
        self.moved.is_some_and(|at| ctx.mono().since(at) <= longest)
    }
}

impl Ctx {
    /// The longest usual time between two heartbeats of a silo that nobody misses.
    pub(crate) fn quiet_period(&self) -> Duration {
        let spacing = self.variant.heartbeat_spacing;
        let spacing = spacing.filter(|_| self.variant.calls == Calls::Everybody);
        let active = self.members.active.len();
        self.settings()
            .quiet_period(active, spacing.unwrap_or_default())
    }

    /// Whether the cluster is so large that the leader's heartbeat is its pulse.
    pub(crate) fn has_pulse(&self) -> bool {
        self.quiet_period() > self.heartbeat_period()
    }

    /// The votes and challenges against a silo that count now.
    pub(crate) fn fresh_votes<'a>(
        &'a self,
        silo: &'a SiloAddress,
    ) -> impl Iterator<Item = &'a Suspicion> {
        let accused = self.members.accused.binary_search(silo).is_ok();
        let entry = self.confirmed_entry(silo).filter(|_| accused);
        let votes = entry.map_or(&[][..], |e| &e.suspicions);
        votes.iter().filter(|vote| self.is_fresh(*silo, vote))
    }

    pub(crate) fn is_accused(&self, silo: &SiloAddress) -> bool {
        self.fresh_votes(silo).next().is_some()
    }

    /// Whether a vote or challenge against a silo counts for a while yet.
    pub(crate) fn stays_accused(&self, silo: &SiloAddress) -> bool {
        let expiry = self.settings().death_vote_expiration;
        let young = |vote: &&Suspicion| {
            let sighted = self.members.sighted(silo, vote);
            let age = sighted.map_or_else(
                || self.now.wall.distance(vote.at),
                |at| self.mono().since(at),
            );
            age <= expiry * 3 / 4
        };
        self.fresh_votes(silo).any(|vote| young(&vote))
    }

    /// A challenge that rests on no call: it asks a silo to show that it writes.
    pub(crate) fn challenge(&self) -> Suspicion {
        Suspicion {
            accuser: self.me,
            at: self.now.wall,
            reason: SuspicionReason::Challenge,
            evidence: Evidence::default(),
            extra: Extra::default(),
        }
    }
}

impl Protocol {
    /// Decides again how often this silo writes heartbeats.
    pub(super) fn pace_heartbeats(&mut self) {
        let rarely = self.may_beat_rarely();
        self.heartbeat_writer.set_rare(&mut self.ctx, rarely);
    }

    pub(super) fn may_beat_rarely(&self) -> bool {
        let ctx = &self.ctx;
        let (now, window) = (ctx.mono(), ctx.failure_window());
        ctx.variant.scribe
            && ctx.has_pulse()
            && ctx.is_active()
            && ctx.leader() != Some(ctx.me)
            && !self.leaver.is_leaving()
            && ctx.table.failing_since.is_none()
            && !ctx.suspended
            && !ctx.is_accused(&ctx.me)
            && self.waits_for.is_empty()
            && self.prober.all_answer(now, window)
            && self
                .monitor
                .last_probe_received()
                .is_some_and(|at| now.since(at) <= window)
            && self.pulse.is_seen(ctx)
    }

    /// Whether a heartbeat that stands still means that its silo writes none, in what a read showed
    /// that was sent at `read`: where there is a pulse, if that silo has been accused for as long, or if
    /// it stands still for longer than rare heartbeats make it. An accused silo learns of it from those
    /// that probe it, and beats.
    pub(super) fn should_beat(&self, silo: &SiloAddress, read: MonoTime) -> bool {
        let ctx = &self.ctx;
        if !ctx.has_pulse() {
            return true;
        }
        let settings = ctx.settings();
        let accused = self.pulse.accused.get(silo);
        let accused = accused.filter(|_| ctx.is_accused(silo)).map(|a| a.since);
        let longest = self.pulse.period.max(ctx.quiet_period());
        let longest = longest.saturating_mul(settings.num_missed_i_am_alive_limit);
        accused.is_some_and(|since| read.since(since) >= settings.staleness())
            || self.staleness.stood_still_for(silo) >= longest
    }

    /// Follows who is accused, and how often silos beat. If they have to beat much more often than before,
    /// because many are gone, what stood still until now says nothing.
    pub(super) fn follow_pulse(&mut self) {
        let period = self.ctx.quiet_period();
        if period < self.pulse.period * 9 / 10 {
            self.staleness.reset();
            self.pulse.period = period;
        }
        self.pulse.period = self.pulse.period.max(period);
        if !self.ctx.has_pulse() {
            return self.pulse.accused.clear();
        }
        let (ctx, accused) = (&self.ctx, &mut self.pulse.accused);
        let (now, period) = (ctx.mono(), ctx.heartbeat_period());
        for silo in &ctx.members.accused {
            let votes = ctx.fresh_votes(silo);
            let sighted = votes.map(|vote| ctx.members.sighted(silo, vote).unwrap_or_default());
            if let Some(since) = sighted.min() {
                let last = now;
                accused.entry(*silo).or_insert(Accused { since, last }).last = last;
            }
        }
        accused.retain(|_, a| now.since(a.last) <= period);
    }

    /// While this silo joins, challenges those that it has to reach and does not, and that may be quiet
    /// because nobody accuses them: whoever should do that may not be able to judge.
    pub(super) fn challenge_the_unmet(&mut self) {
        let ctx = &self.ctx;
        let away = ctx.table.failing_since.is_some() || ctx.suspended || ctx.table_doubted();
        if !self.joiner.is_contacting() || !ctx.has_pulse() || away || ctx.is_announced() {
            return;
        }
        // The first silos by address do, and the others only if those do not.
        let before = ctx.members.joining.iter().filter(|s| **s < ctx.me).count();
        let turns = u32::try_from(before / CHALLENGERS).unwrap_or(u32::MAX);
        let least = ctx.failure_window().saturating_mul(2 + turns.min(1_000));
        let passed = self.passed_over();
        let contacts = &self.joiner.contacts;
        let unmet: Vec<SiloAddress> = contacts.unmet(ctx, &passed, least).collect();
        // Whoever hardly reaches anybody has lost the network itself.
        if unmet.len().saturating_mul(MET_OF_EACH) > contacts.met() {
            return;
        }
        let unmet = unmet.into_iter().filter(|silo| !ctx.is_accused(silo));
        let challenges = unmet.map(|silo| (silo, vec![ctx.challenge()]));
        let challenges = challenges.take(AT_A_TIME).collect();
        self.voter.on_challenges(self.ctx.mono(), challenges);
    }
}
