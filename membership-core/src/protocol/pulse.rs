//! Above some number of Active silos the leader's heartbeat is the *pulse* of the cluster: as long as a
//! silo sees it move, and nothing suggests that anybody may miss it, it writes its own heartbeat rarely.
//! Otherwise the heartbeats of all silos would be nearly all that a quiet cluster writes.
//!
//! A heartbeat matters only where no majority can judge. So a silo beats as usual as soon as one of the
//! silos that it probes does not answer, nobody probes it, it is accused, the table fails, or the
//! pulse stands still. And where there is a pulse, a heartbeat that stands still says nothing of a silo
//! that nobody accuses: see [`Protocol::judge_staleness`].
//!
//! Off, but for [`pulse_above`](crate::hooks::ProtocolVariant::pulse_above): what has to be solved first is in
//! docs/decisions/0037-the-leaders-heartbeat-is-the-pulse.md.

use std::time::Duration;

use super::context::Ctx;
use super::machine::Protocol;
use crate::hooks::Calls;
use crate::{MonoTime, SiloAddress, Suspicion};

/// The usual time between two rare heartbeats.
pub(crate) const RARE_HEARTBEAT: Duration = Duration::from_secs(300);
/// A pulse that was not seen to move for so many refresh periods has stopped: every second look is at
/// it, and one may be missed.
const SEEN: u32 = 5;

#[derive(Debug, Default)]
pub(crate) struct Pulse {
    /// The leader and its heartbeat, as the last look showed it.
    last: Option<(SiloAddress, u64)>,
    /// When a look was sent that showed that it had moved.
    moved: Option<MonoTime>,
    /// The next look is at this silo's own row.
    own_next: bool,
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
    /// Whether the cluster is so large that the leader's heartbeat is its pulse.
    pub(crate) fn has_pulse(&self) -> bool {
        let limit = self.variant.pulse_above;
        self.variant.calls == Calls::Everybody
            && limit.is_some_and(|limit| self.members.active.len() > limit)
    }

    /// The votes against a silo that count now.
    fn fresh_votes<'a>(&'a self, silo: &'a SiloAddress) -> impl Iterator<Item = &'a Suspicion> {
        let accused = self.members.accused.binary_search(silo).is_ok();
        let entry = self.confirmed_entry(silo).filter(|_| accused);
        let votes = entry.map_or(&[][..], |e| &e.suspicions);
        votes.iter().filter(|vote| self.is_fresh(*silo, vote))
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
            && ctx.fresh_votes(&ctx.me).next().is_none()
            && self.waits_for.is_empty()
            && self.prober.all_answer(now, window)
            && self
                .monitor
                .last_probe_received()
                .is_some_and(|at| now.since(at) <= window)
            && self.pulse.is_seen(ctx)
    }

    /// Whether a heartbeat that stands still means that its silo writes none, in what a read showed
    /// that was sent at `read`: where there is a pulse, only if somebody has accused that silo for as
    /// long. An accused silo learns of it from those that probe it, and beats.
    pub(super) fn should_beat(&self, silo: &SiloAddress, read: MonoTime) -> bool {
        let ctx = &self.ctx;
        if !ctx.has_pulse() {
            return true;
        }
        let votes = ctx.fresh_votes(silo);
        let since = votes.map(|vote| ctx.members.sighted(silo, vote).unwrap_or_default());
        since
            .min()
            .is_some_and(|since| read.since(since) >= ctx.settings().staleness())
    }

    /// A cluster that has shrunk has no pulse any more: all beat as usual from now on, and what stood
    /// still until now says nothing.
    pub(super) fn follow_pulse(&mut self) {
        let has_one = self.ctx.has_pulse();
        if std::mem::replace(&mut self.had_pulse, has_one) && !has_one {
            self.staleness.reset();
        }
    }
}
