//! The intents that wait for a commit, and which of them go into the next one. Votes are not among them: they come fresh
//! from the voter each time.

use crate::intent::{Action, Intent};
use crate::{IntentId, MonoTime};

/// A batch this large is bounded by the store's own limits again.
const MANY: usize = 64;

#[derive(Debug, Default)]
pub(super) struct Queue {
    /// With the time at which each was submitted.
    intents: Vec<(Intent, MonoTime)>,
    /// How many intents a commit takes after a larger one was refused; none where there is no such bound.
    most: Option<usize>,
    /// Which of those that wait come first then.
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
        self.intents.iter().any(|(i, _)| mine(&i.action))
    }

    pub(super) fn withdraw(&mut self, mine: impl Fn(&Action) -> bool) -> bool {
        let before = self.intents.len();
        self.intents.retain(|(i, _)| !mine(&i.action));
        self.intents.len() < before
    }

    /// When each was submitted.
    pub(super) fn times(&self) -> impl Iterator<Item = (IntentId, MonoTime)> {
        self.intents.iter().map(|(i, t)| (i.id, *t))
    }

    /// Takes out what goes into the next commit. After a refusal fewer, and others each time: an intent that the store
    /// refuses does not keep the others back.
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
            // Of many rows to remove the first; the others are asked for again.
            for intent in &mut batch {
                if let Action::RemoveDefunct { silos } = &mut intent.action {
                    silos.truncate(1);
                }
            }
        }
        batch
    }

    /// The store refuses a batch of this size, or keeps failing it.
    pub(super) fn take_fewer(&mut self, tried: usize) {
        self.most = Some((tried / 2).max(1));
        self.turn = self.turn.wrapping_add(tried.max(1));
    }

    /// A commit landed: back to the store's limits, step by step.
    pub(super) fn take_more(&mut self) {
        self.most = self.most.map(|most| most * 2).filter(|most| *most <= MANY);
    }

    /// Drops what was split off from a batch that did not happen: it is a part of what the batch has.
    pub(super) fn reunite(&mut self, batch: &[Intent]) {
        self.intents
            .retain(|(queued, _)| batch.iter().all(|sent| sent.id != queued.id));
    }

    /// Puts a batch that did not happen back in front.
    pub(super) fn requeue(&mut self, now: MonoTime, batch: Vec<Intent>) {
        self.reunite(&batch);
        // Votes are taken fresh from the prober for the next attempt.
        let own = batch
            .into_iter()
            .filter(|i| !matches!(i.action, Action::Suspect { .. }));
        let back = own.map(|i| (i, now)).collect();
        let waiting = std::mem::replace(&mut self.intents, back);
        self.intents.extend(waiting);
    }
}
