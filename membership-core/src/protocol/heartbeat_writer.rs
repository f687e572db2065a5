//! Writes this silo's heartbeat by calls of its own, and retries within a period.

use super::context::Ctx;
use super::io::{CallId, Effect};
use super::timers::Timer;
use crate::{Heartbeat, HeartbeatWrite, MonoTime, SiloStatus, TableError};

#[derive(Debug, Default)]
pub(crate) struct HeartbeatWriter {
    counter: u64,
    flight: Option<(CallId, MonoTime)>,
    /// This silo is challenged, or waits for challenged ones: it writes three times as often.
    hurried: bool,
    /// The pulse of the cluster speaks for this silo: it writes rarely.
    rare: bool,
    /// Whether the next heartbeat was planned like that.
    planned_rare: bool,
}

impl HeartbeatWriter {
    /// This silo's row is in the table: writes the first heartbeat at once.
    pub(crate) fn start(&mut self, ctx: &mut Ctx) {
        if !ctx.timers.is_set(Timer::Heartbeat) && self.flight.is_none() {
            ctx.set_timer_at(Timer::Heartbeat, ctx.mono());
        }
    }

    /// Sets whether this silo writes three times as often; if so, the first one at once.
    pub(crate) fn hurry(&mut self, ctx: &mut Ctx, hurried: bool) {
        if hurried && !self.hurried && ctx.timers.is_set(Timer::Heartbeat) && self.flight.is_none()
        {
            ctx.set_timer_at(Timer::Heartbeat, ctx.mono());
        }
        self.hurried = hurried;
    }

    /// Sets whether this silo writes rarely. If no longer, it writes soon: not all at one moment.
    pub(crate) fn set_rare(&mut self, ctx: &mut Ctx, rare: bool) {
        self.rare = rare;
        if !rare && std::mem::replace(&mut self.planned_rare, false) {
            let soon = ctx.heartbeat_period() / 2;
            let at = ctx.mono() + ctx.jitter(soon);
            if ctx.timers.at(Timer::Heartbeat).is_some_and(|due| due > at) {
                ctx.set_timer_at(Timer::Heartbeat, at);
            }
        }
    }

    pub(crate) fn on_timer(&mut self, ctx: &mut Ctx) {
        if ctx.status == SiloStatus::Created || ctx.table_changed() {
            return;
        }
        let period = ctx.heartbeat_period();
        if self.flight.is_some() || ctx.suspended {
            // The call under way sets the next time. A suspended silo writes nothing.
            ctx.set_timer(Timer::Heartbeat, period / 4);
            return;
        }
        self.counter += 1;
        let call = ctx.call();
        self.flight = Some((call, ctx.mono()));
        let heartbeat = Heartbeat {
            counter: self.counter,
            at: ctx.now.wall,
        };
        ctx.out.push(Effect::WriteHeartbeat {
            call,
            write: HeartbeatWrite::Silo {
                silo: ctx.me,
                heartbeat,
            },
        });
        let before = std::mem::replace(&mut self.planned_rare, self.rare && !self.hurried);
        let next = match (self.hurried, self.planned_rare) {
            (true, _) => period / 3,
            (false, false) => period,
            // Silos that have started together spread.
            (false, true) => {
                let rare = ctx.quiet_period();
                let spread = rare / if before { 10 } else { 2 };
                (rare - spread + ctx.jitter(spread)).max(period)
            }
        };
        ctx.set_timer(Timer::Heartbeat, next);
    }

    /// When the call that ended was sent, if it was the current one.
    pub(crate) fn on_written(
        &mut self,
        ctx: &mut Ctx,
        call: CallId,
        result: &Result<(), TableError>,
    ) -> Option<MonoTime> {
        let (_, sent) = self.flight.take_if(|(c, _)| *c == call)?;
        if result.is_err() && !ctx.table_changed() {
            let retry = ctx.heartbeat_period() / 4;
            ctx.set_timer(Timer::Heartbeat, retry);
        }
        Some(sent)
    }
}
