//! The leader removes the rows of the long dead, by commit.

use std::time::Duration;

use super::context::Ctx;
use super::timers::Timer;
use super::writer::Writer;
use crate::intent::{Action, defunct};

/// The leader looks so often, and whenever it becomes the leader.
const PERIOD: Duration = Duration::from_secs(60);

#[derive(Debug, Default)]
pub(crate) struct Cleaner;

impl Cleaner {
    pub(crate) fn start(ctx: &mut Ctx) {
        if !ctx.timers.is_set(Timer::Clean) {
            let after = PERIOD / 2 + ctx.jitter(PERIOD / 2);
            ctx.set_timer(Timer::Clean, after);
        }
    }

    pub(crate) fn on_timer(ctx: &mut Ctx, writer: &mut Writer) {
        ctx.set_timer(Timer::Clean, PERIOD);
        let Some(view) = &ctx.view else { return };
        let leads = ctx.is_active() && view.leader().is_some_and(|l| l.address == ctx.me);
        if !leads || ctx.suspended || writer.has(|a| matches!(a, Action::RemoveDefunct { .. })) {
            return;
        }
        let silos = defunct(view.snapshot(), ctx.now.wall, &ctx.config);
        if !silos.is_empty() {
            writer.submit(ctx, Action::RemoveDefunct { silos });
        }
    }
}
