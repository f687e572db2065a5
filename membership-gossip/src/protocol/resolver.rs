//! Downing of members that nobody reaches, as configured; see [`crate::downing`].

use std::collections::BTreeSet;
use std::time::Duration;

use membership_core::{MonoTime, SiloAddress};

use super::context::{Ctx, Timer};
use super::io::{Effect, Notice};
use super::message::Message;
use crate::downing::{
    AutoDown, Claim, Decision, Due, Lease, Situation, Strategy, Timing, Verdict, blaming_few,
    decide, down_all, is_lease, lease_delay,
};
use crate::state::MemberStatus;

/// Time between two looks.
const INTERVAL: Duration = Duration::from_secs(1);

#[derive(Debug, Default)]
pub(crate) struct Resolver {
    timing: Timing,
    auto_down: AutoDown,
    /// The request to the arbiter that is under way, and the decision if it is granted: no other is,
    /// whatever changes meanwhile.
    asked: Option<(u64, Decision)>,
    /// Who was unreachable when it was planned to ask the arbiter.
    planned: BTreeSet<SiloAddress>,
    /// Until when the arbiter is not asked to begin: it refused, or was away.
    not_before: MonoTime,
    calls: u64,
}

impl Resolver {
    pub(crate) fn start(ctx: &mut Ctx) {
        ctx.timers.set(Timer::Resolver, ctx.mono() + INTERVAL);
    }

    /// What this process knew before a pause is old.
    pub(crate) fn paused(&mut self, ctx: &Ctx) {
        self.timing.start_over(ctx.mono());
    }

    /// The next look. Whether a cluster that has not begun may do so without those that nobody reaches,
    /// [others](super::leading::Leading) know.
    pub(crate) fn look(&mut self, ctx: &mut Ctx, may_begin_without: bool) {
        ctx.timers.set(Timer::Resolver, ctx.mono() + INTERVAL);
        let (scope, now) = (ctx.scope(), ctx.mono());
        let began = matches!(
            ctx.status(),
            Some(MemberStatus::WeaklyUp | MemberStatus::Up | MemberStatus::Leaving)
        );
        let leader = |ctx: &Ctx| scope.leader(ctx.gossip.state());
        let downing = ctx.config.downing.clone();
        match downing.strategy {
            Strategy::None => return,
            Strategy::AutoDownUnsafe { after } => {
                let situation = Situation::of(&ctx.gossip, &scope);
                let overdue = self.auto_down.overdue(now, situation.unreachable, after);
                if !overdue.is_empty() && leader(ctx) == Some(ctx.me) {
                    down(ctx, overdue);
                }
                return;
            }
            _ => {}
        }
        self.timing.hears_nobody(ctx.alone_since());
        let due = self.timing.look(now, &downing, &ctx.gossip, &scope);
        if ctx.timers.is_set(Timer::AskLease) || self.asked.is_some() {
            return;
        }
        let situation = |ctx: &Ctx| Situation::of(&ctx.gossip, &scope);
        if !ctx.is_in_service() {
            // Nobody was ever up, and no side may go on by what a strategy counts: another one may begin.
            // That takes a majority of the contact points, and the word of an arbiter where there is
            // one: others may have begun, and the news be on its way.
            let asks = is_lease(&downing.strategy);
            if asks && may_begin_without && now >= self.not_before {
                self.ask_soon(ctx, situation(ctx));
            }
            return;
        }
        if !began {
            return;
        }
        let unsettled = self.timing.unsettled_at().unwrap_or(now);
        let more = downing.down_all_when_unstable;
        let too_long = downing.stable_after + more.unwrap_or(downing.stable_after);
        let settled = self.timing.settled_but_for(now, &downing).cloned();
        let decides =
            |ctx: &Ctx, situation: &Situation| situation.decider(leader(ctx)) == Some(ctx.me);
        if let Some(indirect) = settled.filter(|_| due != Due::Decide) {
            // Those go first, and nobody waits for what they say of others.
            let (situation, is_seen) = side(ctx);
            let decision = decide(&downing, &situation.clone().with_lease(true));
            let are_all = decision.verdict == Verdict::DownIndirectlyConnected;
            let is_same = is_seen && are_all && situation.indirect == indirect;
            if is_same && decides(ctx, &situation) {
                if is_lease(&downing.strategy) {
                    return self.ask_now(ctx, situation);
                }
                return self.carry_out(ctx, decision);
            }
        }
        match due {
            Due::Nothing => {}
            // Everybody for itself: that there is one leader is part of what did not settle.
            Due::DownAll => {
                let known = self.timing.known().cloned();
                let situation = known.clone().unwrap_or_else(|| situation(ctx));
                let situation = blaming_few(&downing, &situation).into_owned();
                // Others do not reach this member, or it does not hear them: it is one of those that
                // things do not settle for, and says nothing about the others.
                let is_one = ctx.is_quiet() || situation.unreachable.contains(&ctx.me);
                let may_wait = ctx.config.doubt_oneself && now.since(unsettled) < too_long * 2;
                let may_wait = may_wait && (known.is_some() || situation.indirect.is_empty());
                if may_wait && !is_one {
                    // A side that goes on harms nobody by waiting: what it takes over begins later still.
                    // An arbiter is safe to ask at any time; nobody waits for the larger side now.
                    let side = known.unwrap_or_else(|| side(ctx).0).with_lease(true);
                    match decide(&downing, &side).verdict {
                        Verdict::DownUnreachable if is_lease(&downing.strategy) => {
                            if decides(ctx, &side) {
                                self.ask_now(ctx, side);
                            }
                            return;
                        }
                        Verdict::DownUnreachable | Verdict::DownIndirectlyConnected => return,
                        _ => {}
                    }
                }
                let mut decision = down_all(&situation);
                if ctx.config.doubt_oneself && is_one {
                    decision.down = BTreeSet::from([ctx.me]);
                }
                self.carry_out(ctx, decision);
            }
            Due::Decide => {
                let (situation, is_seen) = side(ctx);
                let waits = !is_seen && now.since(unsettled) < too_long;
                if waits || !decides(ctx, &situation) {
                    return;
                }
                let decision = decide(&downing, &situation);
                match decision.verdict {
                    Verdict::AskLease if is_seen => self.ask_soon(ctx, situation),
                    Verdict::AskLease => self.ask_now(ctx, situation),
                    _ => self.carry_out(ctx, decision),
                }
            }
        }
    }

    /// Plans to ask the arbiter.
    fn ask_soon(&mut self, ctx: &mut Ctx, situation: Situation) {
        let delay = lease_delay(&ctx.config.downing.strategy, &situation);
        ctx.timers.set(Timer::AskLease, ctx.mono() + delay);
        self.planned = situation.unreachable;
    }

    /// The time to ask the arbiter has come.
    pub(crate) fn ask(&mut self, ctx: &mut Ctx) {
        let (situation, is_seen) = side(ctx);
        let is_as_planned = is_seen && situation.unreachable == self.planned;
        if situation.unreachable.is_empty() || !is_as_planned {
            // All is well again, or this side is another one than it was: it plans anew.
            return;
        }
        self.ask_now(ctx, situation);
    }

    fn ask_now(&mut self, ctx: &mut Ctx, situation: Situation) {
        let decision = decide(&ctx.config.downing, &situation.with_lease(true));
        if decision.down.is_empty() {
            return;
        }
        self.calls += 1;
        let (call, state) = (self.calls, ctx.gossip.state().clone());
        let goes_on =
            |member: &SiloAddress| !decision.down.contains(member) && ctx.gossip.has_seen(member);
        let members = state.members().iter().map(|member| member.address());
        let seen: Vec<_> = members.filter(goes_on).collect();
        let claim = Claim::new(ctx.me, ctx.founding, decision.down.clone(), state);
        let claim = Box::new(claim.seen_by(seen));
        self.asked = Some((call, decision));
        ctx.out.push(Effect::AcquireLease { call, claim });
    }

    /// The arbiter has answered.
    pub(crate) fn answered(&mut self, ctx: &mut Ctx, call: u64, lease: Lease) {
        let Some((_, mut granted)) = self.asked.take_if(|(asked, _)| *asked == call) else {
            return;
        };
        let goes_on = match lease {
            Lease::Granted { also_down } => {
                granted.down.extend(also_down);
                if let Strategy::LeaseMajority { release_after, .. } = ctx.config.downing.strategy {
                    let at = ctx.mono() + release_after;
                    ctx.timers.set(Timer::ReleaseLease, at);
                }
                return self.carry_out(ctx, granted);
            }
            Lease::Refused { goes_on } => goes_on,
        };
        if !ctx.is_in_service() {
            // Nobody here is in service. Who was overtaken by another side is told when they meet.
            self.not_before = ctx.mono() + ctx.config.downing.stable_after;
            return;
        }
        let (situation, _) = side(ctx);
        if !situation.unreachable.is_empty() {
            let situation = situation.with_lease(false);
            let mut decision = decide(&ctx.config.downing, &situation);
            // Where the split heals, or flags are old, some of those are reached.
            decision.down.retain(|member| !goes_on.contains(member));
            // Where one of them has seen this state the split has healed, and it decides for all others.
            let is_here = |member: &SiloAddress| {
                let is_other = *member != ctx.me && !situation.unreachable.contains(member);
                is_other && ctx.knows(member) && ctx.gossip.has_seen(member)
            };
            if goes_on.iter().any(is_here) {
                decision.down.clear();
            }
            decision.down.insert(ctx.me);
            self.carry_out(ctx, decision);
        }
    }

    /// The lease is given back once the downed are removed, and a while later.
    pub(crate) fn release(&self, ctx: &mut Ctx) {
        let down = |status| status == MemberStatus::Down;
        let members = ctx.gossip.state().members();
        if members.iter().any(|m| down(m.status())) {
            ctx.timers.set(Timer::ReleaseLease, ctx.now.mono + INTERVAL);
        } else {
            ctx.out.push(Effect::ReleaseLease);
        }
    }

    fn carry_out(&mut self, ctx: &mut Ctx, decision: Decision) {
        if decision.down.is_empty() {
            return;
        }
        // Itself last: then all it downs is in the state that it tells others.
        let me = ctx.me;
        let mut order: Vec<_> = decision.down.iter().copied().collect();
        order.sort_by_key(|member| *member == me);
        ctx.tell(Notice::Decided(decision));
        down(ctx, order.iter().copied());
        // Whoever ends with this member learns it from the member itself: rumours die with those who
        // would spread them.
        if order.last() == Some(&me) {
            let unreachable = ctx.scope().unreachable(ctx.gossip.state());
            order.retain(|member| *member != me && !unreachable.contains(member));
            for member in order {
                ctx.send(member, Message::Down { member });
            }
        }
    }
}

/// The situation of this member, and whether everybody on its side has seen the state, or nothing
/// depends on it. Where somebody takes no news, or is gone with those who watched it, the worst is
/// assumed: every flag counts.
fn side(ctx: &Ctx) -> (Situation, bool) {
    let scope = ctx.scope();
    let situation = Situation::of(&ctx.gossip, &scope);
    if situation.is_seen_by_its_side(&ctx.gossip, &scope) {
        return (situation, true);
    }
    let every = situation.clone().with_every_flag(&ctx.gossip, &scope);
    // The other side may ask the arbiter first. Where no flag is in doubt there is nothing to wait for:
    // somebody may take no news for long, and processes that join all the time are news all the time.
    let asks = is_lease(&ctx.config.downing.strategy);
    if asks && every.unreachable == situation.unreachable {
        return (situation, true);
    }
    (every, false)
}

/// Downs members.
pub(crate) fn down(ctx: &mut Ctx, members: impl IntoIterator<Item = SiloAddress>) {
    ctx.edit(|edit| {
        for member in members {
            edit.advance(&member, MemberStatus::Down, None);
        }
    });
}
