//! Heartbeats and the doubt about those that do not answer them (specification, failure detector).

use std::collections::{BTreeMap, BTreeSet};

use membership_core::{MonoTime, SiloAddress};

use super::context::{Ctx, Timer};
use super::data_centres;
use super::message::Message;
use super::phi::Detector;
use super::ring;
use crate::downing::broken_links;
use crate::state::Version;

/// How many others a member watches that is at one end of a broken link.
const WATCHED_BY_AN_END: u32 = 64;
/// How many others a member asks in each round while it hears nobody.
const ASKED_ALONE: usize = 3;

/// The members that this one watches, in its own data centre and in others.
#[derive(Debug, Default)]
pub(crate) struct Heartbeats {
    targets: BTreeSet<SiloAddress>,
    /// Whether this member is at one end of a link that is flagged as broken, although there is a way to
    /// the other end. Which of the two it is shows in how many others it does not reach: it watches more of
    /// them, and does not wait for others to reach them.
    is_end: bool,
    /// For which state the targets were chosen.
    chosen_for: Option<Version>,
    pub(crate) detectors: BTreeMap<SiloAddress, Detector>,
    /// Those of other data centres.
    cross: BTreeSet<SiloAddress>,
    nonce: u32,
}

impl Heartbeats {
    /// Starts the rounds.
    pub(crate) fn start(ctx: &mut Ctx) {
        let now = ctx.mono();
        ctx.timers
            .set(Timer::Heartbeat, now + ctx.config.heartbeat_interval);
        let cross = now + ctx.config.cross_data_center_heartbeat_interval;
        ctx.timers.set(Timer::CrossHeartbeat, cross);
    }

    /// One round within the data centre.
    pub(crate) fn round(&mut self, ctx: &mut Ctx) {
        let now = ctx.mono();
        ctx.timers
            .set(Timer::Heartbeat, now + ctx.config.heartbeat_interval);
        self.look_for_ends(ctx);
        self.choose(ctx);
        let watched: Vec<_> = self
            .detectors
            .keys()
            .filter(|member| !self.cross.contains(member))
            .copied()
            .collect();
        if ctx.hears_nobody() {
            // All whom it watches may have ended. Others may know that this one is gone, and tell it so;
            // else they say nothing: whoever hears a flagged member is as alone as before.
            let me = ctx.me;
            let members = ctx.gossip.state().members().iter().map(|m| m.address());
            let others = members.filter(|other| *other != me && !watched.contains(other));
            let others = others.collect();
            for other in ctx.sample(others, ASKED_ALONE) {
                ctx.send(other, Message::Relayed { subject: me });
            }
        }
        for member in watched {
            self.probe(ctx, member);
        }
    }

    /// One round to other data centres.
    pub(crate) fn cross_round(&mut self, ctx: &mut Ctx) {
        let now = ctx.mono();
        let interval = ctx.config.cross_data_center_heartbeat_interval;
        ctx.timers.set(Timer::CrossHeartbeat, now + interval);
        let targets = data_centres::targets(ctx);
        let (before, cross) = (std::mem::take(&mut self.cross), targets);
        for gone in before.difference(&cross) {
            self.detectors.remove(gone);
        }
        let deadline = interval + ctx.config.cross_data_center_pause;
        for member in &cross {
            let fresh = || Detector::deadline(deadline, now);
            self.detectors.entry(*member).or_insert_with(fresh);
        }
        self.cross = cross;
        for member in self.cross.clone() {
            self.probe(ctx, member);
        }
    }

    pub(crate) fn probe(&mut self, ctx: &mut Ctx, member: SiloAddress) {
        self.nonce = self.nonce.wrapping_add(1);
        let nonce = self.nonce;
        ctx.send(member, Message::Heartbeat { nonce });
    }

    /// Whether this member is at one end of a broken link, until nobody is flagged by it, nor flags it.
    fn look_for_ends(&mut self, ctx: &Ctx) {
        if ctx.config.relayed_heartbeats == 0 {
            return;
        }
        let (gossip, scope) = (&ctx.gossip, ctx.scope());
        let is_end = if self.is_end {
            let unreachable = scope.unreachable(gossip.state());
            unreachable.contains(&ctx.me) || unreachable.iter().any(|(_, by)| by.contains(&ctx.me))
        } else {
            let broken = broken_links(gossip, &scope);
            broken.iter().any(|(o, s)| [o, s].contains(&&ctx.me))
        };
        if is_end != self.is_end {
            self.is_end = is_end;
            self.chosen_for = None;
        }
    }

    /// Chooses targets anew if the state has changed. One that is not chosen any more and does not
    /// answer is watched until it answers or is removed.
    fn choose(&mut self, ctx: &Ctx) {
        let version = ctx.gossip.version();
        if self.chosen_for == Some(version) {
            return;
        }
        self.chosen_for = Some(version);
        let (state, now) = (ctx.gossip.state(), ctx.mono());
        let wanted = ctx.config.monitored_by;
        let wanted = if self.is_end {
            wanted.max(WATCHED_BY_AN_END)
        } else {
            wanted
        };
        self.targets = ring::nearest(state, &ctx.scope(), &ctx.config, wanted);
        for member in &self.targets {
            let fresh = || Detector::phi(&ctx.config, now);
            self.detectors.entry(*member).or_insert_with(fresh);
        }
        let (targets, cross) = (&self.targets, &self.cross);
        self.detectors.retain(|member, detector| {
            let wanted = targets.contains(member) || cross.contains(member);
            let is_silent = !detector.is_available(now) || detector.is_vouched();
            let owed = is_silent || ctx.flags(member);
            ctx.knows(member) && (wanted || owed)
        });
    }

    /// An answer of a member.
    pub(crate) fn answered(&mut self, now: MonoTime, member: &SiloAddress) {
        if let Some(detector) = self.detectors.get_mut(member) {
            detector.heartbeat(now);
        }
    }

    /// A member answered somebody else, or this process did not listen.
    pub(crate) fn forgive(&mut self, now: MonoTime, member: &SiloAddress) {
        if let Some(detector) = self.detectors.get_mut(member) {
            detector.forgive(now);
        }
    }

    /// A member does not answer this one, and has answered another one.
    pub(crate) fn vouch(&mut self, now: MonoTime, member: &SiloAddress) {
        if let Some(detector) = self.detectors.get_mut(member) {
            detector.vouch(now);
        }
    }

    /// Whether this member is at one end of a broken link.
    pub(crate) const fn is_end(&self) -> bool {
        self.is_end
    }

    /// The members watched now.
    pub(crate) const fn targets(&self) -> &BTreeSet<SiloAddress> {
        &self.targets
    }
}
