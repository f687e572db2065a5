//! The health of this silo: a score from 0 (healthy) to 8, after Lifeguard (Dadgar et al., 2017).
//!
//! Local reasons (this silo's executor or timers are late) forbid accusing any silo. All reasons
//! together lengthen this silo's timeouts by the health multiplier.

use std::time::Duration;

use super::context::Ctx;
use super::observation::Observation;
use crate::{MonoTime, SiloAddress};

/// Maximum of the score.
pub(crate) const MAX_SCORE: u8 = 8;
/// Lag of the executor above which it counts as a local reason.
const EXECUTOR_LAG_LIMIT: Duration = Duration::from_secs(1);
/// Lateness of timers above which it counts as a local reason. A silo that was paused for so long may
/// have missed a suspect that paused, too, and answers again: its word would be the one that makes a
/// majority with silos that have lost their links.
const LATE_TIMER_LIMIT: Duration = Duration::from_millis(1_500);

/// How long silence of everybody means nothing: a silo with one living neighbour hears from it once
/// per probe period.
fn patience(ctx: &Ctx) -> Duration {
    ctx.failure_window()
        .max(ctx.config.probe_period + ctx.probe_timeout())
}

#[derive(Debug, Default)]
pub(crate) struct Monitor {
    executor_late: Option<MonoTime>,
    timer_late: Option<MonoTime>,
    last_probe_received: Option<MonoTime>,
    /// Since when this silo is Active with enough peers for their silence to be meaningful.
    watching_since: Option<MonoTime>,
    targets_since: Option<MonoTime>,
    score: u8,
    local: u8,
}

impl Monitor {
    pub(crate) fn score(&self) -> u8 {
        self.score
    }

    pub(crate) fn local(&self) -> u8 {
        self.local
    }

    pub(crate) fn executor_lag(&mut self, now: MonoTime, lag: Duration) {
        if lag > EXECUTOR_LAG_LIMIT {
            self.executor_late = Some(now);
        }
    }

    pub(crate) fn timers_late(&mut self, now: MonoTime, late: Duration) {
        if late > LATE_TIMER_LIMIT {
            self.timer_late = Some(now);
        }
    }

    pub(crate) fn probe_received(&mut self, now: MonoTime) {
        self.last_probe_received = Some(now);
    }

    pub(crate) fn last_probe_received(&self) -> Option<MonoTime> {
        self.last_probe_received
    }

    /// Discards observations after a pause: silence during it proves nothing.
    pub(crate) fn reset(&mut self) {
        self.watching_since = None;
        self.targets_since = None;
    }

    /// Whether *all* targets are silent. Then this silo accuses only stale silos.
    pub(crate) fn hears_nobody(
        &self,
        ctx: &Ctx,
        targets: usize,
        last_answer: Option<MonoTime>,
    ) -> bool {
        ctx.variant.self_monitoring
            && targets >= 2
            && last_answer.is_none_or(|t| ctx.mono().since(t) > patience(ctx))
    }

    /// Updates the score. `accusers` = number of Active silos with a fresh vote against this silo.
    pub(crate) fn update(
        &mut self,
        ctx: &mut Ctx,
        targets: usize,
        last_answer: Option<MonoTime>,
        accusers: &[SiloAddress],
    ) {
        if !ctx.variant.self_monitoring {
            return;
        }
        let now = ctx.mono();
        let window = ctx.failure_window();
        let recent = |t: Option<MonoTime>| t.is_some_and(|t| now.since(t) <= window);
        let local = u8::from(recent(self.executor_late)) + u8::from(recent(self.timer_late));
        let mut score = u32::from(local);
        if ctx.status != crate::SiloStatus::Joining && !ctx.is_active() {
            score += u32::from(MAX_SCORE);
        }
        score += u32::try_from(accusers.len()).unwrap_or(u32::MAX);
        let since = |cond: bool, at: &mut Option<MonoTime>| {
            if cond {
                at.get_or_insert(now).to_owned()
            } else {
                at.take().map_or(now, |_| now)
            }
        };
        let probing = since(targets >= 2, &mut self.targets_since);
        if now.since(probing) > patience(ctx) && self.hears_nobody(ctx, targets, last_answer) {
            score += 1;
        }
        let watched = since(
            ctx.is_active() && ctx.members.active.len() >= 3,
            &mut self.watching_since,
        );
        let probed = |t: Option<MonoTime>| t.is_some_and(|t| now.since(t) <= patience(ctx));
        if now.since(watched) > patience(ctx) && !probed(self.last_probe_received) {
            score += 1;
        }
        let score = u8::try_from(score.min(u32::from(MAX_SCORE))).unwrap_or(MAX_SCORE);
        if (score, local) != (self.score, self.local) {
            (self.score, self.local) = (score, local);
            ctx.observe(Observation::Health { score, local });
        }
    }

    /// The factor by which timeouts are lengthened.
    pub(crate) fn health_multiplier(&self) -> u32 {
        1 + u32::from(self.score)
    }
}
