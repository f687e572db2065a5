//! What all small machines share: who I am, the state, the current time, random numbers, effects.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::Arc;

use membership_core::protocol::{Destination, LinkId, Timers};
use membership_core::{FoundingId, InstanceId, MonoTime, Now, SiloAddress};
use rand_core::{Rng as _, SeedableRng as _};
use rand_xoshiro::Xoshiro256PlusPlus;

use super::io::{Effect, Notice};
use super::message::{Header, Message, PROTOCOL_VERSION};
use crate::Config;
use crate::convergence::Scope;
use crate::state::{Base, Edit, Gossip, MemberStatus, Profile, Version};

/// The times that the machine waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Timer {
    Join,
    Proof,
    Vouch,
    Gossip,
    FastGossip,
    Heartbeat,
    CrossHeartbeat,
    Leader,
    Resolver,
    AskLease,
    ReleaseLease,
    Leave,
}

/// How many former versions are remembered, to know what peers that have them lack.
const REMEMBERED: usize = 16;

#[derive(Debug)]
pub(crate) struct Ctx {
    pub(crate) now: Now,
    pub(crate) config: Config,
    pub(crate) cluster: u64,
    pub(crate) founding: Option<FoundingId>,
    pub(crate) me: SiloAddress,
    pub(crate) instance: InstanceId,
    pub(crate) profile: Arc<Profile>,
    pub(crate) timers: Timers<Timer>,
    pub(crate) gossip: Gossip,
    /// Versions that this state has been, or contains.
    history: VecDeque<Base>,
    /// When a member last said anything to this one.
    pub(crate) heard_at: MonoTime,
    /// Until when this member says nothing about others, because it heard nobody for a while.
    quiet_until: MonoTime,
    /// Something that a view shows has changed.
    pub(crate) dirty: bool,
    pub(crate) out: Vec<Effect>,
    rng: Xoshiro256PlusPlus,
}

impl Ctx {
    pub(crate) fn new(setup: super::Setup) -> Self {
        Self {
            now: Now::default(),
            config: setup.config,
            cluster: setup.cluster.fingerprint(),
            founding: None,
            me: SiloAddress::at(setup.advertise, setup.epoch),
            instance: setup.instance,
            profile: Arc::new(setup.profile),
            timers: Timers::default(),
            gossip: Gossip::default(),
            history: VecDeque::new(),
            heard_at: MonoTime::ZERO,
            quiet_until: MonoTime::ZERO,
            dirty: false,
            out: Vec::new(),
            rng: Xoshiro256PlusPlus::seed_from_u64(setup.seed),
        }
    }

    pub(crate) fn mono(&self) -> MonoTime {
        self.now.mono
    }

    pub(crate) fn scope(&self) -> Scope {
        Scope {
            me: self.me,
            data_centre: self.profile.data_centre.clone(),
            leaving_observers_count: self.config.leaving_observers_count,
        }
    }

    pub(crate) fn status(&self) -> Option<MemberStatus> {
        self.gossip.state().status(&self.me)
    }

    pub(crate) fn is_member(&self) -> bool {
        self.gossip.state().members().contains(&self.me)
    }

    /// Whether a member has ever been up in this cluster.
    pub(crate) fn is_established(&self) -> bool {
        let state = self.gossip.state();
        let up = state.members().iter().any(|m| m.up_number().is_some());
        up || !state.tombstones().is_empty() || state.tombstones().floor() > 0
    }

    /// Whether a member is in service in this cluster, of whatever data centre.
    pub(crate) fn is_in_service(&self) -> bool {
        let mut members = self.gossip.state().members().iter();
        members.any(|m| m.serves())
    }

    /// Whether somebody is in service for this member. One that only joins decides about nobody: those that
    /// nobody reaches may have ended for good.
    pub(crate) fn has_service(&self) -> bool {
        if self.status() != Some(MemberStatus::Joining) {
            return self.is_in_service();
        }
        let state = self.gossip.state();
        let unreachable = self.scope().unreachable(state);
        let mut members = state.members().iter();
        members.any(|m| m.serves() && !unreachable.contains(&m.address()))
    }

    /// A member that speaks to me, by the state that I know.
    pub(crate) fn knows(&self, address: &SiloAddress) -> bool {
        self.gossip.state().members().contains(address)
    }

    /// Whether I flag a member.
    pub(crate) fn flags(&self, address: &SiloAddress) -> bool {
        let reachability = self.gossip.state().reachability();
        reachability.flag(&self.me, address).is_some()
    }

    /// Whether this member hears nobody, although it has somebody to hear: then it is more likely that
    /// it is cut off, or that what it sends and receives is held up, than that all others have ended at
    /// one moment. In a cluster that works, others ask it for a sign of life every second.
    pub(crate) fn hears_nobody(&self) -> bool {
        self.alone_since().is_some()
    }

    /// Since when this member hears nobody.
    pub(crate) fn alone_since(&self) -> Option<MonoTime> {
        let since = self.heard_at + self.config.acceptable_heartbeat_pause;
        let doubts = self.config.doubt_oneself && self.gossip.state().members().len() > 1;
        (doubts && self.mono() > since).then_some(since)
    }

    /// Whether this member says nothing about others: it hears nobody, or heard nobody until a moment ago
    /// and has not had the time to ask them all again.
    pub(crate) fn is_quiet(&self) -> bool {
        self.hears_nobody() || self.mono() < self.quiet_until
    }

    /// A member says something to this one.
    pub(crate) fn hears(&mut self) {
        if self.hears_nobody() {
            let interval = self.config.heartbeat_interval;
            self.quiet_until = self.mono() + interval + interval / 2;
        }
        self.heard_at = self.mono();
    }

    /// Makes changes as this member; whether anything changed.
    pub(crate) fn edit<T>(&mut self, changes: impl FnOnce(&mut Edit<'_>) -> T) -> bool {
        let before = self.gossip.state().base();
        let changed = self.gossip.edit(self.me, changes);
        if changed {
            self.remember(before);
            self.dirty = true;
        }
        changed
    }

    /// Notes a version that this state contains.
    pub(crate) fn remember(&mut self, base: Base) {
        if self.known(&base.version).is_none() {
            self.history.push_back(base);
            if self.history.len() > REMEMBERED {
                self.history.pop_front();
            }
        }
    }

    /// What a member with this version has, if this state is that version or contains it.
    pub(crate) fn known(&self, version: &Version) -> Option<Base> {
        if self.gossip.version() == *version {
            return Some(self.gossip.state().base());
        }
        let mut known = self.history.iter();
        known.find(|base| base.version == *version).cloned()
    }

    /// Forgets the cluster, to start over.
    pub(crate) fn forget_cluster(&mut self) {
        self.founding = None;
        self.gossip = Gossip::default();
        self.history.clear();
        self.dirty = true;
    }

    fn header(&self, to: Option<SiloAddress>) -> Header {
        Header {
            cluster: self.cluster,
            protocol: PROTOCOL_VERSION,
            founding: self.founding,
            from: self.me,
            instance: self.instance,
            to,
        }
    }

    /// Sends to one incarnation.
    pub(crate) fn send(&mut self, to: SiloAddress, body: impl Into<Arc<Message>>) {
        let destination = Destination::Endpoint(to.endpoint());
        self.push(destination, Some(to), body.into());
    }

    /// Sends to whoever is at an endpoint.
    pub(crate) fn send_at(&mut self, to: SocketAddr, body: impl Into<Arc<Message>>) {
        self.push(Destination::Endpoint(to), None, body.into());
    }

    /// Sends to whoever is at an endpoint now, over a new connection.
    pub(crate) fn send_afresh(&mut self, to: SocketAddr, body: impl Into<Arc<Message>>) {
        self.push(Destination::Fresh(to), None, body.into());
    }

    /// Answers on the connection of a message, for those whose address may not lead to them.
    pub(crate) fn reply(&mut self, link: LinkId, to: SiloAddress, body: impl Into<Arc<Message>>) {
        self.push(Destination::Link(link), Some(to), body.into());
    }

    fn push(&mut self, to: Destination, silo: Option<SiloAddress>, body: Arc<Message>) {
        let header = self.header(silo);
        self.out.push(Effect::Send { to, header, body });
    }

    pub(crate) fn tell(&mut self, notice: Notice) {
        self.out.push(Effect::Tell(notice));
    }

    pub(crate) fn random(&mut self) -> u64 {
        self.rng.next_u64()
    }

    pub(crate) fn random_id(&mut self) -> u128 {
        (u128::from(self.random()) << 64) | u128::from(self.random())
    }

    /// A number below `n`; 0 when `n` is 0.
    pub(crate) fn below(&mut self, n: usize) -> usize {
        let wide = u128::from(self.random()) * (n as u128);
        usize::try_from(wide >> 64).unwrap_or(0)
    }

    /// True with probability `p`.
    pub(crate) fn chance(&mut self, p: f64) -> bool {
        p >= 1.0 || ((self.random() >> 11) as f64 / (1_u64 << 53) as f64) < p
    }

    pub(crate) fn pick<T: Copy>(&mut self, from: &[T]) -> Option<T> {
        let at = self.below(from.len());
        from.get(at).copied()
    }

    /// At most `n` of them, in random order.
    pub(crate) fn sample<T>(&mut self, mut from: Vec<T>, n: usize) -> Vec<T> {
        let n = n.min(from.len());
        for i in 0..n {
            let j = i + self.below(from.len() - i);
            from.swap(i, j);
        }
        from.truncate(n);
        from
    }
}
