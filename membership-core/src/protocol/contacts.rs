//! Two-way contact before becoming Active: who must be reached, who answers me, and who dialled my advertised address. Invariant P9.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::time::Duration;

use super::context::Ctx;
use super::message::Message;
use super::notice::Unreached;
use crate::{Heartbeats, MAX_SAFE_INTEGER, MonoTime, SiloAddress, SiloStatus};

/// A row whose heartbeat is so far behind my clock, and that does not answer, need not be reached.
const ABANDONED: Duration = Duration::from_secs(15 * 60);

#[derive(Debug)]
struct Contact {
    answers: bool,
    dials: bool,
    nonce: u64,
    /// Since when I try.
    since: MonoTime,
    /// When I try next, and how long I waited for that.
    next: (MonoTime, Duration),
    error: Option<String>,
}

#[derive(Debug, Default)]
pub(crate) struct Contacts {
    all: BTreeMap<SiloAddress, Contact>,
    /// The one that was found missing last: while it is, nobody else is looked at.
    missing: Option<SiloAddress>,
}

/// Why an Active silo need not be reached.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PassedOver<'a> {
    /// My own judgement of heartbeats.
    pub(crate) stale: &'a BTreeSet<SiloAddress>,
    /// The heartbeats read last.
    pub(crate) beats: &'a Heartbeats,
}

impl Contacts {
    pub(crate) fn clear(&mut self) {
        self.all.clear();
        self.missing = None;
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
        let incarnations = SiloAddress::at(to, 0)..=SiloAddress::at(to, MAX_SAFE_INTEGER);
        for (_, contact) in self.all.range_mut(incarnations) {
            contact.error = Some(reason.to_owned());
        }
    }

    /// Active rows whose last heartbeat is so old by my clock that they need not be reached. My clock alone proves nothing: they must also
    /// have kept silent for a failure window while I tried.
    pub(crate) fn abandoned(&self, ctx: &Ctx, passed: &PassedOver<'_>) -> BTreeSet<SiloAddress> {
        ctx.members
            .active
            .iter()
            .filter(|s| self.is_abandoned(ctx, passed, s))
            .copied()
            .collect()
    }

    fn is_abandoned(&self, ctx: &Ctx, passed: &PassedOver<'_>, silo: &SiloAddress) -> bool {
        let old = passed
            .beats
            .silos
            .get(silo)
            .is_some_and(|beat| ctx.now.wall.since(beat.at) > ABANDONED);
        old && self
            .all
            .get(silo)
            .is_some_and(|c| !c.answers && ctx.mono().since(c.since) >= ctx.failure_window())
    }

    /// Whether I must reach an Active silo.
    fn is_required(&self, ctx: &Ctx, passed: &PassedOver<'_>, silo: &SiloAddress) -> bool {
        !silo.same_endpoint(&ctx.me)
            && !passed.stale.contains(silo)
            && !self.is_abandoned(ctx, passed, silo)
    }

    /// Everybody whom I must reach: the Active silos that are not stale.
    pub(crate) fn required(&self, ctx: &Ctx, passed: &PassedOver<'_>) -> BTreeSet<SiloAddress> {
        ctx.members
            .active
            .iter()
            .filter(|s| self.is_required(ctx, passed, s))
            .copied()
            .collect()
    }

    /// Whether anybody whom I must reach is not reached both ways. Asked after every input: it goes on where it found somebody missing the
    /// last time, so that all questions of a join together cost about one pass over the Active silos.
    pub(crate) fn lacks_any(&mut self, ctx: &Ctx, passed: &PassedOver<'_>) -> bool {
        let active = &ctx.members.active;
        let lacks = |s: &SiloAddress| {
            self.all.get(s).is_none_or(|c| !(c.answers && c.dials))
                && self.is_required(ctx, passed, s)
        };
        let from = self
            .missing
            .map_or(0, |last| active.partition_point(|s| *s < last));
        let found = active[from..]
            .iter()
            .chain(&active[..from])
            .find(|s| lacks(s))
            .copied();
        self.missing = found;
        found.is_some()
    }

    /// Tries everybody who is not reached yet: other joiners too, though those hold nobody up, and whoever is passed over for now, because
    /// an answer makes it count again. Each is tried after `retry`, and then half as often each time, down to once per probe timeout: where
    /// all of a large cluster join over the rows of those that crashed, everybody knocks at every dead door.
    pub(crate) fn try_again(
        &mut self,
        ctx: &mut Ctx,
        required: &BTreeSet<SiloAddress>,
        retry: Duration,
    ) {
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
            let contact = self.all.entry(silo).or_insert_with(|| Contact {
                answers: false,
                dials: false,
                nonce,
                since: now,
                next: (now, retry / 2),
                error: None,
            });
            if contact.answers && contact.dials || now < contact.next.0 {
                continue;
            }
            let wait = (contact.next.1 * 2).min(ctx.config.probe_timeout.max(retry));
            contact.next = (now + wait, wait);
            // Also one that answered: while it does it is not stale, and I wait until it reaches me.
            let (nonce, dials) = (contact.nonce, contact.dials);
            ctx.send_to(silo, Message::Probe { nonce });
            if !dials {
                ctx.send_to(
                    silo,
                    Message::DialMe {
                        nonce,
                        endpoint: ctx.identity.advertise,
                    },
                );
            }
        }
    }

    /// Everybody with whom there is contact both ways.
    pub(crate) fn both_ways(&self) -> Vec<SiloAddress> {
        self.all
            .iter()
            .filter(|(_, c)| c.answers && c.dials)
            .map(|(s, _)| *s)
            .collect()
    }

    pub(crate) fn unreached(&self, required: &BTreeSet<SiloAddress>) -> Vec<Unreached> {
        required
            .iter()
            .filter_map(|s| {
                let c = self.all.get(s);
                let (i_reach_it, it_reaches_me) =
                    (c.is_some_and(|c| c.answers), c.is_some_and(|c| c.dials));
                let last_error = c.and_then(|c| c.error.clone());
                (!(i_reach_it && it_reaches_me)).then_some(Unreached {
                    silo: *s,
                    i_reach_it,
                    it_reaches_me,
                    last_error,
                })
            })
            .collect()
    }
}
