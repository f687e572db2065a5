//! The leader removes expired rows of Dead silos by commit.

use std::collections::BTreeMap;
use std::time::Duration;

use super::context::Ctx;
use super::timers::Timer;
use super::writer::Writer;
use crate::intent::{Action, defunct};
use crate::{MonoTime, SiloAddress, SiloStatus};

/// How often the leader looks for expired rows.
const PERIOD: Duration = Duration::from_secs(60);

/// Minimum time that a row stays after this silo first saw it Dead. The clocks of two silos may
/// disagree by any amount, and a leader whose clock is ahead must not remove a row that no silo has
/// seen Dead.
const SEEN_AT_LEAST: Duration = Duration::from_secs(120);

#[derive(Debug, Default)]
pub(crate) struct Cleaner {
    /// When this silo first saw each silo Dead.
    dead: BTreeMap<SiloAddress, MonoTime>,
}

impl Cleaner {
    pub(crate) fn start(ctx: &mut Ctx) {
        if !ctx.timers.is_set(Timer::Clean) {
            let after = PERIOD / 2 + ctx.jitter(PERIOD / 2);
            ctx.set_timer(Timer::Clean, after);
        }
    }

    pub(crate) fn on_timer(&mut self, ctx: &mut Ctx, writer: &mut Writer) {
        ctx.set_timer(Timer::Clean, PERIOD);
        let now = ctx.mono();
        let Some(view) = &ctx.base else { return };
        let before = std::mem::take(&mut self.dead);
        if ctx.members.alive.len() == view.len() {
            return;
        }
        let dead = view
            .members()
            .filter(|e| e.status == SiloStatus::Dead)
            .map(|e| e.address);
        self.dead = dead
            .map(|s| (s, before.get(&s).copied().unwrap_or(now)))
            .collect();
        let leads = ctx.is_active() && ctx.leader() == Some(ctx.me);
        if !leads
            || ctx.suspended
            || ctx.table_doubted()
            || writer.has(|a| matches!(a, Action::RemoveDefunct { .. }))
        {
            return;
        }
        let seen = |silo: &_| {
            self.dead
                .get(silo)
                .map_or(Duration::ZERO, |since| now.since(*since))
        };
        let mut silos = defunct(view.snapshot(), ctx.now.wall, &ctx.config, seen);
        silos.retain(|s| {
            self.dead
                .get(s)
                .is_some_and(|since| now.since(*since) >= SEEN_AT_LEAST)
        });
        if !silos.is_empty() {
            writer.submit(ctx, Action::RemoveDefunct { silos });
        }
    }
}
