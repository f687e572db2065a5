//! Two-way contact before becoming Active: who must be reached, who answers me, and who dialled my advertised address. Invariant P9.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::time::Duration;

use super::context::Ctx;
use super::io::Unreached;
use super::message::Message;
use crate::{MonoTime, SiloAddress, SiloStatus, WallTime};

/// A row whose heartbeat is so far behind my clock, and that does not answer, need not be reached.
const ABANDONED: Duration = Duration::from_secs(15 * 60);

#[derive(Debug)]
struct Contact {
    answers: bool,
    dials: bool,
    nonce: u64,
    /// Since when I try.
    since: MonoTime,
    error: Option<String>,
}

#[derive(Debug, Default)]
pub(crate) struct Contacts {
    all: BTreeMap<SiloAddress, Contact>,
}

impl Contacts {
    pub(crate) fn clear(&mut self) {
        self.all.clear();
    }

    /// A probe of a contact was answered. True when it was one of mine.
    pub(crate) fn on_ack(&mut self, from: SiloAddress, nonce: u64) -> bool {
        match self.all.get_mut(&from).filter(|c| c.nonce == nonce) {
            Some(contact) => {
                contact.answers = true;
                true
            }
            None => false,
        }
    }

    pub(crate) fn on_dial_back(&mut self, from: SiloAddress, nonce: u64) {
        if let Some(contact) = self.all.get_mut(&from).filter(|c| c.nonce == nonce) {
            contact.dials = true;
        }
    }

    pub(crate) fn on_send_failed(&mut self, to: SocketAddr, reason: &str) {
        for (_, contact) in self.all.iter_mut().filter(|(silo, _)| silo.endpoint() == to) {
            contact.error = Some(reason.to_owned());
        }
    }

    /// Active rows whose last heartbeat is so old by my clock that they need not be reached. My clock alone proves nothing: they must also
    /// have kept silent for a failure window while I tried.
    pub(crate) fn abandoned(&self, ctx: &Ctx, last_beats: &BTreeMap<SiloAddress, WallTime>) -> BTreeSet<SiloAddress> {
        let (now, window) = (ctx.mono(), ctx.failure_window());
        let silent = |s: &SiloAddress| self.all.get(s).is_some_and(|c| !c.answers && now.since(c.since) >= window);
        let old = |s: &SiloAddress| last_beats.get(s).is_some_and(|at| ctx.now.wall.since(*at) > ABANDONED);
        ctx.members.active.iter().filter(|s| old(s) && silent(s)).copied().collect()
    }

    /// Everybody whom I must reach: the Active silos that are not stale. `stale` is my own judgement of heartbeats.
    pub(crate) fn required(
        &self,
        ctx: &Ctx,
        stale: &BTreeSet<SiloAddress>,
        last_beats: &BTreeMap<SiloAddress, WallTime>,
    ) -> BTreeSet<SiloAddress> {
        let abandoned = self.abandoned(ctx, last_beats);
        ctx.members
            .active
            .iter()
            .filter(|s| **s != ctx.me && !s.same_endpoint(&ctx.me) && !stale.contains(s) && !abandoned.contains(s))
            .copied()
            .collect()
    }

    /// Tries everybody who is not reached yet: other joiners too, though those hold nobody up, and whoever is passed over for now, because
    /// an answer makes it count again.
    pub(crate) fn try_again(&mut self, ctx: &mut Ctx, required: &BTreeSet<SiloAddress>) {
        let Some(view) = &ctx.view else { return };
        let tried_before = |s: &SiloAddress| self.all.contains_key(s);
        let wanted: BTreeSet<SiloAddress> = view
            .members()
            .filter(|e| match e.status {
                SiloStatus::Joining => e.address != ctx.me,
                SiloStatus::Active => required.contains(&e.address) || tried_before(&e.address),
                _ => false,
            })
            .map(|e| e.address)
            .collect();
        let now = ctx.mono();
        for silo in wanted {
            let nonce = ctx.random();
            let contact = self.all.entry(silo).or_insert_with(|| Contact { answers: false, dials: false, nonce, since: now, error: None });
            if contact.answers && contact.dials {
                continue;
            }
            // Also one that answered: while it does it is not stale, and I wait until it reaches me.
            let (nonce, dials) = (contact.nonce, contact.dials);
            ctx.send_to(silo, Message::Probe { nonce });
            if !dials {
                ctx.send_to(silo, Message::DialMe { nonce, endpoint: ctx.identity.advertise });
            }
        }
    }

    /// Everybody with whom there is contact both ways.
    pub(crate) fn both_ways(&self) -> Vec<SiloAddress> {
        self.all.iter().filter(|(_, c)| c.answers && c.dials).map(|(s, _)| *s).collect()
    }

    pub(crate) fn unreached(&self, required: &BTreeSet<SiloAddress>) -> Vec<Unreached> {
        required
            .iter()
            .filter_map(|s| {
                let c = self.all.get(s);
                let (i_reach_it, it_reaches_me) = (c.is_some_and(|c| c.answers), c.is_some_and(|c| c.dials));
                let last_error = c.and_then(|c| c.error.clone());
                (!(i_reach_it && it_reaches_me)).then_some(Unreached { silo: *s, i_reach_it, it_reaches_me, last_error })
            })
            .collect()
    }
}
