//! Pairs of silos that never talk. In a large cluster a silo probes few of the others, and need not
//! reach all of them to become Active: one that it cannot reach would stay unknown. So it looks at one
//! more of them every second, in the order of addresses, and again at those that did not answer.
//!
//! It is for people, as the rest of [`reach`](super::reach): what it finds is no miss, no vote and no
//! sign of life.

use std::collections::BTreeMap;
use std::time::Duration;

use super::context::Ctx;
use super::message::Message;
use super::prober::Prober;
use crate::{MonoTime, SiloAddress};

/// Time between two questions.
const PERIOD: Duration = Duration::from_secs(1);
/// How many silos that did not answer are asked again and again.
const MOST: usize = 32;
/// How many questions in a row a silo must have left unanswered to be named, each for a failure window.
const QUESTIONS: u32 = 3;
/// How many silos in a row are passed over for one question.
const PASSED_OVER: usize = 16;

/// A silo that did not answer.
#[derive(Debug)]
struct Silent {
    /// When the last of its unanswered questions was sent.
    asked: MonoTime,
    questions: u32,
}

/// A question that is open.
#[derive(Clone, Copy, Debug)]
struct Asked {
    nonce: u64,
    at: MonoTime,
}

#[derive(Debug, Default)]
pub(crate) struct Survey {
    /// The last one in the order of addresses.
    last: Option<SiloAddress>,
    open: BTreeMap<SiloAddress, Asked>,
    next: Option<MonoTime>,
    silent: BTreeMap<SiloAddress, Silent>,
    /// The next question goes to one that did not answer.
    again: bool,
}

impl Survey {
    /// Asks the next silo, if it is time.
    pub(crate) fn look(&mut self, ctx: &mut Ctx, prober: &Prober) {
        let is_large = |limit| ctx.members.active.len() > limit;
        if !ctx.is_active() || ctx.suspended || !ctx.variant.full_check_limit.is_some_and(is_large)
        {
            *self = Self::default();
            return;
        }
        let now = ctx.mono();
        if self.next.is_some_and(|next| now < next) {
            return;
        }
        self.expire(ctx, prober);
        self.silent.retain(|silo, _| concerns(ctx, prober, silo));
        self.again = !self.again;
        let next = self.one_again().or_else(|| self.one_more(ctx, prober));
        let after = ctx.jitter(PERIOD / 10);
        self.next = Some(now + (PERIOD - PERIOD / 20 + after));
        if let Some(silo) = next {
            let nonce = ctx.probe_nonce();
            self.open.insert(silo, Asked { nonce, at: now });
            ctx.send_to(silo, Message::Probe { nonce });
        }
    }

    /// Handles the answer to a probe, also to one that it had given up.
    pub(crate) fn on_ack(&mut self, from: &SiloAddress, nonce: u64) {
        if self.open.get(from).is_some_and(|open| open.nonce == nonce) {
            self.open.remove(from);
        }
        self.silent.remove(from);
    }

    /// It answered this silo.
    pub(crate) fn on_sign_of_life(&mut self, silo: &SiloAddress) {
        self.silent.remove(silo);
    }

    /// Whether nobody left a question unanswered.
    pub(crate) fn found_nobody(&self) -> bool {
        self.silent.is_empty()
    }

    /// The silos that answered nothing for so many failure windows as questions: one that has crashed is
    /// declared dead before.
    pub(crate) fn unreached(&self) -> impl Iterator<Item = SiloAddress> {
        let lasting = |s: &Silent| s.questions >= QUESTIONS;
        let silent = self.silent.iter();
        silent
            .filter(move |(_, s)| lasting(s))
            .map(|(silo, _)| *silo)
    }

    /// Ends the questions that have waited for long enough.
    fn expire(&mut self, ctx: &Ctx, prober: &Prober) {
        let (now, long) = (ctx.mono(), ctx.failure_window());
        // If nobody answers, it is this silo that is cut off.
        let last = prober.last_answer();
        let is_heard = last.is_some_and(|at| now.since(at) <= long);
        let silent = &mut self.silent;
        self.open.retain(|silo, open| {
            let waits = now.since(open.at) < long;
            if !waits && is_heard && (silent.len() < MOST || silent.contains_key(silo)) {
                let one = silent.entry(*silo).or_insert(Silent {
                    asked: open.at,
                    questions: 0,
                });
                one.asked = open.at;
                one.questions = one.questions.saturating_add(1);
            }
            waits
        });
    }

    /// Every second time, the one of the silent ones that was asked longest ago.
    fn one_again(&self) -> Option<SiloAddress> {
        let is_free = |silo: &SiloAddress| self.again && !self.open.contains_key(silo);
        let silent = self.silent.iter().filter(|(silo, _)| is_free(silo));
        silent.min_by_key(|(_, s)| s.asked).map(|(silo, _)| *silo)
    }

    /// The next Active one after the last, in the order of addresses.
    fn one_more(&mut self, ctx: &Ctx, prober: &Prober) -> Option<SiloAddress> {
        let active = &ctx.members.active;
        let last = self.last.unwrap_or(ctx.me);
        let after = active.partition_point(|silo| *silo <= last);
        let around = active.iter().skip(after).chain(active.iter().take(after));
        for silo in around.take(PASSED_OVER) {
            self.last = Some(*silo);
            let is_known = self.silent.contains_key(silo) || self.open.contains_key(silo);
            if concerns(ctx, prober, silo) && !is_known {
                return Some(*silo);
            }
        }
        None
    }
}

/// Whether the survey is about this silo: others are probed, accused already, or no longer Active.
fn concerns(ctx: &Ctx, prober: &Prober, silo: &SiloAddress) -> bool {
    let is_in = |list: &[SiloAddress]| list.binary_search(silo).is_ok();
    is_in(&ctx.members.active)
        && !is_in(&ctx.members.accused)
        && !silo.same_endpoint(&ctx.me)
        && !prober.is_target(silo)
}
