//! A cluster in which nobody is in service is given up for another one: who joins starts over.

use super::context::Ctx;
use super::io::Termination;
use super::joiner::{Joiner, is_later};
use super::message::Header;
use crate::Founding;
use crate::state::MemberStatus;

impl Joiner {
    /// Whether this cluster gives way to another one that has not begun either: contact points that were
    /// restarted have forgotten what they accepted, so there may be two foundings, and neither has a
    /// majority of the contact points. Nobody can have begun with this member while it knew of no majority.
    pub(super) fn gives_way(&self, ctx: &Ctx, header: &Header) -> bool {
        let is_earlier = header.founding.is_some() && header.founding < ctx.founding;
        ctx.config.founding == Founding::Majority && is_earlier && !self.may_begin(ctx)
    }

    /// Gives up this cluster for another one; the end, if this process has begun to work.
    pub(super) fn join_another(&mut self, ctx: &mut Ctx) -> Option<Termination> {
        let next = ctx.me.epoch().saturating_add(1);
        match ctx.status()? {
            MemberStatus::Joining => {
                self.begin_anew(ctx, next);
                None
            }
            // Its application must know: a new process joins.
            MemberStatus::WeaklyUp => Some(Termination::Gone),
            // On its way out.
            _ => None,
        }
    }

    /// The cluster that this process was taken into goes on without it, and has removed it: in what it
    /// knows nobody is in service, itself included. The end, if it has begun to work, or leaves.
    pub(super) fn on_left_behind(&mut self, ctx: &mut Ctx, least: u64) -> Option<Termination> {
        if ctx.has_service() || !is_later(ctx, least) {
            return None;
        }
        match ctx.status()? {
            MemberStatus::Joining => {
                self.begin_anew(ctx, least);
                None
            }
            MemberStatus::Exiting => Some(Termination::Left),
            _ => Some(Termination::Gone),
        }
    }

    fn begin_anew(&mut self, ctx: &mut Ctx, epoch: u64) {
        ctx.forget_cluster();
        ctx.me = ctx.me.with_epoch(epoch);
        self.start_over(ctx);
    }
}
