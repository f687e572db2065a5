//! Silos that asked to be dialled before this silo has read their rows. A message alone makes no
//! silo dial anybody: the address must be in the row of the process that asks, as the table has it or,
//! while the table does not answer, as another member announced it. Otherwise one silo that has lost
//! the table, and answers all others, would keep everybody from joining. Announced rows count as well
//! where one silo writes for many ([`scribe`](crate::hooks::ProtocolVariant::scribe)): hundreds join
//! within a second, and each is asked by all that start with it. A member that lies can make this silo
//! dial so many addresses a second.

use std::collections::BTreeMap;
use std::time::Duration;

use super::context::Ctx;
use super::message::Message;
use crate::{InstanceId, MembershipEntry, MonoTime, SiloAddress, SiloStatus};

/// How many are remembered; the oldest is forgotten first. They ask again.
const MOST: usize = 64;
/// The same where many join at once, and all contact the oldest silos.
const MOST_AT_ONCE: usize = 1024;

/// How many addresses that are not confirmed are dialled within [`PERIOD`].
const UNCONFIRMED: u32 = 256;
const PERIOD: Duration = Duration::from_secs(1);

#[derive(Debug, Default)]
pub(super) struct Callers {
    held: BTreeMap<SiloAddress, Caller>,
    /// When the first of these unconfirmed addresses was dialled.
    unconfirmed: (MonoTime, u32),
    /// The version of the view in which they were last looked for.
    seen: u64,
    /// Those that have told this silo a word and were dialled: it need not ask them.
    met: Vec<Met>,
}

/// A silo that joins, has dialled this one and told it a word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Met {
    pub(super) silo: SiloAddress,
    /// What names its request, and its answer that the answer to it has come.
    pub(super) nonce: u64,
    pub(super) word: u64,
}

#[derive(Debug)]
struct Caller {
    at: MonoTime,
    instance: InstanceId,
    nonce: u64,
    word: Option<u64>,
}

impl Callers {
    pub(super) fn hold(
        &mut self,
        ctx: &Ctx,
        silo: SiloAddress,
        instance: InstanceId,
        (nonce, word): (u64, Option<u64>),
    ) {
        let most = if ctx.variant.scribe {
            MOST_AT_ONCE
        } else {
            MOST
        };
        let caller = Caller {
            at: ctx.mono(),
            instance,
            nonce,
            word,
        };
        // One process has one address.
        self.held.retain(|_, held| held.instance != instance);
        self.held.insert(silo, caller);
        if self.held.len() > most {
            let oldest = self.held.iter().min_by_key(|(_, caller)| caller.at);
            if let Some(silo) = oldest.map(|(silo, _)| *silo) {
                self.held.remove(&silo);
            }
        }
    }

    /// Whether an announced row waits for the table's word, because too many were dialled without it.
    pub(super) fn wait_for_the_table(&self, ctx: &Ctx) -> bool {
        let is_told = |(silo, c): (&SiloAddress, &Caller)| is_announced(ctx, silo, c.instance);
        self.unconfirmed.1 >= UNCONFIRMED && self.held.iter().any(is_told)
    }

    /// Dials those whose rows have been announced since.
    pub(super) fn follow(&mut self, ctx: &mut Ctx) {
        if ctx.version() != self.seen && !self.held.is_empty() && trusts_announced_rows(ctx) {
            self.dial(ctx);
        }
    }

    /// A silo has been dialled that told this word with its request, if it did.
    pub(super) fn on_met(&mut self, silo: SiloAddress, nonce: u64, word: Option<u64>) {
        remember(&mut self.met, silo, nonce, word);
    }

    /// Those that were met since the last time.
    pub(super) fn take_met(&mut self) -> Vec<Met> {
        std::mem::take(&mut self.met)
    }

    /// Dials those whose rows this silo has read since.
    pub(super) fn dial(&mut self, ctx: &mut Ctx) {
        let (now, patience) = (ctx.mono(), ctx.config.probe_period);
        self.seen = ctx.version();
        let (unconfirmed, met) = (&mut self.unconfirmed, &mut self.met);
        if now.since(unconfirmed.0) >= PERIOD {
            *unconfirmed = (now, 0);
        }
        self.held.retain(|silo, caller| {
            if !ctx.is_member(silo, caller.instance) {
                if unconfirmed.1 >= UNCONFIRMED || !is_announced(ctx, silo, caller.instance) {
                    return now.since(caller.at) < patience;
                }
                unconfirmed.1 += 1;
            }
            ctx.dial_back(*silo, caller.nonce);
            remember(met, *silo, caller.nonce, caller.word);
            false
        });
    }
}

fn remember(met: &mut Vec<Met>, silo: SiloAddress, nonce: u64, word: Option<u64>) {
    if let Some(word) = word.filter(|_| met.len() < MOST_AT_ONCE) {
        met.push(Met { silo, nonce, word });
    }
}

fn trusts_announced_rows(ctx: &Ctx) -> bool {
    ctx.variant.scribe || ctx.table.failing_since.is_some()
}

/// Whether another silo has announced this row, where that is enough.
pub(super) fn is_announced(ctx: &Ctx, silo: &SiloAddress, instance: InstanceId) -> bool {
    let row = ctx.view.as_ref().and_then(|view| view.get(silo));
    let lives = |e: &MembershipEntry| e.instance_id == instance && e.status != SiloStatus::Dead;
    trusts_announced_rows(ctx) && row.is_some_and(lives)
}

impl Ctx {
    /// Proves to a silo that its address can be dialled; with a word if it has to prove that to others.
    pub(super) fn dial_back(&mut self, silo: SiloAddress, nonce: u64) {
        let answer = if self.variant.scribe {
            let word = self.words.for_silo(&silo);
            Message::Vouch { nonce, word }
        } else {
            Message::DialBack { nonce }
        };
        self.dial_afresh(silo.endpoint(), Some(silo), answer);
    }
}
