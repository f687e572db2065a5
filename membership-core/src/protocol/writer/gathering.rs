//! How long a commit waits for more of the same. Many silos join at a time: their rows, and then their
//! activations, go into few commits, so that the others see few sizes of the cluster. Nothing else waits.

use std::time::Duration;

use super::Writer;
use crate::MonoTime;
use crate::intent::{Action, Intent};
use crate::protocol::context::Ctx;

/// How long a commit waits for further changes of its kind.
const GATHER: Duration = Duration::from_millis(100);
/// How much longer activations wait where those of all other silos that join would fill a commit, and
/// in proportion where they would not.
const FOR_A_FULL_ONE: Duration = Duration::from_millis(250);

/// Since when changes of others wait for further ones of their kind.
#[derive(Debug, Default)]
pub(super) struct Gathering {
    joins: MonoTime,
    activations: MonoTime,
}

const fn is_join(action: &Action) -> bool {
    matches!(action, Action::Join(_))
}

const fn is_activation(action: &Action) -> bool {
    matches!(action, Action::BecomeActive { .. })
}

/// Whether a change waits for nothing.
const fn is_urgent(action: &Action) -> bool {
    !is_join(action) && !is_activation(action)
}

/// How many changes fill a commit.
fn full(ctx: &Ctx) -> usize {
    let variant = ctx.variant.changes_per_commit;
    variant.min(ctx.limits.rows_per_commit).max(1)
}

impl Writer {
    /// A change of another silo is about to be queued: if it is the first of its kind, the others have
    /// their time from now on.
    pub(super) fn gather(&mut self, action: &Action, now: MonoTime) {
        if is_join(action) && !self.queue.has(is_join) {
            self.gathering.joins = now;
        } else if is_activation(action) && !self.queue.has(is_activation) {
            self.gathering.activations = now;
        }
    }

    /// Until when a commit waits for further changes; none if it does not.
    pub(super) fn gathers_until(&self, ctx: &Ctx) -> Option<MonoTime> {
        if !self.desk.is_open() || self.queue.has(is_urgent) {
            return None;
        }
        let joins = self.queue.count(is_join);
        let joins = match joins {
            0 => None,
            n if n >= full(ctx) => return None,
            _ => Some(self.gathering.joins + GATHER),
        };
        let until = joins.into_iter().chain(self.activations_until(ctx));
        until.min().filter(|until| ctx.mono() < *until)
    }

    /// Until when activations wait, if there are any. Nobody waits once all that join have come, if no
    /// more are about to join.
    fn activations_until(&self, ctx: &Ctx) -> Option<MonoTime> {
        let (come, full) = (self.queue.count(is_activation), full(ctx));
        let missing = ctx.members.joining.len().saturating_sub(come);
        let waits = come < full && (missing > 0 || self.queue.has(is_join));
        let percent = u32::try_from(missing.min(full) * 100 / full).unwrap_or(100);
        let wait = if waits {
            GATHER + FOR_A_FULL_ONE / 100 * percent
        } else {
            Duration::ZERO
        };
        (come > 0).then(|| self.gathering.activations + wait)
    }

    /// Removes and returns the intents of the next commit. Activations that still wait are left, unless
    /// something urgent takes them along: the changes of one silo keep their order.
    pub(super) fn take_gathered(&mut self, ctx: &Ctx, votes: Vec<Intent>) -> Vec<Intent> {
        let now = ctx.mono();
        let until = self.activations_until(ctx).filter(|at| now < *at);
        let held = if until.is_some() && self.desk.is_open() && !self.queue.has(is_urgent) {
            self.queue.take(|intent| is_activation(&intent.action))
        } else {
            Vec::new()
        };
        let most = ctx.variant.changes_per_commit.max(1);
        let batch = self.queue.take_batch(most, votes);
        self.queue.put_back(held);
        if batch.iter().any(|intent| is_activation(&intent.action)) {
            // The commit was full: those that are left wait for the next ones.
            self.gathering.activations = now;
        }
        batch
    }
}
