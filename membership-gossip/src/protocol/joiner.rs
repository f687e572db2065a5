//! The way into a cluster: contact points are asked, the first member that answers takes this process
//! in, and if there is no cluster one is founded (specification, seed nodes).

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use membership_core::{FoundingId, MonoTime, SiloAddress};

use super::context::{Ctx, Timer};
use super::founder::{Founder, majority};
use super::io::{Notice, Termination};
use super::message::{Header, Message, Refusal};
use super::own_address::OwnAddress;
use crate::Founding;
use crate::state::{Gossip, Member};

/// Time between two questions to the contact points.
const ASK_INTERVAL: Duration = Duration::from_secs(1);

/// By how much a refusal may raise the epoch: 278 years. The largest epoch has no successor.
const MAX_LEAP: u64 = 1 << 43;

/// How long a contact point listens before it founds: members announce their cluster every second.
const LISTENING: Duration = Duration::from_millis(2_500);

#[derive(Debug, Default)]
pub(crate) struct Joiner {
    contact_points: Vec<SocketAddr>,
    /// Since when this process joins.
    began: MonoTime,
    /// Since when this attempt asks.
    since: MonoTime,
    /// Contact points that are in no cluster, in this attempt.
    nacks: BTreeSet<SocketAddr>,
    /// Who was asked to take this process in, and when.
    asked: Option<(SiloAddress, MonoTime)>,
    /// Contact points whose questions do not arrive at the address of this process, and since when
    /// the last of them said so.
    unreached_by: BTreeSet<SocketAddr>,
    unreached_since: MonoTime,
    /// When the next proposal may be made.
    next_proposal: MonoTime,
    own_address: OwnAddress,
    pub(crate) founder: Founder,
}

impl Joiner {
    /// The configured contact points.
    pub(crate) fn contact_points(&self) -> &[SocketAddr] {
        &self.contact_points
    }

    /// Whether a contact point answered in this attempt that it is in no cluster.
    pub(crate) fn has_answered(&self, point: &SocketAddr) -> bool {
        self.nacks.contains(point)
    }

    /// Since when this process joins.
    pub(crate) const fn began(&self) -> MonoTime {
        self.began
    }

    /// Who was asked to take this process in.
    pub(crate) fn asked(&self) -> Option<SiloAddress> {
        self.asked.map(|(asked, _)| asked)
    }

    pub(crate) fn start(&mut self, ctx: &mut Ctx, contact_points: Vec<SocketAddr>) {
        if self.contact_points.is_empty() && !ctx.is_member() {
            self.contact_points = contact_points;
            self.began = ctx.mono();
            self.own_address.start(ctx);
            self.start_over(ctx);
        }
    }

    pub(super) fn start_over(&mut self, ctx: &mut Ctx) {
        self.since = ctx.mono();
        self.nacks.clear();
        self.asked = None;
        self.founder.stop();
        self.look(ctx);
    }

    /// Whether this cluster may begin, or go on after all who were up have ended: somebody is in service, or a
    /// majority of the contact points are members; others may be left, too. A first seed needs nobody else.
    pub(crate) fn may_begin(&self, ctx: &Ctx) -> bool {
        if ctx.config.founding != Founding::Majority || ctx.is_in_service() {
            return true;
        }
        self.contact_members(ctx, |_| true) >= majority(self.contact_points.len())
    }

    /// How many contact points are members, not on their way out, of which this is true.
    pub(crate) fn contact_members(&self, ctx: &Ctx, is: impl Fn(&SiloAddress) -> bool) -> usize {
        let members = ctx.gossip.state().members();
        let counts = |m: &Member| m.status().is_present() && is(&m.address());
        let at = |point: &&SocketAddr| members.at(point).is_some_and(|m| counts(m));
        self.contact_points.iter().filter(at).count()
    }

    /// The next step, once per second until this process is a member of a cluster that has begun.
    pub(crate) fn look(&mut self, ctx: &mut Ctx) {
        let now = ctx.mono();
        let interval = ASK_INTERVAL.min(ctx.config.seed_node_timeout);
        ctx.timers.set(Timer::Join, now + interval);
        if ctx.is_member() {
            if ctx.is_established() || ctx.config.founding != Founding::Majority {
                ctx.timers.clear(Timer::Join);
            } else {
                self.ask(ctx);
            }
            return;
        }
        let retry = ctx.config.retry_unsuccessful_join_after;
        if self.asked.is_some_and(|(_, at)| now.since(at) >= retry) {
            self.asked = None;
            self.since = now;
            self.nacks.clear();
        }
        if let Some((asked, at)) = self.asked {
            // The question, or the welcome, may be lost: who was taken in and does not know it is missed.
            if now.since(at).as_secs() % 3 == 2 {
                self.request(ctx, asked);
            }
        } else {
            self.ask(ctx);
            if self.contact_points.contains(&ctx.me.endpoint()) {
                self.own_address.ask(ctx);
            }
            if let Some(founding) = self.found_if_due(ctx) {
                self.found(ctx, founding);
            }
        }
    }

    /// The leader of a cluster that has begun tells contact points that are no members of it. So
    /// contact points that were all restarted join it, and do not found another one. Where nobody is in
    /// service any more, each member asks them for others, as before the beginning.
    pub(crate) fn announce(&self, ctx: &mut Ctx) {
        let begun = ctx.config.founding == Founding::Majority && ctx.is_established();
        if !begun || !ctx.is_member() {
            return;
        }
        let established = ctx.has_service();
        if !established {
            self.ask(ctx);
        }
        let members = ctx.gossip.state().members();
        let is_absent = |p: &&SocketAddr| members.at(p).is_none_or(|m| !m.status().is_present());
        let absent = self.contact_points.iter().filter(is_absent).copied();
        let absent: Vec<_> = absent.collect();
        if absent.is_empty() || ctx.scope().leader(ctx.gossip.state()) != Some(ctx.me) {
            return;
        }
        for point in absent {
            ctx.send_at(point, Message::InitJoinAck { established });
        }
    }

    fn ask(&self, ctx: &mut Ctx) {
        let settings = ctx.config.shared();
        let body = Arc::new(Message::InitJoin { settings });
        let me = ctx.me.endpoint();
        // Those that are members here, too: they may have been restarted into another cluster.
        for other in self.contact_points.iter().filter(|point| **point != me) {
            ctx.send_at(*other, Arc::clone(&body));
        }
    }

    pub(crate) fn asked_itself(&self, nonce: u64) -> bool {
        self.own_address.asked(nonce)
    }

    /// Who is at its own address: this process, or the end of its attempts.
    pub(crate) fn on_own_address(&mut self, ctx: &mut Ctx, header: &Header) -> Option<Termination> {
        if header.instance != ctx.instance {
            let process = header.from;
            let refusal = Refusal::OtherProcess { process };
            return (!ctx.is_member()).then_some(Termination::Refused(refusal));
        }
        if self.own_address.met()
            && !ctx.is_member()
            && self.asked.is_none()
            && let Some(founding) = self.found_if_due(ctx)
        {
            self.found(ctx, founding);
        }
        None
    }

    fn found_if_due(&mut self, ctx: &mut Ctx) -> Option<FoundingId> {
        let me = ctx.me.endpoint();
        let place = self.contact_points.iter().position(|point| *point == me)?;
        if !self.own_address.leads_here() {
            return None;
        }
        let (now, timeout) = (ctx.mono(), ctx.config.seed_node_timeout);
        let free = self.nacks.len() + 1;
        let all = free == self.contact_points.len();
        let waited = now.since(self.since) >= timeout;
        match ctx.config.founding {
            Founding::Never => None,
            Founding::FirstSeed => {
                let due = place == 0 && (all || waited);
                due.then(|| FoundingId::new(ctx.random_id()))
            }
            Founding::Majority => {
                if free < majority(self.contact_points.len()) || !(all || waited) {
                    return None;
                }
                // The lowest address goes first; the others follow if it does not succeed.
                let rank = self.nacks.iter().filter(|other| **other < me).count();
                let turns = u32::try_from(rank).unwrap_or(u32::MAX).min(100);
                let turn = self.since + LISTENING.min(timeout) + timeout * turns;
                if now < turn || now < self.next_proposal {
                    return None;
                }
                let wait = timeout + timeout * (ctx.below(1_000) as u32) / 1_000;
                self.next_proposal = now + wait;
                self.founder.propose(ctx, &self.contact_points)
            }
        }
    }

    /// Founds a cluster of this process.
    pub(crate) fn found(&mut self, ctx: &mut Ctx, founding: FoundingId) {
        if ctx.is_member() {
            return;
        }
        self.founder.stop();
        ctx.founding = Some(founding);
        let (me, instance, profile) = (ctx.me, ctx.instance, Arc::clone(&ctx.profile));
        ctx.edit(|edit| edit.admit(me, instance, profile));
        ctx.tell(Notice::Founded(founding));
        super::machine::begin_membership(ctx);
    }

    /// A member answered.
    pub(crate) fn on_ack(
        &mut self,
        ctx: &mut Ctx,
        header: &Header,
        established: bool,
    ) -> Option<Termination> {
        let from = header.from;
        if ctx.is_member() {
            if header.founding == ctx.founding {
                // Founded twice with one id, by two that did not know of each other. Or somebody is in
                // service there, and those are gone who took this process in: the others never knew of it.
                let is_left = established && ctx.hears_nobody() && !ctx.has_service();
                if is_left || !ctx.knows(&from) {
                    self.request(ctx, from);
                }
            } else if !ctx.has_service() && (established || self.gives_way(ctx, header)) {
                // Nobody is in service here; somebody is there, or it is the one of two that may begin.
                return self.join_another(ctx);
            }
        } else if self.asked.is_none() && !self.passes_over(ctx, from.endpoint()) {
            self.founder.stop();
            self.asked = Some((from, ctx.mono()));
            self.request(ctx, from);
        }
        None
    }

    /// Whether others are to be asked first: that member did not reach this process.
    fn passes_over(&mut self, ctx: &Ctx, member: SocketAddr) -> bool {
        if ctx.mono().since(self.unreached_since) >= LISTENING {
            self.unreached_by.clear();
        }
        self.unreached_by.contains(&member)
    }

    /// A member takes this process for an earlier one at its endpoint, which its cluster has not missed:
    /// nobody has [announced](Self::announce) that here. Restarted contact points would found another one.
    pub(crate) fn on_mistaken(&self, ctx: &mut Ctx, header: &Header, to: &SiloAddress) {
        let is_earlier = to.same_endpoint(&ctx.me) && header.from.endpoint() != ctx.me.endpoint();
        let is_settled = ctx.is_member() && ctx.is_in_service();
        if is_earlier && header.founding.is_some() && !self.contact_points.is_empty() && !is_settled
        {
            let settings = ctx.config.shared();
            ctx.send(header.from, Message::InitJoin { settings });
        }
    }

    fn request(&self, ctx: &mut Ctx, from: SiloAddress) {
        let body = Message::Join {
            profile: Arc::clone(&ctx.profile),
            settings: ctx.config.shared(),
        };
        ctx.send(from, body);
    }

    /// A contact point is in no cluster.
    pub(crate) fn on_nack(&mut self, ctx: &mut Ctx, from: SocketAddr) {
        if !ctx.is_member() && self.contact_points.contains(&from) && self.nacks.insert(from) {
            let all = self.nacks.len() + 1 == self.contact_points.len();
            if all && self.asked.is_none() {
                self.look(ctx);
            }
        }
    }

    /// A member did not take this process in; the end of the attempts, if no other answer is to be
    /// expected.
    pub(crate) fn on_refused(
        &mut self,
        ctx: &mut Ctx,
        header: &Header,
        refusal: &Refusal,
    ) -> Option<Termination> {
        let from = header.from;
        if ctx.is_member() {
            if let Refusal::EpochTooLow { least } = refusal
                && header.founding == ctx.founding
            {
                return self.on_left_behind(ctx, *least);
            }
            return None;
        }
        let (by, reason) = (from, refusal.clone());
        ctx.tell(Notice::NotTakenIn { by, reason });
        // Who is no contact point, and was not asked, has no say in it.
        let is_asked = self.asked.is_some_and(|(asked, _)| asked == from);
        if !is_asked && !self.contact_points.contains(&from.endpoint()) {
            return None;
        }
        match refusal {
            Refusal::Settings { .. } | Refusal::OtherProcess { .. } => {
                return Some(Termination::Refused(refusal.clone()));
            }
            Refusal::EpochTooLow { least } if is_later(ctx, *least) => {
                // The clock went back, or two processes started at one time.
                ctx.me = ctx.me.with_epoch(*least);
                if ctx.me.epoch() != *least {
                    return Some(Termination::Refused(refusal.clone()));
                }
                self.request(ctx, from);
            }
            // Asked again soon, after the others.
            Refusal::Unanswered | Refusal::NotReached { .. } => {
                self.asked = None;
                if self.contact_points.contains(&from.endpoint()) {
                    self.unreached_by.insert(from.endpoint());
                    self.unreached_since = ctx.mono();
                }
            }
            _ => self.asked = None,
        }
        None
    }

    /// A member took this process in.
    pub(crate) fn on_welcome(&mut self, ctx: &mut Ctx, header: &Header, theirs: &Gossip) {
        let (me, from) = (ctx.me, header.from);
        let member = theirs.state().member(&me);
        let is_mine = member.is_some_and(|m| m.instance() == ctx.instance);
        let Some(founding) = header.founding.filter(|_| is_mine) else {
            return;
        };
        if ctx.is_member() {
            if ctx.founding == Some(founding) {
                super::gossiper::on_state(ctx, from, theirs);
            }
            return;
        }
        if self.asked.is_some_and(|(asked, _)| asked != from) {
            return;
        }
        ctx.founding = Some(founding);
        ctx.gossip = theirs.clone();
        ctx.gossip.mark_seen(&me);
        ctx.dirty = true;
        self.asked = None;
        self.founder.stop();
        ctx.tell(Notice::Welcomed { by: from });
        super::machine::begin_membership(ctx);
        super::gossiper::begin(ctx, from);
    }
}

/// Whether a process may join with this epoch after its own.
pub(super) fn is_later(ctx: &Ctx, epoch: u64) -> bool {
    (1..=MAX_LEAP).contains(&epoch.saturating_sub(ctx.me.epoch()))
}
