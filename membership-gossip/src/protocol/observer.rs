//! When a member flags another one, and takes that back. Before it accuses, it doubts itself and the
//! link (Lifeguard: Dadgar et al., 2017): a member that was paused listens again first, and others
//! are asked to reach the silent one.

use std::collections::BTreeMap;
use std::time::Duration;

use membership_core::{MonoTime, SiloAddress};

use super::context::Ctx;
use super::heartbeat::Heartbeats;
use super::io::Notice;
use super::message::Message;
use crate::state::Flag;

/// The most members that one other member may ask this one to reach, so that nobody can make it
/// flood others.
const MAX_RELAYED: usize = 64;

#[derive(Debug, Default)]
pub(crate) struct Observer {
    /// Silent members about which others were asked, and when.
    asked: BTreeMap<SiloAddress, MonoTime>,
    /// Members to which others want to know a way, with who asked and when.
    relayed: BTreeMap<SiloAddress, BTreeMap<SiloAddress, MonoTime>>,
    /// Members that this one flags, or has flagged lately.
    flaps: BTreeMap<SiloAddress, Flaps>,
}

/// How steady a member is that was flagged.
#[derive(Clone, Copy, Debug)]
struct Flaps {
    /// How often it was flagged, each time soon after the last.
    count: u32,
    /// When it was last silent.
    silent_at: MonoTime,
}

impl Observer {
    /// Looks at all that are watched.
    pub(crate) fn look(&mut self, ctx: &mut Ctx, heartbeats: &Heartbeats) {
        let (now, quiet) = (ctx.mono(), ctx.is_quiet());
        let mut flags: Vec<(SiloAddress, Option<Flag>)> = Vec::new();
        for (member, detector) in &heartbeats.detectors {
            let flagged = ctx.flags(member);
            if detector.is_available(now) {
                self.asked.remove(member);
                if quiet {
                    // It was this member that did not hear, and not that one that came and went.
                    self.flaps.remove(member);
                }
                if flagged && self.is_steady(ctx, now, member) {
                    flags.push((*member, None));
                }
            } else if flagged {
                self.silent(now, member);
            } else if heartbeats.is_end() || self.may_flag(ctx, now, member) {
                self.flap(ctx, now, *member);
                flags.push((*member, Some(Flag::Unreachable)));
            }
        }
        let calm = calm(ctx);
        self.flaps
            .retain(|_, flaps| now.since(flaps.silent_at) < calm);
        // A flag about a member that is not watched any more is nobody's knowledge.
        let reachability = ctx.gossip.state().reachability();
        if let Some(rows) = reachability.of(&ctx.me) {
            let stale = rows.rows().iter().filter(|(subject, flag)| {
                **flag == Flag::Unreachable && !heartbeats.detectors.contains_key(subject)
            });
            flags.extend(stale.map(|(subject, _)| (*subject, None)));
        }
        self.asked
            .retain(|member, _| heartbeats.detectors.contains_key(member));
        if !flags.is_empty() {
            ctx.edit(|edit| {
                for (member, flag) in flags {
                    edit.flag(&member, flag);
                }
            });
        }
    }

    /// Notes that a member is flagged.
    fn flap(&mut self, ctx: &Ctx, now: MonoTime, member: SiloAddress) {
        let count = match self.flaps.get(&member) {
            Some(flaps) if ctx.config.doubt_oneself => flaps.count.saturating_add(1),
            _ => 1,
        };
        let silent_at = now;
        self.flaps.insert(member, Flaps { count, silent_at });
    }

    fn silent(&mut self, now: MonoTime, member: &SiloAddress) {
        if let Some(flaps) = self.flaps.get_mut(member) {
            flaps.silent_at = now;
        }
    }

    /// Whether a member that answers is no longer flagged: at once if it was silent once. One that
    /// comes and goes must answer for a while, or those who wait for things to settle wait for ever.
    fn is_steady(&self, ctx: &Ctx, now: MonoTime, member: &SiloAddress) -> bool {
        let settles = ctx.config.downing.stable_after;
        self.flaps.get(member).is_none_or(|flaps| {
            let answers = now.since(flaps.silent_at);
            match flaps.count {
                0 | 1 => true,
                2 => answers >= settles / 2,
                _ => answers >= settles,
            }
        })
    }

    /// Whether a silent member may be flagged now, or others have to be asked first.
    fn may_flag(&mut self, ctx: &mut Ctx, now: MonoTime, member: &SiloAddress) -> bool {
        if ctx.scope().unreachable(ctx.gossip.state()).contains(member) {
            // Somebody else does not reach it either: it is not this one link.
            return true;
        }
        if let Some(asked) = self.asked.get(member) {
            return now.since(*asked) >= patience(ctx);
        }
        let (state, count) = (ctx.gossip.state(), ctx.config.relayed_heartbeats as usize);
        let others: Vec<_> = state
            .members()
            .iter()
            .map(|m| m.address())
            .filter(|other| other != member && *other != ctx.me && !ctx.flags(other))
            .collect();
        let others = ctx.sample(others, count);
        if others.is_empty() {
            return true;
        }
        self.asked.insert(*member, now);
        for other in others {
            ctx.send(other, Message::Relay { subject: *member });
        }
        false
    }

    /// Another member asks this one to reach a third one.
    pub(crate) fn relay(
        &mut self,
        ctx: &mut Ctx,
        heartbeats: &mut Heartbeats,
        asker: SiloAddress,
        subject: SiloAddress,
    ) {
        let now = ctx.mono();
        let old = patience(ctx) * 2;
        for askers in self.relayed.values_mut() {
            askers.retain(|_, at| now.since(*at) < old);
        }
        self.relayed.retain(|_, askers| !askers.is_empty());
        let of_asker = self.relayed.values().filter(|a| a.contains_key(&asker));
        if of_asker.count() < MAX_RELAYED && ctx.knows(&subject) {
            self.relayed.entry(subject).or_default().insert(asker, now);
            heartbeats.probe(ctx, subject);
        }
    }

    /// A member answered a heartbeat: those that wanted to know are told.
    pub(crate) fn answered(&mut self, ctx: &mut Ctx, member: SiloAddress) {
        for asker in self.relayed.remove(&member).unwrap_or_default().into_keys() {
            ctx.send(asker, Message::Relayed { subject: member });
        }
    }

    /// A member that does not answer this one has answered another one.
    pub(crate) fn reached(
        &mut self,
        ctx: &mut Ctx,
        heartbeats: &mut Heartbeats,
        member: SiloAddress,
    ) {
        if self.asked.remove(&member).is_some() {
            heartbeats.vouch(ctx.mono(), &member);
            ctx.tell(Notice::LinkBroken { to: member });
        }
    }

    /// This process did not run, or not in time: what it did not hear in that time proves nothing.
    pub(crate) fn paused(&mut self, ctx: &mut Ctx, heartbeats: &mut Heartbeats, late: Duration) {
        let now = ctx.mono();
        let members: Vec<_> = heartbeats.detectors.keys().copied().collect();
        for member in members {
            heartbeats.forgive(now, &member);
        }
        self.asked.clear();
        ctx.tell(Notice::Paused(late));
    }

    /// What had to arrive at a member did not (specification, quarantine).
    pub(crate) fn quarantine(ctx: &mut Ctx, member: &SiloAddress) {
        ctx.edit(|edit| edit.flag(member, Some(Flag::Terminated)));
    }
}

/// A member that was not silent for so long is as good as any other.
fn calm(ctx: &Ctx) -> Duration {
    ctx.config.downing.stable_after * 3
}

/// How long others may take to reach a silent member.
fn patience(ctx: &Ctx) -> Duration {
    ctx.config
        .heartbeat_interval
        .max(Duration::from_millis(500))
}
