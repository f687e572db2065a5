//! Proof of the contacts that others name with their activations: this silo asks each contact whether
//! the word is its own, and an activation goes into the queue with those that said so. So a silo that
//! never met another one does not become Active by saying that it did (invariant P9).
//!
//! What was proven of a silo is remembered while it waits: if it is refused, because the view has moved,
//! only whom it met since is asked.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::Writer;
use super::desk::Asked;
use crate::intent::Action;
use crate::protocol::context::Ctx;
use crate::protocol::message::{MAX_NAMED, Message};
use crate::protocol::timers::Timer;
use crate::{IntentId, MonoTime, SiloAddress, SiloStatus};

/// How long questions wait for further ones to the same silo.
const COLLECT: Duration = Duration::from_millis(10);
/// How long an activation waits for the answers of its contacts.
const WAIT: Duration = Duration::from_secs(1);
/// How long nothing is asked for a silo that has shown a wrong word.
const SHUNNED: Duration = Duration::from_secs(5);

/// An activation whose contacts are being asked.
#[derive(Debug)]
struct Activation {
    id: IntentId,
    asked: Asked,
    until: MonoTime,
    /// Those that have not answered.
    open: BTreeSet<SiloAddress>,
}

/// A question to a contact: who was asked, when, and about whom.
#[derive(Debug)]
struct Question {
    to: SiloAddress,
    at: MonoTime,
    about: Vec<SiloAddress>,
}

#[derive(Debug, Default)]
pub(super) struct Vouching {
    waiting: BTreeMap<SiloAddress, Activation>,
    /// The silos that have vouched for each one.
    proven: BTreeMap<SiloAddress, BTreeSet<SiloAddress>>,
    /// By whom to ask: the silos, with the words that they have shown.
    to_ask: BTreeMap<SiloAddress, Vec<(SiloAddress, u64)>>,
    /// By the nonce.
    questions: BTreeMap<u64, Question>,
    /// Those that have shown a wrong word, and until when nothing is asked for them.
    shunned: BTreeMap<SiloAddress, MonoTime>,
}

impl Vouching {
    pub(super) fn len(&self) -> usize {
        self.waiting.len()
    }

    pub(super) fn has(&self, id: IntentId) -> bool {
        self.waiting.values().any(|activation| activation.id == id)
    }

    /// Who waits for answers.
    pub(super) fn all(&self) -> impl Iterator<Item = (IntentId, Asked)> {
        self.waiting.values().map(|a| (a.id, a.asked))
    }

    /// Forgets everything; returns who waited.
    pub(super) fn clear(&mut self) -> Vec<(IntentId, Asked)> {
        let waited = self.all().collect();
        *self = Self::default();
        waited
    }

    /// Forgets what was proven of silos that need it no longer.
    pub(super) fn forget_others(&mut self, ctx: &Ctx) {
        let now = ctx.mono();
        self.shunned.retain(|_, until| *until > now);
        self.proven.retain(|silo, _| is_joining(ctx, silo));
    }

    fn shun(&mut self, now: MonoTime, silo: SiloAddress) {
        self.shunned.insert(silo, now + SHUNNED);
    }
}

fn is_joining(ctx: &Ctx, silo: &SiloAddress) -> bool {
    let status = ctx.base.as_ref().and_then(|view| view.status(silo));
    matches!(status, Some(SiloStatus::Created | SiloStatus::Joining))
}

/// Whether a silo can be asked: it is in the view, and does not leave.
fn lives(ctx: &Ctx, silo: &SiloAddress) -> bool {
    let status = ctx.view.as_ref().and_then(|view| view.status(silo));
    matches!(status, Some(SiloStatus::Joining | SiloStatus::Active))
}

impl Writer {
    /// Takes the activation of a silo that has shown these words. Returns false if nothing is asked for
    /// that silo now.
    pub(super) fn prove(
        &mut self,
        ctx: &mut Ctx,
        (id, asked): (IntentId, Asked),
        contacted: &[(SiloAddress, u64)],
    ) -> bool {
        let (now, by) = (ctx.mono(), asked.by);
        let vouching = &mut self.desk.vouching;
        if vouching.shunned.get(&by).is_some_and(|until| *until > now) {
            return false;
        }
        let mut all = BTreeMap::new();
        if is_joining(ctx, &by) {
            all.extend(contacted.iter().copied());
        }
        if let Some(word) = all.remove(&ctx.me) {
            if ctx.words.for_silo(&by) != word {
                vouching.shun(now, by);
                return false;
            }
            vouching.proven.entry(by).or_default().insert(ctx.me);
        }
        let mut open = BTreeSet::new();
        // The silo may have asked before, under another name: those are being asked.
        let before = vouching.waiting.remove(&by).map(|a| a.open);
        let proven = vouching.proven.get(&by);
        for (silo, word) in all {
            if proven.is_some_and(|all| all.contains(&silo)) || !lives(ctx, &silo) {
                continue;
            }
            open.insert(silo);
            if before.as_ref().is_none_or(|open| !open.contains(&silo)) {
                vouching.to_ask.entry(silo).or_default().push((by, word));
            }
        }
        let until = now + ctx.patience(WAIT);
        let activation = Activation {
            id,
            asked,
            until,
            open,
        };
        if activation.open.is_empty() {
            self.is_proven(ctx, by, &activation);
            return true;
        }
        vouching.waiting.insert(by, activation);
        let at = if vouching.to_ask.is_empty() {
            until
        } else {
            now + COLLECT
        };
        if ctx.timers.at(Timer::Vouching).is_none_or(|t| t > at) {
            ctx.set_timer_at(Timer::Vouching, at);
        }
        true
    }

    /// Asks, and waits no longer for those that do not answer.
    pub(crate) fn on_vouching_timer(&mut self, ctx: &mut Ctx) {
        let now = ctx.mono();
        let vouching = &mut self.desk.vouching;
        for (silo, mut words) in std::mem::take(&mut vouching.to_ask) {
            while !words.is_empty() {
                let rest = words.split_off(words.len().min(MAX_NAMED));
                let about = words.iter().map(|(silo, _)| *silo).collect();
                let nonce = ctx.random();
                let question = Question {
                    to: silo,
                    at: now,
                    about,
                };
                vouching.questions.insert(nonce, question);
                ctx.send_to(silo, Message::AskVouched { nonce, words });
                words = rest;
            }
        }
        let late = |(_, a): &(&SiloAddress, &Activation)| now >= a.until;
        let late = vouching.waiting.iter().filter(late);
        let late: Vec<SiloAddress> = late.map(|(silo, _)| *silo).collect();
        for silo in late {
            if let Some(activation) = self.desk.vouching.waiting.remove(&silo) {
                self.is_proven(ctx, silo, &activation);
            }
        }
        let vouching = &mut self.desk.vouching;
        // What is answered later is asked again.
        vouching
            .questions
            .retain(|_, q| now.since(q.at) < ctx.patience(WAIT) * 2);
        if let Some(until) = vouching.waiting.values().map(|a| a.until).min() {
            ctx.set_timer_at(Timer::Vouching, until);
        }
    }

    /// Handles the answer of a silo: it has told these silos the words that they have shown, and the
    /// others of the question nothing of the kind.
    pub(crate) fn on_vouched(
        &mut self,
        ctx: &mut Ctx,
        from: SiloAddress,
        nonce: u64,
        silos: &[SiloAddress],
    ) {
        let vouching = &mut self.desk.vouching;
        let asked = vouching.questions.get(&nonce);
        if asked.is_none_or(|question| question.to != from) {
            return;
        }
        let Some(Question { about, .. }) = vouching.questions.remove(&nonce) else {
            return;
        };
        let silos: BTreeSet<SiloAddress> = silos.iter().copied().collect();
        for silo in about {
            let vouching = &mut self.desk.vouching;
            if silos.contains(&silo) {
                vouching.proven.entry(silo).or_default().insert(from);
            } else {
                vouching.shun(ctx.mono(), silo);
            }
            let Some(activation) = vouching.waiting.get_mut(&silo) else {
                continue;
            };
            activation.open.remove(&from);
            if activation.open.is_empty()
                && let Some(activation) = vouching.waiting.remove(&silo)
            {
                self.is_proven(ctx, silo, &activation);
            }
        }
    }

    /// Puts an activation into the queue, with the contacts that are proven.
    fn is_proven(&mut self, ctx: &Ctx, silo: SiloAddress, activation: &Activation) {
        let proven = self.desk.vouching.proven.get(&silo);
        let contacted = proven.map_or_else(Vec::new, |all| all.iter().copied().collect());
        let action = Action::BecomeActive { silo, contacted };
        self.take(ctx, activation.id, activation.asked, action);
    }
}
