//! What is done with a message: checks of its header, then its body.

use std::sync::Arc;
use std::time::Duration;

use membership_core::protocol::{LinkId, PeerIdentity};

use super::io::{Notice, Termination};
use super::leaver::Leaver;
use super::machine::Protocol;
use super::message::{Header, Message, PROTOCOL_VERSION};
use super::{admission, gossiper, resolver};
use crate::Spreading;
use crate::state::{Base, MemberStatus, Profile};

impl Protocol {
    pub(super) fn receive(
        &mut self,
        (link, peer): (LinkId, PeerIdentity),
        header: &Header,
        body: &Arc<Message>,
        waited: Duration,
    ) {
        let ctx = &mut self.ctx;
        let proven = match peer {
            PeerIdentity::Proven(instance) => instance == header.instance,
            PeerIdentity::Unproven => true,
        };
        let is_known_version = header.protocol == PROTOCOL_VERSION && header.cluster == ctx.cluster;
        if !proven || !is_known_version {
            ctx.tell(Notice::Stranger { from: header.from });
            return;
        }
        if let Some(to) = header.to.filter(|to| *to != ctx.me) {
            self.joiner.on_mistaken(ctx, header, &to);
            return;
        }
        if header.instance == ctx.instance {
            // Its own question to an endpoint, which leads to itself.
            if let Message::Identify { nonce } = **body {
                let profile = Arc::clone(&ctx.profile);
                self.identified(link, header, nonce, &profile);
            }
            return;
        }
        if header.from == ctx.me {
            return;
        }
        if !self.receive_from_anybody(link, header, body) && self.is_from_member(header) {
            self.receive_from_member((link, header), body, waited);
        }
    }

    /// Messages of those that need not be members; whether this was one.
    fn receive_from_anybody(&mut self, link: LinkId, header: &Header, body: &Message) -> bool {
        let (ctx, joiner, from) = (&mut self.ctx, &mut self.joiner, header.from);
        match body {
            Message::InitJoin { settings } => admission::on_init_join(ctx, link, header, settings),
            Message::Join { settings, .. } => {
                self.admission.on_join(ctx, link, header, settings);
            }
            Message::InitJoinAck { established } => {
                let end = joiner.on_ack(ctx, header, *established);
                self.stop_if(end);
            }
            Message::InitJoinNack => joiner.on_nack(ctx, from.endpoint()),
            Message::Welcome(gossip) => joiner.on_welcome(ctx, header, gossip),
            Message::Refused(refusal) => {
                let end = joiner.on_refused(ctx, header, refusal);
                self.stop_if(end);
            }
            Message::Propose { .. }
            | Message::Accept { .. }
            | Message::Promise { .. }
            | Message::Accepted { .. }
            | Message::Outbid { .. } => self.receive_founding(header, body),
            Message::Inspect { nonce } => {
                let answer = Message::Inspected {
                    nonce: *nonce,
                    leaving_observers_count: ctx.config.leaving_observers_count,
                    gossip: Arc::new(ctx.gossip.clone()),
                };
                ctx.reply(link, from, answer);
            }
            Message::Inspected { .. } => {}
            Message::Identify { nonce } => {
                let (nonce, profile) = (*nonce, Arc::clone(&ctx.profile));
                ctx.reply(link, from, Message::Identity { nonce, profile });
            }
            Message::Identity { nonce, profile } => {
                self.identified(link, header, *nonce, profile);
            }
            _ => return false,
        }
        true
    }

    /// The process at an endpoint says who it is.
    fn identified(&mut self, link: LinkId, header: &Header, nonce: u64, profile: &Arc<Profile>) {
        let ctx = &mut self.ctx;
        if self.joiner.asked_itself(nonce) {
            let end = self.joiner.on_own_address(ctx, header);
            self.stop_if(end);
        } else if !self.vouchers.on_identity(ctx, header, nonce) {
            self.admission
                .on_identity(ctx, link, header, nonce, profile);
        }
    }

    /// Messages between contact points that are in no cluster.
    fn receive_founding(&mut self, header: &Header, body: &Message) {
        let (ctx, joiner, from) = (&mut self.ctx, &mut self.joiner, header.from);
        if ctx.is_member() {
            let established = ctx.has_service();
            if matches!(body, Message::Propose { .. } | Message::Accept { .. }) {
                ctx.send(from, Message::InitJoinAck { established });
            }
            return;
        }
        let points = joiner.contact_points().to_vec();
        let (founder, endpoint) = (&mut joiner.founder, from.endpoint());
        let chosen = match body {
            Message::Propose { ballot }
            | Message::Accept { ballot, .. }
            | Message::Outbid { ballot }
                if founder.is_too_far(*ballot) =>
            {
                None
            }
            Message::Propose { ballot } => {
                founder.on_propose(ctx, from, *ballot);
                None
            }
            Message::Accept { ballot, founding } => {
                founder.on_accept(ctx, from, *ballot, *founding);
                None
            }
            Message::Promise { ballot, accepted } => {
                founder.on_promise(ctx, &points, endpoint, *ballot, *accepted)
            }
            Message::Accepted { ballot } => founder.on_accepted(&points, endpoint, *ballot),
            Message::Outbid { ballot } => {
                founder.on_outbid(*ballot);
                None
            }
            _ => None,
        };
        if let Some(founding) = chosen {
            joiner.found(ctx, founding);
        }
    }

    /// Whether a message comes from a member of this cluster. One that is gone is told so, with the
    /// founding in the header as proof.
    fn is_from_member(&mut self, header: &Header) -> bool {
        let (ctx, from) = (&mut self.ctx, header.from);
        if !ctx.is_member() || header.founding.is_none() {
            return false;
        }
        if header.founding != ctx.founding {
            ctx.tell(Notice::Stranger { from });
            return false;
        }
        let state = ctx.gossip.state();
        match state.member(&from) {
            Some(member) => member.instance() == header.instance,
            None if state.is_gone(&from) => {
                ctx.send(from, Message::Gone { member: from });
                false
            }
            // Others have taken it in; the news is on its way.
            None => true,
        }
    }

    fn receive_from_member(
        &mut self,
        (link, header): (LinkId, &Header),
        body: &Message,
        waited: Duration,
    ) {
        let (ctx, from) = (&mut self.ctx, header.from);
        // Who hears nobody says so of itself: that is no sign that others hear, or that it does.
        if matches!(body, Message::Relayed { subject } if *subject == from) {
            return;
        }
        ctx.hears();
        // A member that sends whole states drops those of whom it does not know or reach.
        let drops =
            ctx.config.spreading == Spreading::States && (!ctx.knows(&from) || ctx.flags(&from));
        match body {
            Message::Heartbeat { nonce } => {
                // On its connection: who cannot be dialled must not take all others for silent.
                ctx.reply(link, from, Message::HeartbeatReply { nonce: *nonce });
            }
            Message::HeartbeatReply { .. } => {
                self.heartbeats.answered(ctx.mono(), &from);
                self.observer.answered(ctx, from);
                // What it believed while it heard nobody is taken back before it speaks again.
                if ctx.is_quiet() {
                    self.observer.look(ctx, &self.heartbeats);
                }
            }
            Message::Relay { subject } => {
                self.observer
                    .relay(ctx, &mut self.heartbeats, from, *subject);
            }
            Message::Relayed { subject } => {
                self.observer.reached(ctx, &mut self.heartbeats, *subject);
            }
            // A stranger must not make members dial others.
            Message::Vouch { joiner, nonce } if ctx.knows(&from) => {
                self.vouchers.on_vouch(ctx, from, *joiner, *nonce);
            }
            Message::Vouched { nonce, reached } => {
                self.admission.on_vouched(ctx, from, (*nonce, *reached));
            }
            Message::Leave { member } => {
                ctx.edit(|edit| edit.advance(member, MemberStatus::Leaving, None));
            }
            Message::Down { member } => resolver::down(ctx, [*member]),
            Message::Gone { member } if *member == ctx.me && ctx.knows(&from) => {
                let end = match ctx.status() {
                    Some(MemberStatus::Exiting) => Termination::Left,
                    _ => Termination::Gone,
                };
                self.stop_if(Some(end));
            }
            _ if drops || ctx.is_quiet() || gossiper::is_stale(ctx, waited) => {}
            Message::Status {
                version,
                seen,
                answer,
                clock,
            } => gossiper::on_status(ctx, from, (*version, *seen), *answer, clock.as_deref()),
            Message::Ask {
                version,
                floor,
                clock,
            } => {
                let base = Base {
                    version: *version,
                    clock: Arc::clone(clock),
                    floor: *floor,
                };
                gossiper::on_ask(ctx, from, &base);
            }
            Message::State(gossip) => gossiper::on_state(ctx, from, gossip),
            Message::Delta { delta, seen } => gossiper::on_delta(ctx, from, delta, seen),
            Message::Seen { version, seen } => gossiper::on_seen(ctx, from, *version, seen),
            _ => {}
        }
    }

    /// Leaves, by a command.
    pub(super) fn leave(&mut self) {
        let end = Leaver::leave(&mut self.ctx);
        self.stop_if(end);
    }
}
