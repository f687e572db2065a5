//! What a contact point answers to those that want to join.
//!
//! Whoever is not a member yet is asked who it is, over a new connection to the address that it
//! advertises. Only the process that joins can answer that as itself: so an address that is wrong
//! neither supersedes the member that has it, nor becomes one that nobody reaches. Then
//! [others](super::voucher) are asked to do the same.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use membership_core::protocol::LinkId;
use membership_core::{InstanceId, MonoTime, SiloAddress};

use super::context::{Ctx, Timer};
use super::message::{Header, Message, Refusal, Settings};
use super::voucher::Votes;
use crate::state::{Flag, MemberStatus, Profile};

/// How long whoever is at an advertised address may take to answer.
pub(super) const PROOF_TIME: Duration = Duration::from_secs(5);
/// Time between two questions to an advertised address.
pub(super) const AGAIN: Duration = Duration::from_secs(1);
/// How many joiners may be asked at a time. For one more the oldest is dropped, and asks again later:
/// those that are there answer within a round trip, so it is one that does not.
const MAX_PROOFS: usize = 16_384;

/// Joiners whose address is not proven yet.
#[derive(Debug, Default)]
pub(crate) struct Admission {
    proofs: BTreeMap<(SocketAddr, InstanceId), Proof>,
}

/// A question to an advertised address.
#[derive(Debug)]
struct Proof {
    joiner: SiloAddress,
    /// The connection by which the joiner asked.
    link: LinkId,
    nonce: u64,
    since: MonoTime,
    asked: MonoTime,
    /// The joiner has answered, and others are asked whether they reach it.
    vouching: Option<Vouching>,
}

#[derive(Debug)]
struct Vouching {
    header: Header,
    profile: Arc<Profile>,
    /// The connection by which the joiner answered.
    link: LinkId,
    votes: Votes,
}

impl Admission {
    /// Somebody wants to be taken in.
    pub(crate) fn on_join(
        &mut self,
        ctx: &mut Ctx,
        link: LinkId,
        header: &Header,
        settings: &Settings,
    ) {
        match check(ctx, header, Some(settings)) {
            Ok(Standing::Member) => welcome(ctx, link, header.from),
            Ok(Standing::New) => self.ask(ctx, link, header),
            Err(refusal) => ctx.reply(link, header.from, Message::Refused(refusal)),
        }
    }

    fn ask(&mut self, ctx: &mut Ctx, link: LinkId, header: &Header) {
        let (now, joiner) = (ctx.mono(), header.from);
        let key = (joiner.endpoint(), header.instance);
        if let Some(proof) = self.proofs.get_mut(&key) {
            // It is asked again soon, or its answer is on its way.
            (proof.joiner, proof.link) = (joiner, link);
            return;
        }
        if self.proofs.len() >= MAX_PROOFS {
            let oldest = self.proofs.iter().min_by_key(|(_, proof)| proof.since);
            if let Some(oldest) = oldest.map(|(key, _)| *key) {
                self.proofs.remove(&oldest);
            }
        }
        if self.proofs.is_empty() {
            ctx.timers.set(Timer::Proof, now + AGAIN);
        }
        let nonce = ctx.random();
        ctx.send_afresh(joiner.endpoint(), Message::Identify { nonce });
        let proof = Proof {
            joiner,
            link,
            nonce,
            since: now,
            asked: now,
            vouching: None,
        };
        self.proofs.insert(key, proof);
    }

    /// Asks those once more that have not answered, and settles what others had the time to say.
    pub(crate) fn look(&mut self, ctx: &mut Ctx) {
        let now = ctx.mono();
        let mut vouched = Vec::new();
        self.proofs.retain(|key, proof| {
            if proof.vouching.is_some() {
                vouched.push(*key);
                return true;
            }
            if now.since(proof.since) >= PROOF_TIME {
                let body = Message::Refused(Refusal::Unanswered);
                ctx.reply(proof.link, proof.joiner, body);
                return false;
            }
            if now.since(proof.asked) >= AGAIN {
                proof.asked = now;
                let nonce = proof.nonce;
                ctx.send_afresh(key.0, Message::Identify { nonce });
            }
            true
        });
        for key in vouched {
            self.settle(ctx, key);
        }
        if !self.proofs.is_empty() {
            ctx.timers.set(Timer::Proof, now + AGAIN);
        }
    }

    /// This process did not run, or not in time: who was not heard in that time may have answered.
    pub(crate) fn paused(&mut self, now: MonoTime, late: Duration) {
        for proof in self.proofs.values_mut() {
            proof.since = now.min(proof.since + late);
            if let Some(vouching) = &mut proof.vouching {
                vouching.votes.paused(now, late);
            }
        }
    }

    /// The process at an advertised address says who it is.
    pub(crate) fn on_identity(
        &mut self,
        ctx: &mut Ctx,
        link: LinkId,
        header: &Header,
        nonce: u64,
        profile: &Arc<Profile>,
    ) {
        let key = (header.from.endpoint(), header.instance);
        let mut proof = self.proofs.get_mut(&key);
        if let Some(proof) = proof.as_mut().filter(|proof| proof.nonce == nonce) {
            if proof.vouching.is_none() {
                proof.vouching = Some(Vouching {
                    header: header.clone(),
                    profile: Arc::clone(profile),
                    link,
                    votes: Votes::ask(ctx, header.from, &profile.data_centre, nonce),
                });
                self.settle(ctx, key);
            }
            return;
        }
        let mut asked = self.proofs.iter().filter(|(_, p)| p.nonce == nonce);
        let another = asked.find(|((_, joiner), _)| *joiner != header.instance);
        if let Some(key) = another.map(|(key, _)| *key)
            && let Some(proof) = self.proofs.remove(&key)
        {
            let process = header.from;
            let body = Message::Refused(Refusal::OtherProcess { process });
            ctx.reply(proof.link, proof.joiner, body);
        }
    }

    /// A member that was asked says whether it reaches a joiner.
    pub(crate) fn on_vouched(
        &mut self,
        ctx: &mut Ctx,
        from: SiloAddress,
        (nonce, reached): (u64, bool),
    ) {
        let mut proofs = self.proofs.iter_mut();
        let asked = proofs.find(|(_, proof)| proof.nonce == nonce);
        if let Some((key, proof)) = asked
            && let Some(vouching) = &mut proof.vouching
        {
            vouching.votes.on_vouched(from, reached);
            let key = *key;
            self.settle(ctx, key);
        }
    }

    /// Takes a joiner in, or refuses it, if it is known who reaches it.
    fn settle(&mut self, ctx: &mut Ctx, key: (SocketAddr, InstanceId)) {
        let Some(proof) = self.proofs.get_mut(&key) else {
            return;
        };
        let (nonce, vouching) = (proof.nonce, proof.vouching.as_mut());
        let verdict = vouching.and_then(|v| v.votes.settle(ctx, v.header.from, nonce));
        let Some(verdict) = verdict else {
            return;
        };
        if let Some(vouching) = self.proofs.remove(&key).and_then(|p| p.vouching) {
            let (header, link) = (&vouching.header, vouching.link);
            match verdict.and_then(|()| take_in(ctx, header, &vouching.profile)) {
                Ok(()) => welcome(ctx, link, header.from),
                Err(refusal) => ctx.reply(link, header.from, Message::Refused(refusal)),
            }
        }
    }
}

/// Whether this process can take others in.
fn can_take_in(ctx: &Ctx) -> bool {
    ctx.status().is_some_and(MemberStatus::is_present)
}

/// Somebody asks whether this process is in a cluster.
pub(crate) fn on_init_join(ctx: &mut Ctx, link: LinkId, header: &Header, settings: &Settings) {
    let body = if !can_take_in(ctx) {
        Message::InitJoinNack
    } else if let Some((name, value, yours)) = ctx.config.disagreement(settings) {
        Message::Refused(Refusal::Settings { name, value, yours })
    } else {
        let established = ctx.has_service();
        Message::InitJoinAck { established }
    };
    ctx.reply(link, header.from, body);
}

fn welcome(ctx: &mut Ctx, link: LinkId, joiner: SiloAddress) {
    let body = Message::Welcome(Arc::new(ctx.gossip.clone()));
    ctx.reply(link, joiner, body);
}

/// What somebody who wants to be taken in is already.
enum Standing {
    /// Its welcome was lost.
    Member,
    New,
}

fn check(ctx: &Ctx, header: &Header, settings: Option<&Settings>) -> Result<Standing, Refusal> {
    if !can_take_in(ctx) {
        return Err(Refusal::NotMember);
    }
    if header.founding.is_some() && header.founding != ctx.founding {
        return Err(Refusal::OtherFounding);
    }
    if let Some((name, value, yours)) = settings.and_then(|theirs| ctx.config.disagreement(theirs))
    {
        return Err(Refusal::Settings { name, value, yours });
    }
    let (joiner, state) = (header.from, ctx.gossip.state());
    if let Some(member) = state.member(&joiner) {
        // Another process with that address is not the one that joined.
        let same = member.instance() == header.instance;
        let least = joiner.epoch().saturating_add(1);
        return if same {
            Ok(Standing::Member)
        } else {
            Err(Refusal::EpochTooLow { least })
        };
    }
    if state.is_gone(&joiner) {
        let least = state.least_epoch(&joiner.endpoint());
        return Err(Refusal::EpochTooLow { least });
    }
    Ok(Standing::New)
}

/// Takes in a process whose address is proven.
fn take_in(ctx: &mut Ctx, header: &Header, profile: &Arc<Profile>) -> Result<(), Refusal> {
    if let Standing::Member = check(ctx, header, None)? {
        return Ok(());
    }
    let (joiner, instance) = (header.from, header.instance);
    let older = ctx.gossip.state().members().at(&joiner.endpoint());
    let older = older.map(|m| m.address());
    let profile = Arc::clone(profile);
    if let Some(older) = older
        && !ctx.config.supersede_at_once
    {
        ctx.edit(|edit| {
            edit.flag(&older, Some(Flag::Terminated));
            edit.advance(&older, MemberStatus::Down, None);
        });
        return Err(Refusal::OlderIncarnation);
    }
    ctx.edit(|edit| edit.admit(joiner, instance, profile));
    Ok(())
}

#[cfg(test)]
mod tests {
    use membership_core::SiloInfo;

    use super::*;
    use crate::protocol::Setup;

    /// Joiners that advertise addresses at which nobody answers, more than are asked at a time.
    #[test]
    fn joiners_whose_address_is_not_proven_take_bounded_memory_for_a_bounded_time() {
        let address = |n: u32| SiloAddress::at((n.to_be_bytes(), 7100).into(), 1);
        let (me, profile) = (address(1), Profile::new(SiloInfo::default()));
        let (cluster, id) = ("test".parse().unwrap(), InstanceId::new(1));
        let mut ctx = Ctx::new(Setup::new(cluster, me.endpoint(), 1, id, profile, 1));
        ctx.edit(|edit| edit.admit(me, id, Profile::new(SiloInfo::default())));
        let mut admission = Admission::default();
        let settings = ctx.config.shared();
        for n in 2..2 + MAX_PROOFS as u32 + 100 {
            ctx.now.mono = MonoTime::from_nanos(n.into());
            let header = Header::new(0, address(n), InstanceId::new(n.into()));
            for _ in 0..2 {
                admission.on_join(&mut ctx, LinkId(1), &header, &settings);
            }
        }
        assert_eq!(admission.proofs.len(), MAX_PROOFS);
        assert_eq!(ctx.out.len(), MAX_PROOFS + 100, "each is asked once");
        // The newest are kept: those that are there would have answered.
        let oldest = admission.proofs.values().map(|p| p.since).min();
        assert_eq!(oldest, Some(MonoTime::from_nanos(102)));
        ctx.out.clear();
        ctx.now.mono = MonoTime::ZERO + PROOF_TIME * 2;
        admission.look(&mut ctx);
        assert_eq!((admission.proofs.len(), ctx.out.len()), (0, MAX_PROOFS));
    }
}
