//! A silo that cannot be reached finds out: it may be the only Active one, so that nobody can vote it
//! out, and then it would keep all others from joining. Invariant P14.
//!
//! It looks for a reason only while silos are Joining, or votes against it are fresh, and no member
//! has probed it for a failure window. Then it leaves if
//!
//! * its own advertised address does not lead back to it, though another silo answers it (or no other
//!   one is left that could): where nobody answers anybody, all would leave because of one outage; or
//! * Joining silos have challenged it after a roll call in which more than half of all did not reach
//!   it and nobody did. (Its own address may lead back to it within its host.)

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::time::Duration;

use super::context::Ctx;
use super::joiner::MEETING;
use super::message::Message;
use super::notice::Unreachability;
use crate::intent::FEW;
use crate::{MonoTime, SiloAddress, Suspicion, SuspicionReason};

/// The time between two attempts.
const BETWEEN_ATTEMPTS: Duration = Duration::from_secs(1);
/// How many silos must say that they do not reach this one.
const VOICES: usize = 2;

#[derive(Debug, Default)]
pub(crate) struct Isolation {
    /// Since when there is a reason to look, without a probe of a member.
    since: Option<MonoTime>,
    dialling: Option<Dialling>,
    /// When the own address last led back.
    met: Option<MonoTime>,
    /// Why the last attempt failed.
    error: Option<String>,
}

#[derive(Debug)]
struct Dialling {
    nonce: u64,
    began: MonoTime,
    last: MonoTime,
}

impl Isolation {
    /// Discards all observations: this silo was paused, or the table was unavailable.
    pub(crate) fn reset(&mut self) {
        *self = Self::default();
    }

    /// This silo's own question arrived.
    pub(crate) fn on_met_myself(&mut self, now: MonoTime, nonce: u64) {
        if self.dialling.take_if(|d| d.nonce == nonce).is_some() {
            self.met = Some(now);
            self.error = None;
        }
    }

    pub(crate) fn on_send_failed(&mut self, ctx: &Ctx, to: SocketAddr, reason: &str) {
        if to == ctx.identity.advertise && self.dialling.is_some() {
            self.error = Some(reason.to_owned());
        }
    }

    /// Looks whether this silo can be reached; returns why not. `probed` = when a member last probed
    /// it, `heard` = when a member last answered it.
    pub(crate) fn look(
        &mut self,
        ctx: &mut Ctx,
        stale: &BTreeSet<SiloAddress>,
        probed: Option<MonoTime>,
        heard: Option<MonoTime>,
    ) -> Option<Unreachability> {
        let (now, window) = (ctx.mono(), ctx.failure_window());
        let recent = |at: MonoTime| now.since(at) < window;
        let others_join = ctx.members.joining.iter().any(|s| !stale.contains(s));
        let votes = || fresh_votes(ctx, &ctx.me).next().is_some();
        let able = ctx.is_active() && !ctx.suspended && !ctx.table_doubted();
        let wanted = able && ctx.table.failing_since.is_none() && (others_join || votes());
        if !wanted || probed.is_some_and(recent) {
            self.since = None;
            self.dialling = None;
            return None;
        }
        let since = *self.since.get_or_insert(now);
        if recent(since) {
            return None;
        }
        let accusers = outvoters(ctx, stale, &ctx.me, window);
        if !accusers.is_empty() {
            return Some(Unreachability::Outvoted { accusers });
        }
        // Whoever hears nobody either is voted out by the others, if they reach each other.
        let other = |s: &SiloAddress| *s != ctx.me && !stale.contains(s);
        if !heard.is_some_and(recent) && ctx.members.active.iter().any(other) {
            self.dialling = None;
            return None;
        }
        self.dial(ctx, window)
    }

    /// Dials the own advertised address, once in a failure window as long as it leads back.
    fn dial(&mut self, ctx: &mut Ctx, window: Duration) -> Option<Unreachability> {
        let now = ctx.mono();
        if self.met.is_some_and(|at| now.since(at) < window) {
            return None;
        }
        let nonce = ctx.random();
        let dialling = self.dialling.get_or_insert(Dialling {
            nonce,
            began: now,
            last: MonoTime::ZERO,
        });
        if now.since(dialling.began) >= window.max(MEETING) {
            return Some(Unreachability::OwnAddress {
                endpoint: ctx.identity.advertise,
                error: self.error.clone(),
            });
        }
        if dialling.last == MonoTime::ZERO || now.since(dialling.last) >= BETWEEN_ATTEMPTS {
            dialling.last = now;
            let nonce = dialling.nonce;
            ctx.dial_afresh(ctx.identity.advertise, None, Message::Identify { nonce });
        }
        None
    }
}

/// The fresh votes and challenges against a silo.
fn fresh_votes<'a>(ctx: &'a Ctx, silo: &'a SiloAddress) -> impl Iterator<Item = &'a Suspicion> {
    let accused = ctx.members.accused.binary_search(silo).is_ok();
    let entry = ctx.confirmed_entry(silo).filter(|_| accused);
    let votes = entry.map_or(&[][..], |e| &e.suspicions);
    votes.iter().filter(|v| ctx.is_fresh(*silo, v))
}

/// The Joining silos that challenge one of at most two Active ones, if they speak for more than half
/// of all and this silo has seen that for the time `seen`; otherwise nobody.
pub(crate) fn outvoters(
    ctx: &Ctx,
    stale: &BTreeSet<SiloAddress>,
    silo: &SiloAddress,
    seen: Duration,
) -> Vec<SiloAddress> {
    let fresh = |s: &&SiloAddress| !stale.contains(s);
    let active = ctx.members.active.iter().filter(fresh).count();
    let joining = ctx.members.joining.iter().filter(fresh).count();
    if active > FEW {
        return Vec::new();
    }
    let most = |v: &&Suspicion| {
        let count = |n: u32| usize::try_from(n).unwrap_or(usize::MAX);
        v.evidence.roll_call.is_some_and(|call| {
            call.reached == 0 && count(call.failed).saturating_mul(2) > active + joining
        })
    };
    let challenges = fresh_votes(ctx, silo).filter(|v| {
        v.reason == SuspicionReason::Challenge
            && ctx.members.joining.binary_search(&v.accuser).is_ok()
            && !stale.contains(&v.accuser)
            && !v.accuser.same_endpoint(silo)
            && ctx
                .members
                .sighted(silo, v)
                .is_some_and(|at| ctx.mono().since(at) >= seen)
    });
    let accusers: Vec<SiloAddress> = challenges.filter(most).map(|v| v.accuser).collect();
    let endpoints: BTreeSet<SocketAddr> = accusers.iter().map(|s| s.endpoint()).collect();
    if endpoints.len() >= VOICES {
        accusers
    } else {
        Vec::new()
    }
}
