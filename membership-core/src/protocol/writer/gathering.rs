//! How long a commit waits for more of the same. Many silos join at a time: their rows, and then their
//! activations, go into few commits, so that the others see few sizes of the cluster. Nothing else waits.

use std::collections::BTreeMap;
use std::time::Duration;

use super::Writer;
use crate::intent::{Action, Answer, Applied, Intent};
use crate::protocol::context::Ctx;
use crate::protocol::timers::Timer;
use crate::{IntentId, MonoTime};

/// How long a commit waits for further changes of its kind.
const GATHER: Duration = Duration::from_millis(100);
/// How much longer activations wait for those of others that join where all of them fill a commit, and in
/// proportion where they do not.
const FOR_A_FULL_ONE: Duration = Duration::from_millis(500);

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
        let come = self.queue.count(is_activation);
        (come > 0).then(|| self.gathering.activations + self.wait_for_more(ctx, come))
    }

    /// How long so many activations wait for more.
    fn wait_for_more(&self, ctx: &Ctx, come: usize) -> Duration {
        let full = full(ctx);
        let all = ctx.members.joining.len();
        let waits = come < full && (all > come || self.queue.has(is_join));
        let percent = u32::try_from(all.min(full) * 100 / full).unwrap_or(100);
        if waits {
            GATHER + FOR_A_FULL_ONE / 100 * percent
        } else {
            Duration::ZERO
        }
    }

    /// Removes and returns the intents of the next commit. Activations that still wait are left, unless
    /// something urgent takes them along: the changes of one silo keep their order.
    pub(super) fn take_gathered(&mut self, ctx: &Ctx, votes: Vec<Intent>) -> Vec<Intent> {
        let until = self.activations_until(ctx);
        let held = if until.is_some_and(|at| self.may_wait(ctx, at)) {
            self.queue.take(|intent| is_activation(&intent.action))
        } else {
            Vec::new()
        };
        let most = ctx.variant.changes_per_commit.max(1);
        let batch = self.queue.take_batch(most, votes);
        self.queue.put_back(held);
        batch
    }

    fn may_wait(&self, ctx: &Ctx, until: MonoTime) -> bool {
        ctx.mono() < until && self.desk.is_open() && !self.queue.has(is_urgent)
    }

    /// Puts the activations of a batch back that are not refused, if those that would be written do not fill
    /// a commit although as many have come: the others lack contacts, are told so, and come again soon.
    /// Returns the rest of the batch, or nothing if nothing was put back.
    pub(super) fn wait_for_refused(
        &mut self,
        ctx: &mut Ctx,
        batch: &[Intent],
        applied: &Applied,
        submitted: &BTreeMap<IntentId, MonoTime>,
    ) -> Option<Vec<Intent>> {
        let (mut held, mut rest) = (Vec::new(), Vec::new());
        let (mut ready, mut refused) = (0, 0);
        for (intent, answer) in batch.iter().zip(&applied.answers) {
            if !is_activation(&intent.action) {
                rest.push(intent.clone());
            } else if matches!(answer, Answer::Applied { .. } | Answer::Queued) {
                ready += usize::from(*answer != Answer::Queued);
                let at = submitted.get(&intent.id).copied();
                held.push((intent.clone(), at.unwrap_or(ctx.mono())));
            } else {
                refused += usize::from(matches!(answer, Answer::Refused(_)));
                rest.push(intent.clone());
            }
        }
        let until = self.gathering.activations + self.wait_for_more(ctx, ready);
        let waits = ready > 0
            && refused > 0
            && self.may_wait(ctx, until)
            && !batch.iter().any(|intent| is_urgent(&intent.action));
        waits.then(|| {
            self.queue.put_back(held);
            ctx.set_timer_at(Timer::Writer, until);
            rest
        })
    }

    /// These are written: the activations that are left wait for the next ones.
    pub(super) fn are_written(&mut self, now: MonoTime, batch: &[Intent]) {
        if batch.iter().any(|intent| is_activation(&intent.action)) {
            self.gathering.activations = now;
        }
    }
}
