//! Heartbeats and the doubt about those that do not answer them (specification, failure detector).

use std::collections::{BTreeMap, BTreeSet};

use membership_core::{MonoTime, SiloAddress};

use super::context::{Ctx, Timer};
use super::data_centres;
use super::message::Message;
use super::phi::Detector;
use super::ring;
use crate::state::Version;

/// How many others a member asks in each round while it hears nobody.
const ASKED_ALONE: usize = 3;

/// The members that this one watches, in its own data centre and in others.
#[derive(Debug, Default)]
pub(crate) struct Heartbeats {
    targets: BTreeSet<SiloAddress>,
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

    /// Chooses targets anew if the state has changed. One that is not chosen any more and does not
    /// answer is watched until it answers or is removed.
    fn choose(&mut self, ctx: &Ctx) {
        let version = ctx.gossip.version();
        if self.chosen_for == Some(version) {
            return;
        }
        self.chosen_for = Some(version);
        let (state, now) = (ctx.gossip.state(), ctx.mono());
        self.targets = ring::targets(state, &ctx.scope(), &ctx.config);
        for member in &self.targets {
            let fresh = || Detector::phi(&ctx.config, now);
            self.detectors.entry(*member).or_insert_with(fresh);
        }
        let (targets, cross) = (&self.targets, &self.cross);
        self.detectors.retain(|member, detector| {
            let wanted = targets.contains(member) || cross.contains(member);
            let owed = !detector.is_available(now) || ctx.flags(member);
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

    /// The members watched now.
    pub(crate) const fn targets(&self) -> &BTreeSet<SiloAddress> {
        &self.targets
    }
}
