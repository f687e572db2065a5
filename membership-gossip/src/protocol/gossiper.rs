//! Rounds of gossip: whom to speak with, what to say, and what to answer (specification, gossip
//! protocol).
//!
//! A round begins with a small status. Who has more answers with what the other lacks. With
//! [`Spreading::States`] the first message of a round with a member that has not seen the state is
//! the state itself, and the answers are whole states.

use std::sync::Arc;
use std::time::Duration;

use membership_core::SiloAddress;

use super::context::{Ctx, Timer};
use super::data_centres;
use super::message::Message;
use crate::Spreading;
use crate::state::{Base, Causality, Delta, Gossip, MemberStatus, Seen, VectorClock, Version};

/// Plans the rounds.
pub(crate) fn start(ctx: &mut Ctx) {
    let first = ctx.below(1_000) as u32;
    let delay = ctx.config.gossip_interval * first / 1_000;
    ctx.timers.set(Timer::Gossip, ctx.mono() + delay);
}

/// One round, and two more in this interval while few have seen the state.
pub(crate) fn round(ctx: &mut Ctx, fast: bool) {
    let (now, interval) = (ctx.mono(), ctx.config.gossip_interval);
    if !fast {
        ctx.timers.set(Timer::Gossip, now + interval);
        if is_fast(ctx) {
            ctx.timers.set(Timer::FastGossip, now + interval / 3);
        }
    } else if ctx
        .timers
        .at(Timer::Gossip)
        .is_some_and(|at| at > now + interval / 2)
    {
        ctx.timers.set(Timer::FastGossip, now + interval / 3);
    }
    // Who hears nobody has nothing to say that is worth more than the word of those who do.
    if ctx.is_quiet() {
        return;
    }
    if let Some(peer) = choose(ctx) {
        begin(ctx, peer);
    }
}

/// Whether rounds come three times as often: while fewer than half of the members have seen the
/// state, or somebody is down who has to learn it.
fn is_fast(ctx: &Ctx) -> bool {
    let members = ctx.gossip.state().members();
    let down = |status| status == MemberStatus::Down;
    ctx.gossip.seen().len() * 2 < members.len() || members.iter().any(|m| down(m.status()))
}

/// Begins a round with a member.
pub(crate) fn begin(ctx: &mut Ctx, peer: SiloAddress) {
    let mine = ctx.gossip.state().member(&peer);
    let scope = ctx.scope();
    let informed = ctx.gossip.has_seen(&peer) || mine.is_some_and(|m| !scope.is_mine(m));
    if ctx.config.spreading == Spreading::States && !informed {
        send_state(ctx, peer);
    } else {
        send_status(ctx, peer, false);
    }
}

/// One member of this data centre, or sometimes of another one. Never one that this member flags:
/// those that others flag stay.
fn choose(ctx: &mut Ctx) -> Option<SiloAddress> {
    if let Some(peer) = data_centres::peer(ctx) {
        return Some(peer);
    }
    if let Some(peer) = any_peer(ctx) {
        return Some(peer);
    }
    let (state, scope) = (ctx.gossip.state(), ctx.scope());
    let peers: Vec<_> = state
        .members()
        .iter()
        .filter(|m| scope.is_mine(m) && m.address() != ctx.me && !m.end_confirmed())
        .map(|m| m.address())
        .filter(|member| !ctx.flags(member))
        .collect();
    let unseen: Vec<_> = peers
        .iter()
        .filter(|member| !ctx.gossip.has_seen(member))
        .copied()
        .collect();
    if !unseen.is_empty() {
        let probability = different_view_probability(
            ctx.config.gossip_different_view_probability,
            ctx.config.reduce_gossip_different_view_probability,
            ctx.gossip.state().members().len(),
        );
        if ctx.chance(probability) {
            return ctx.pick(&unseen);
        }
    }
    ctx.pick(&peers)
}

/// How often [`any_peer`] draws.
const DRAWS: usize = 8;

/// One member while all have seen the state, without a list of all.
fn any_peer(ctx: &mut Ctx) -> Option<SiloAddress> {
    let members = ctx.gossip.roster().addresses().len();
    if ctx.gossip.seen().len() < members {
        return None;
    }
    let scope = ctx.scope();
    (0..DRAWS).find_map(|_| {
        let at = ctx.below(members);
        let peer = *ctx.gossip.roster().addresses().get(at)?;
        let member = ctx.gossip.state().member(&peer)?;
        let speaks = scope.is_mine(member) && !member.end_confirmed();
        (speaks && peer != ctx.me && !ctx.flags(&peer)).then_some(peer)
    })
}

/// The probability of a round with a member that has not seen the state. It falls from `reduce_at`
/// members on, linearly to a tenth at three times as many, so that not all speak with a single one
/// that is behind.
#[must_use]
pub fn different_view_probability(probability: f64, reduce_at: u32, members: usize) -> f64 {
    let (low, members) = (f64::from(reduce_at), members as f64);
    let part = ((members - low) / (2.0 * low)).clamp(0.0, 1.0);
    probability * (1.0 - 0.9 * part)
}

fn send_status(ctx: &mut Ctx, peer: SiloAddress, answer: bool) {
    let clock = (ctx.config.spreading == Spreading::States)
        .then(|| Arc::new(ctx.gossip.state().clock().clone()));
    let body = Message::Status {
        version: ctx.gossip.version(),
        seen: ctx.gossip.seen().digest(),
        answer,
        clock,
    };
    ctx.send(peer, body);
}

pub(crate) fn send_state(ctx: &mut Ctx, peer: SiloAddress) {
    ctx.send(peer, Message::State(Arc::new(ctx.gossip.clone())));
}

fn send_seen(ctx: &mut Ctx, peer: SiloAddress) {
    let (version, seen) = (ctx.gossip.version(), ctx.gossip.seen().clone());
    ctx.send(peer, Message::Seen { version, seen });
}

/// Sends a peer what it lacks, if that is known; else the whole state.
fn send_missing(ctx: &mut Ctx, peer: SiloAddress, base: &Base) {
    let deltas = ctx.config.spreading == Spreading::Deltas;
    let delta = deltas
        .then(|| ctx.gossip.state().delta_since(base))
        .flatten();
    match delta {
        Some(delta) => {
            let (delta, seen) = (Arc::new(delta), ctx.gossip.seen().clone());
            ctx.send(peer, Message::Delta { delta, seen });
        }
        None => send_state(ctx, peer),
    }
}

/// Whether a message is too old: whoever is overwhelmed must not work on what waited.
pub(crate) fn is_stale(ctx: &Ctx, waited: Duration) -> bool {
    waited > ctx.config.gossip_time_to_live
}

/// A peer told its version.
pub(crate) fn on_status(
    ctx: &mut Ctx,
    from: SiloAddress,
    (version, seen): (Version, u64),
    answer: bool,
    clock: Option<&VectorClock>,
) {
    if version == ctx.gossip.version() {
        if seen != ctx.gossip.seen().digest() {
            match ctx.config.spreading {
                Spreading::Deltas => send_seen(ctx, from),
                Spreading::States => send_state(ctx, from),
            }
        }
        return;
    }
    if let Some(clock) = clock {
        match ctx.gossip.state().compare_clock(clock) {
            // The answer asks for the newer state.
            Causality::Before => send_status(ctx, from, true),
            _ => send_state(ctx, from),
        }
    } else if let Some(base) = ctx.known(&version) {
        send_missing(ctx, from, &base);
    } else if answer {
        // Neither knows the other's version.
        ask(ctx, from);
    } else {
        send_status(ctx, from, true);
    }
}

fn ask(ctx: &mut Ctx, peer: SiloAddress) {
    let base = ctx.gossip.state().base();
    let body = Message::Ask {
        version: base.version,
        floor: base.floor,
        clock: base.clock,
    };
    ctx.send(peer, body);
}

/// A peer asks for what it lacks.
pub(crate) fn on_ask(ctx: &mut Ctx, from: SiloAddress, base: &Base) {
    let causality = ctx.gossip.state().compare_clock(&base.clock);
    if causality != Causality::Before {
        send_missing(ctx, from, base);
    }
    // It has what this one lacks.
    if matches!(causality, Causality::Before | Causality::Concurrent) {
        ask(ctx, from);
    }
}

/// A whole state arrived.
pub(crate) fn on_state(ctx: &mut Ctx, from: SiloAddress, theirs: &Gossip) {
    // A state that does not know this member is older than its welcome, or not of its cluster.
    if theirs.state().status(&ctx.me).is_none() {
        return;
    }
    let base = theirs.state().base();
    let before = ctx.gossip.state().base();
    let merged = ctx.gossip.merge(theirs);
    took(ctx, before, Some(base.clone()), merged.changed);
    ctx.dirty |= merged.news;
    if ctx.gossip.version() != base.version {
        send_missing(ctx, from, &base);
    } else if theirs.seen() != ctx.gossip.seen() {
        match ctx.config.spreading {
            Spreading::Deltas => send_seen(ctx, from),
            // Only if they lack this member; the rest comes by rounds.
            Spreading::States if !theirs.has_seen(&ctx.me) => send_state(ctx, from),
            Spreading::States => {}
        }
    }
}

/// What this member lacks arrived.
pub(crate) fn on_delta(ctx: &mut Ctx, from: SiloAddress, delta: &Delta, seen: &Seen) {
    let Some(base) = ctx.known(&delta.base) else {
        // It completes a state that this one has never been.
        return ask(ctx, from);
    };
    // What they have is known only if they have all of the base.
    let theirs = delta.contains_base.then(|| {
        let mut clock = (*base.clock).clone();
        clock.merge(delta.part().clock());
        Base {
            version: delta.version,
            clock: Arc::new(clock),
            floor: base.floor,
        }
    });
    let before = ctx.gossip.state().base();
    let merged = ctx.gossip.apply(delta, seen);
    took(ctx, before, theirs.clone(), merged.changed);
    ctx.dirty |= merged.news;
    if ctx.gossip.version() == delta.version {
        if seen != ctx.gossip.seen() {
            send_seen(ctx, from);
        }
    } else if let Some(theirs) = theirs.filter(|_| merged.changed || !delta.is_empty()) {
        send_missing(ctx, from, &theirs);
    } else if !merged.changed {
        // Nothing came of it: only whole states tell what is different.
        send_state(ctx, from);
    }
}

/// Notes which versions the state contains after a merge, and that this member has seen it.
fn took(ctx: &mut Ctx, before: Base, theirs: Option<Base>, changed: bool) {
    if changed {
        ctx.remember(before);
        ctx.dirty = true;
    }
    if let Some(theirs) = theirs {
        ctx.remember(theirs);
    }
    let me = ctx.me;
    ctx.dirty |= ctx.gossip.mark_seen(&me);
}

/// A peer told who has seen the state.
pub(crate) fn on_seen(ctx: &mut Ctx, from: SiloAddress, version: Version, seen: &Seen) {
    if version != ctx.gossip.version() {
        return;
    }
    let members = ctx.gossip.roster().addresses().len();
    let seen = Seen::from_bits(seen.bits().to_vec(), members);
    let merged = ctx.gossip.learn_seen(false, version, &seen);
    ctx.dirty |= merged.news;
    if merged.they_lack {
        send_seen(ctx, from);
    }
}

/// Tells a few members at once: this one is about to end. Those first that are reached, and have not
/// seen the state.
pub(crate) fn tell_some(ctx: &mut Ctx, count: usize) {
    let unreachable = ctx.scope().unreachable(ctx.gossip.state());
    let others = ctx.gossip.state().members().iter();
    let others = others.filter(|m| m.address() != ctx.me && !m.end_confirmed());
    let (reached, unreached): (Vec<_>, Vec<_>) = others
        .map(|m| m.address())
        .partition(|member| !unreachable.contains(member) && !ctx.gossip.has_seen(member));
    let first = ctx.sample(reached, count);
    let more = ctx.sample(unreached, count - first.len());
    for peer in first.into_iter().chain(more) {
        send_state(ctx, peer);
    }
}
