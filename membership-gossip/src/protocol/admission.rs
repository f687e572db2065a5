//! What a contact point answers to those that want to join.

use std::sync::Arc;

use membership_core::protocol::LinkId;

use super::context::Ctx;
use super::message::{Header, Message, Refusal, Settings};
use crate::state::{Flag, MemberStatus, Profile};

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
        let established = ctx.is_established();
        Message::InitJoinAck { established }
    };
    ctx.reply(link, header.from, body);
}

/// Somebody wants to be taken in.
pub(crate) fn on_join(
    ctx: &mut Ctx,
    link: LinkId,
    header: &Header,
    profile: &Arc<Profile>,
    settings: &Settings,
) {
    match take_in(ctx, header, profile, settings) {
        Ok(()) => {
            let body = Message::Welcome(Arc::new(ctx.gossip.clone()));
            ctx.reply(link, header.from, body);
        }
        Err(refusal) => ctx.reply(link, header.from, Message::Refused(refusal)),
    }
}

fn take_in(
    ctx: &mut Ctx,
    header: &Header,
    profile: &Arc<Profile>,
    settings: &Settings,
) -> Result<(), Refusal> {
    if !can_take_in(ctx) {
        return Err(Refusal::NotMember);
    }
    if header.founding.is_some() && header.founding != ctx.founding {
        return Err(Refusal::OtherFounding);
    }
    if let Some((name, value, yours)) = ctx.config.disagreement(settings) {
        return Err(Refusal::Settings { name, value, yours });
    }
    let (joiner, endpoint) = (header.from, header.from.endpoint());
    let state = ctx.gossip.state();
    if let Some(member) = state.member(&joiner) {
        // Its welcome was lost. Another process with that address is not the one that joined.
        let same = member.instance() == header.instance;
        let least = joiner.epoch().saturating_add(1);
        return if same {
            Ok(())
        } else {
            Err(Refusal::EpochTooLow { least })
        };
    }
    if state.is_gone(&joiner) {
        let least = state.least_epoch(&endpoint);
        return Err(Refusal::EpochTooLow { least });
    }
    let older = state.members().at(&endpoint).map(|m| m.address());
    let (instance, profile) = (header.instance, Arc::clone(profile));
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
