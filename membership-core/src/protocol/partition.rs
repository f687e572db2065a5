//! The partition check before a vote against a silo whose heartbeat still moves: is this silo on
//! the larger side? A crash stops heartbeats in the table; a partition between silos does not.
//! Therefore a voter must itself reach a majority of the Active silos. Invariant P11.
//!
//! The check probes every Active silo once and each suspect three times. It ends when all have
//! answered or after one timeout, never earlier: a suspect that answers is alive.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::context::Ctx;
use super::message::Message;
use super::timers::Timer;
use crate::{MonoTime, SiloAddress};

/// Number of probes to each suspect in one check.
const SUSPECT_PROBES: u32 = 3;

#[derive(Debug)]
struct Running {
    began: MonoTime,
    timeout: Duration,
    suspects: BTreeSet<SiloAddress>,
    /// The suspects with the reason "stuck": their answers are no evidence in their favour.
    stuck: BTreeSet<SiloAddress>,
    nonces: BTreeMap<u64, SiloAddress>,
    waiting: BTreeSet<SiloAddress>,
    answered: BTreeSet<SiloAddress>,
    sent: u32,
}

/// The result of a check.
#[derive(Debug, Default)]
pub(crate) struct Verdict {
    /// Suspects that did not answer or are stuck, each with whether this side may vote against it
    /// although it is not stale.
    pub(crate) silent: Vec<(SiloAddress, bool)>,
    pub(crate) at: MonoTime,
}

#[derive(Debug, Default)]
pub(crate) struct PartitionCheck {
    running: Option<Running>,
}

impl PartitionCheck {
    pub(crate) fn is_running(&self) -> bool {
        self.running.is_some()
    }

    pub(crate) fn void(&mut self, ctx: &mut Ctx) {
        self.running = None;
        ctx.timers.clear(Timer::Check);
    }

    pub(crate) fn start(
        &mut self,
        ctx: &mut Ctx,
        suspects: BTreeSet<SiloAddress>,
        stuck: BTreeSet<SiloAddress>,
        timeout: Duration,
    ) {
        let mut peers: BTreeSet<SiloAddress> = ctx.members.active.iter().copied().collect();
        if suspects.iter().any(|s| is_joining(ctx, s)) {
            peers.extend(ctx.members.alive.iter().filter(|s| is_joining(ctx, s)));
        }
        peers.remove(&ctx.me);
        let mut running = Running {
            began: ctx.mono(),
            timeout,
            waiting: peers.union(&suspects).copied().collect(),
            suspects,
            stuck,
            nonces: BTreeMap::new(),
            answered: BTreeSet::new(),
            sent: 1,
        };
        for silo in running.waiting.clone() {
            probe(ctx, &mut running, silo);
        }
        self.running = Some(running);
        ctx.set_timer(Timer::Check, timeout / SUSPECT_PROBES);
    }

    /// Handles an answer to a probe of this check; returns when the check began.
    pub(crate) fn on_ack(&mut self, from: SiloAddress, nonce: u64) -> Option<MonoTime> {
        let running = self.running.as_mut()?;
        running.nonces.get(&nonce).filter(|s| **s == from)?;
        running.waiting.remove(&from);
        running.answered.insert(from);
        Some(running.began)
    }

    /// The verdict, once the check has ended.
    pub(crate) fn poll(&mut self, ctx: &mut Ctx) -> Option<Verdict> {
        let running = self.running.as_ref()?;
        if !running.waiting.is_empty() && ctx.mono().since(running.began) < running.timeout {
            return None;
        }
        let running = self.running.take()?;
        ctx.timers.clear(Timer::Check);
        let silent = running
            .suspects
            .iter()
            .filter(|s| !running.answered.contains(s) || running.stuck.contains(s))
            .map(|s| (*s, majority(ctx, &running.answered, is_joining(ctx, s))))
            .collect();
        Some(Verdict {
            silent,
            at: ctx.mono(),
        })
    }

    pub(crate) fn on_timer(&mut self, ctx: &mut Ctx) {
        let Some(mut running) = self.running.take() else {
            return;
        };
        if running.sent < SUSPECT_PROBES {
            running.sent += 1;
            for silo in running.suspects.clone() {
                if running.waiting.contains(&silo) {
                    probe(ctx, &mut running, silo);
                }
            }
            let due = running.began + running.timeout * running.sent / SUSPECT_PROBES;
            ctx.timers.set(Timer::Check, due);
        }
        self.running = Some(running);
    }
}

fn probe(ctx: &mut Ctx, running: &mut Running, silo: SiloAddress) {
    let nonce = ctx.random();
    running.nonces.insert(nonce, silo);
    ctx.send_to(silo, Message::Probe { nonce });
}

fn is_joining(ctx: &Ctx, silo: &SiloAddress) -> bool {
    ctx.members.joining.binary_search(silo).is_ok()
}

/// Whether this silo and the silos that answered are the larger side. Of two equal halves it is the
/// one with the leader.
fn majority(ctx: &Ctx, answered: &BTreeSet<SiloAddress>, with_joining: bool) -> bool {
    let Some(view) = &ctx.base else { return false };
    let voters: BTreeSet<SiloAddress> = if with_joining {
        ctx.members
            .active
            .iter()
            .chain(&ctx.members.joining)
            .copied()
            .collect()
    } else {
        ctx.members.active.iter().copied().collect()
    };
    if ctx.members.active.len() <= 2 {
        return false;
    }
    let reached = |s: &SiloAddress| *s == ctx.me || answered.contains(s);
    let count = voters.iter().filter(|s| reached(s)).count();
    count * 2 > voters.len()
        || (count * 2 == voters.len() && view.leader().is_some_and(|l| reached(&l.address)))
}
