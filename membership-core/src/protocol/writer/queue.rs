//! The intents that wait for a commit, and the choice of those that go into the next one. Votes are
//! not among them: they come fresh from the voter each time.

use crate::intent::{Action, Intent};
use crate::{IntentId, MonoTime};

/// Batch size above which the store's own limits are the only bound again.
const MANY: usize = 64;

#[derive(Debug, Default)]
pub(super) struct Queue {
    /// Each intent with the time at which it was submitted.
    intents: Vec<(Intent, MonoTime)>,
    /// Maximum number of intents in a commit after a larger one was refused; none when there is no
    /// such bound.
    most: Option<usize>,
    /// Index of the waiting intent that then comes first.
    turn: usize,
}

impl Queue {
    pub(super) fn push(&mut self, intent: Intent, at: MonoTime) {
        self.intents.push((intent, at));
    }

    pub(super) fn len(&self) -> usize {
        self.intents.len()
    }

    pub(super) fn has(&self, mine: impl Fn(&Action) -> bool) -> bool {
        self.any(|intent| mine(&intent.action))
    }

    pub(super) fn count(&self, mine: impl Fn(&Action) -> bool) -> usize {
        self.intents.iter().filter(|(i, _)| mine(&i.action)).count()
    }

    pub(super) fn any(&self, mine: impl Fn(&Intent) -> bool) -> bool {
        self.intents.iter().any(|(i, _)| mine(i))
    }

    pub(super) fn withdraw(&mut self, mine: impl Fn(&Intent) -> bool) -> bool {
        let before = self.intents.len();
        self.intents.retain(|(i, _)| !mine(i));
        self.intents.len() < before
    }

    /// Removes and returns these intents, in their order.
    pub(super) fn take(&mut self, which: impl Fn(&Intent) -> bool) -> Vec<(Intent, MonoTime)> {
        let all = std::mem::take(&mut self.intents);
        let (taken, rest) = all.into_iter().partition(|(i, _)| which(i));
        self.intents = rest;
        taken
    }

    /// Puts back what was taken.
    pub(super) fn put_back(&mut self, taken: Vec<(Intent, MonoTime)>) {
        self.intents.extend(taken);
    }

    /// Drops the intents with these ids.
    pub(super) fn drop_all(&mut self, which: impl Fn(IntentId) -> bool) {
        self.intents.retain(|(i, _)| !which(i.id));
    }

    /// The ids of the intents, each with the time of submission.
    pub(super) fn times(&self) -> impl Iterator<Item = (IntentId, MonoTime)> {
        self.intents.iter().map(|(i, t)| (i.id, *t))
    }

    /// Removes and returns the intents of the next commit. After a refusal there are fewer, and
    /// different ones each time, so that an intent that the store refuses does not block the
    /// others.
    pub(super) fn take_batch(&mut self, most: usize, votes: Vec<Intent>) -> Vec<Intent> {
        let Some(few) = self.most.map(|few| few.min(most)) else {
            let own = most.min(self.intents.len());
            let own = self.intents.drain(..own).map(|(i, _)| i);
            return own.chain(votes).take(most).collect();
        };
        let all = votes.len() + self.intents.len();
        let first = self.turn % all.max(1);
        let chosen = |at: usize| (at + all - first) % all.max(1) < few;
        let own = votes.len();
        let mut batch: Vec<Intent> = votes
            .into_iter()
            .enumerate()
            .filter(|(at, _)| chosen(*at))
            .map(|(_, vote)| vote)
            .collect();
        let mut at = own;
        self.intents.retain(|(intent, _)| {
            let taken = chosen(at);
            if taken {
                batch.push(intent.clone());
            }
            at += 1;
            !taken
        });
        if few == 1 {
            // Of many rows to remove only the first are taken; the others are requested again
            // later.
            for intent in &mut batch {
                if let Action::RemoveDefunct { silos } = &mut intent.action {
                    silos.truncate(1);
                }
            }
        }
        batch
    }

    /// The store refused a batch of this size, or keeps failing it: take fewer.
    pub(super) fn take_fewer(&mut self, tried: usize) {
        self.most = Some((tried / 2).max(1));
        self.turn = self.turn.wrapping_add(tried.max(1));
    }

    /// A commit succeeded: return to the store's limits step by step.
    pub(super) fn take_more(&mut self) {
        self.most = self.most.map(|most| most * 2).filter(|most| *most <= MANY);
    }

    /// Drops the parts that were split off from a batch that did not happen; the batch still
    /// contains them.
    pub(super) fn reunite(&mut self, batch: &[Intent]) {
        self.intents
            .retain(|(queued, _)| batch.iter().all(|sent| sent.id != queued.id));
    }

    /// Returns a batch that did not happen to the front of the queue.
    pub(super) fn requeue(&mut self, now: MonoTime, batch: Vec<Intent>) {
        self.reunite(&batch);
        // Votes are collected anew for the next attempt.
        let own = batch
            .into_iter()
            .filter(|i| !matches!(i.action, Action::Suspect { .. }));
        let back = own.map(|i| (i, now)).collect();
        let waiting = std::mem::replace(&mut self.intents, back);
        self.intents.extend(waiting);
    }
}
