//! The calls of other silos hold back those of this one, and of those that wait, one calls after the
//! other: each waits for a time of its own.

use std::collections::BTreeMap;
use std::time::Duration;

use super::{RollCall, is_joining};
use crate::protocol::context::Ctx;
use crate::{MonoTime, SiloAddress, intent};

/// Of many silos that may call again at the same moment, one does so in this time.
const BETWEEN_CALLERS: Duration = Duration::from_millis(15);

/// The calls of others under way: this silo waits for their results, because it tells them what it
/// has missed itself.
#[derive(Debug, Default)]
pub(crate) struct Held {
    until: Option<MonoTime>,
    /// How long after the others this silo may call.
    spread: Duration,
    /// The losses in the last view: a view in which silos have died shortens the wait.
    losses: u64,
    /// When each caller began to hold this silo.
    callers: BTreeMap<SiloAddress, MonoTime>,
}

impl Held {
    /// Another silo calls: this one waits for the result, and a little longer, each silo for a time
    /// of its own: those who still have suspects then call one after the other. One caller can hold
    /// it for as long as a call may take, and then not for twice that time.
    pub(crate) fn on_call(&mut self, ctx: &mut Ctx, caller: SiloAddress, wait: Duration) {
        let now = ctx.mono();
        // Few calls take longer, and nobody can tell.
        let longest = ctx.failure_window() + ctx.probe_timeout() * 2;
        if self.until(ctx).is_none() {
            self.spread = turn(ctx);
        }
        self.callers
            .retain(|_, began| now.since(*began) <= longest * 3);
        let began = *self.callers.entry(caller).or_insert(now);
        if now.since(began) <= longest {
            self.until = self.until.max(Some(now + wait + self.spread));
        }
    }

    /// Until when this silo waits for the calls of others.
    pub(super) fn until(&self, ctx: &Ctx) -> Option<MonoTime> {
        self.until.filter(|until| *until > ctx.mono())
    }

    /// How long after the others this silo may call.
    pub(super) const fn spread(&self) -> Duration {
        self.spread
    }

    /// A view in which silos have died may be all that the call of another silo gave, or the first of
    /// several commits. Those who still have suspects call one after the other.
    pub(crate) fn follow_losses(&mut self, ctx: &mut Ctx) {
        if self.losses != ctx.members.losses && self.until(ctx).is_some() {
            let soon = ctx.mono() + turn(ctx);
            self.until = self.until.map(|until| until.min(soon));
        }
        self.losses = ctx.members.losses;
    }
}

impl RollCall {
    /// Another silo calls. This one waits for the result, unless that silo has no vote and can say now
    /// what it could not say before.
    pub(crate) fn on_call(
        &mut self,
        ctx: &mut Ctx,
        caller: SiloAddress,
        suspects: &[(SiloAddress, u64)],
        takes_part: bool,
    ) {
        // Where more silos are Active, calls end without those that join, or again soon enough.
        let counts = intent::joining_count(ctx.members.active.len(), false);
        self.standoff.is_asked(caller, takes_part || !counts);
        let has_no_vote = ctx.is_active() && is_joining(ctx, &caller);
        if counts && has_no_vote && self.standoff.on_call_of_joiner(&caller, suspects) {
            return;
        }
        let wait = ctx.probe_timeout() * 3 / 2;
        self.held.on_call(ctx, caller, wait);
    }
}

/// When this silo may call, of many that may do so from the same moment on.
fn turn(ctx: &mut Ctx) -> Duration {
    let silos = u32::try_from(ctx.members.alive.len()).unwrap_or(u32::MAX);
    let spread = BETWEEN_CALLERS.saturating_mul(silos);
    ctx.jitter(spread.min(ctx.probe_timeout()))
}
