//! Partial partitions, for people: the silos that this one does not reach and others do, as far as
//! its own roll calls show it, and in a large cluster its [`survey`](super::survey).
//!
//! Nothing in the protocol rests on this. A silo is named once it has answered nothing for a failure
//! window after a roll call in which others reached it, until it answers or this silo no longer
//! probes it. So a crash, a lost message and a short fault of a link name nobody, and a small cluster
//! in which all is well pays nothing.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::context::Ctx;
use super::message::MAX_NAMED;
use super::notice::Notice;
use super::prober::Prober;
use super::survey::Survey;
use crate::{MonoTime, RollCount, SiloAddress};

/// A silo that another one does not reach, though others do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct NotReached {
    /// The silo that is not reached.
    pub silo: SiloAddress,
    /// The last roll call about it: how many others reach it. Nobody was asked if this silo does not
    /// probe it, and found it in its survey of a large cluster.
    pub roll_call: RollCount,
}

impl NotReached {
    /// Creates the value for a silo, of which the last roll call gave this.
    #[must_use]
    pub const fn new(silo: SiloAddress, roll_call: RollCount) -> Self {
        Self { silo, roll_call }
    }
}

#[derive(Debug)]
struct Found {
    /// When the first of its roll calls ended in which others reached it.
    since: MonoTime,
    roll_call: RollCount,
}

#[derive(Debug, Default)]
pub(crate) struct Reach {
    found: BTreeMap<SiloAddress, Found>,
    /// The silos that this one does not probe.
    survey: Survey,
    /// The silos that were told last, and when.
    told: Vec<SiloAddress>,
    told_at: Option<MonoTime>,
}

impl Reach {
    /// A roll call of this silo has ended. Of each suspect that this silo failed to reach and that
    /// was not voted out: what the call gave, if others reached it.
    pub(crate) fn on_call(&mut self, now: MonoTime, kept: Vec<(SiloAddress, Option<RollCount>)>) {
        for (silo, reached) in kept {
            match reached {
                Some(roll_call) => {
                    let found = self.found.entry(silo).or_insert(Found {
                        since: now,
                        roll_call,
                    });
                    found.roll_call = roll_call;
                }
                None => {
                    self.found.remove(&silo);
                }
            }
        }
    }

    /// It answered this silo.
    pub(crate) fn on_sign_of_life(&mut self, silo: &SiloAddress) {
        self.found.remove(silo);
        self.survey.on_sign_of_life(silo);
    }

    /// Handles the answer to a probe that nobody else waits for.
    pub(crate) fn on_ack(&mut self, from: &SiloAddress, nonce: u64) {
        self.survey.on_ack(from, nonce);
    }

    /// The silos that this one has not reached for a failure window, though others do.
    pub(crate) fn unreached(&self, ctx: &Ctx) -> Vec<NotReached> {
        let now = ctx.mono();
        let lasting = |f: &Found| now.since(f.since) >= ctx.failure_window();
        let found = self.found.iter().filter(|(_, found)| lasting(found));
        let called = found.map(|(silo, found)| NotReached::new(*silo, found.roll_call));
        let met = |silo| NotReached::new(silo, RollCount::default());
        let surveyed = self.survey.unreached().map(met);
        called
            .take(MAX_NAMED)
            .chain(surveyed)
            .take(MAX_NAMED)
            .collect()
    }

    /// Tells the application when other silos than before are not reached, at most once in a failure
    /// window. A silo that leaves says nothing more.
    pub(crate) fn look(&mut self, ctx: &mut Ctx, prober: &Prober) {
        self.survey.look(ctx, prober);
        let found_nobody = self.found.is_empty() && self.survey.found_nobody();
        if (found_nobody && self.told.is_empty()) || !ctx.is_active() {
            return;
        }
        let alive = &ctx.members.alive;
        self.found
            .retain(|s, _| prober.is_target(s) && alive.binary_search(s).is_ok());
        let now = ctx.mono();
        let unreached = self.unreached(ctx);
        let recent = |at: MonoTime| now.since(at) < ctx.failure_window();
        let same = unreached.iter().map(|u| &u.silo).eq(&self.told);
        if same || self.told_at.is_some_and(recent) {
            return;
        }
        self.told = unreached.iter().map(|u| u.silo).collect();
        self.told_at = Some(now);
        ctx.tell(Notice::PartialPartition { unreached });
    }
}
