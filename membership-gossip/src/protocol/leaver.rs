//! The ways out: leaving with a hand-over, being downed, being gone.

use super::context::{Ctx, Timer};
use super::gossiper;
use super::io::{Notice, Termination};
use crate::state::MemberStatus;

/// How many members are told at once that this one ends.
const TOLD: usize = 5;

#[derive(Debug, Default)]
pub(crate) struct Leaver {
    /// The application has handed over.
    done: bool,
    told_exiting: bool,
    /// This process was a member.
    was_member: bool,
}

impl Leaver {
    /// Starts to leave; the end, if this process is in no cluster.
    pub(crate) fn leave(ctx: &mut Ctx) -> Option<Termination> {
        if !ctx.is_member() {
            return Some(Termination::Left);
        }
        let me = ctx.me;
        if ctx.edit(|edit| edit.advance(&me, MemberStatus::Leaving, None)) {
            gossiper::round(ctx, true);
        }
        if !ctx.timers.is_set(Timer::Leave) {
            ctx.timers
                .set(Timer::Leave, ctx.mono() + ctx.config.leave_timeout);
        }
        None
    }

    /// The application has handed over.
    pub(crate) fn exit_done(&mut self, ctx: &mut Ctx) -> Option<Termination> {
        self.done = true;
        self.proceed(ctx)
    }

    /// The time for leaving is over.
    pub(crate) fn out_of_time(ctx: &mut Ctx) -> Termination {
        let me = ctx.me;
        ctx.edit(|edit| edit.confirm_end(&me));
        gossiper::tell_some(ctx, TOLD);
        Termination::LeaveTimedOut
    }

    /// What follows from the status of this member.
    pub(crate) fn proceed(&mut self, ctx: &mut Ctx) -> Option<Termination> {
        let status = ctx.status();
        self.was_member |= status.is_some_and(|s| s < MemberStatus::Removed);
        match status? {
            MemberStatus::Removed if self.was_member => Some(if self.told_exiting {
                Termination::Left
            } else {
                Termination::Gone
            }),
            MemberStatus::Down => {
                self.end(ctx);
                Some(Termination::Downed)
            }
            MemberStatus::Exiting => {
                if !self.told_exiting {
                    self.told_exiting = true;
                    ctx.tell(Notice::Exiting);
                }
                self.done.then(|| {
                    self.end(ctx);
                    Termination::Left
                })
            }
            _ => None,
        }
    }

    /// Says that nobody has to wait for this member.
    fn end(&self, ctx: &mut Ctx) {
        let me = ctx.me;
        ctx.edit(|edit| edit.confirm_end(&me));
        gossiper::tell_some(ctx, TOLD);
    }
}
