//! The work of the leader: when members agree, and when they do not for long (specification, leader
//! actions).

use std::collections::BTreeSet;

use membership_core::MonoTime;

use super::context::Ctx;
use super::founder::majority;
use super::joiner::Joiner;
use crate::convergence::Blocking;
use crate::downing::{Situation, Strategy, Verdict, decide, is_lease};
use crate::state::MemberStatus;

#[derive(Debug, Default)]
pub(crate) struct Leading {
    /// Since when members have not agreed.
    pub(crate) blocked_since: Option<MonoTime>,
    /// Since when somebody is unreachable.
    unreachable_since: Option<MonoTime>,
}

impl Leading {
    /// Looks at the state, and changes it if this member leads; whether it did.
    pub(crate) fn look(&mut self, ctx: &mut Ctx, joiner: &Joiner) -> bool {
        if !ctx.is_member() {
            return false;
        }
        let scope = ctx.scope();
        let blocking = scope.blocking(&ctx.gossip);
        self.note(ctx, &blocking);
        if scope.leader(ctx.gossip.state()) != Some(ctx.me) {
            return false;
        }
        let config = ctx.config.clone();
        if blocking.is_nothing() {
            let state = ctx.gossip.state();
            let most = config.max_tombstones as usize;
            let has_work = state
                .members()
                .iter()
                .any(|m| m.status() != MemberStatus::Up)
                || state.tombstones().len() > most;
            // Where all who were up have ended, members are removed while nobody may be moved up.
            let may_begin = joiner.may_begin(ctx);
            let may_lead = has_work && (may_begin || ctx.is_established());
            return may_lead && ctx.edit(|edit| scope.lead(edit, &config, may_begin));
        }
        self.weakly(ctx, &blocking) || self.begin_without_the_silent(ctx, &blocking, joiner)
    }

    fn note(&mut self, ctx: &Ctx, blocking: &Blocking) {
        let now = ctx.mono();
        let since = |is: bool, before: Option<MonoTime>| is.then(|| before.unwrap_or(now));
        self.blocked_since = since(!blocking.is_nothing(), self.blocked_since);
        let silent = !blocking.unreachable.is_empty();
        self.unreachable_since = since(silent, self.unreachable_since);
    }

    /// Members that join begin although somebody is unreachable.
    fn weakly(&self, ctx: &mut Ctx, blocking: &Blocking) -> bool {
        let (Some(after), Some(since)) = (ctx.config.weakly_up_after, self.blocked_since) else {
            return false;
        };
        let joining = |status| status == MemberStatus::Joining;
        let anybody = ctx
            .gossip
            .state()
            .members()
            .iter()
            .any(|m| joining(m.status()));
        let due = anybody
            && ctx.is_established()
            && !blocking.unreachable.is_empty()
            && ctx.mono().since(since) >= after;
        let (scope, config) = (ctx.scope(), ctx.config.clone());
        due && ctx.edit(|edit| scope.lead_weakly(edit, &config))
    }

    /// A cluster that has not begun has no member that a resolver counts. Joining members that nobody
    /// reaches are downed if a majority of the contact points is reached, and this side would go on if all
    /// were up. With an arbiter it is
    /// [asked](super::resolver::Resolver::look) first.
    fn begin_without_the_silent(
        &self,
        ctx: &mut Ctx,
        blocking: &Blocking,
        joiner: &Joiner,
    ) -> bool {
        let asks = is_lease(&ctx.config.downing.strategy);
        if asks || !self.may_begin_without(ctx, blocking, joiner) {
            return false;
        }
        let silent: Vec<_> = blocking.unreachable.iter().map(|(s, _)| *s).collect();
        ctx.edit(|edit| {
            for member in silent {
                edit.advance(&member, MemberStatus::Down, None);
            }
        })
    }

    /// Whether this member leads one that has not begun, and that may begin without those that nobody
    /// reaches.
    pub(crate) fn may_begin_without_the_silent(&self, ctx: &Ctx, joiner: &Joiner) -> bool {
        let scope = ctx.scope();
        let blocking = scope.blocking(&ctx.gossip);
        let leads = scope.leader(ctx.gossip.state()) == Some(ctx.me);
        leads && self.may_begin_without(ctx, &blocking, joiner)
    }

    fn may_begin_without(&self, ctx: &Ctx, blocking: &Blocking, joiner: &Joiner) -> bool {
        let wait = ctx.config.downing.stable_after;
        let silent: BTreeSet<_> = blocking.unreachable.iter().map(|(s, _)| *s).collect();
        let mut since = self.unreachable_since.iter();
        let due = since.any(|at| ctx.mono().since(*at) >= wait);
        if ctx.is_in_service() || !due || silent.is_empty() {
            return false;
        }
        let reached = joiner.contact_members(ctx, |member| !silent.contains(member));
        if reached < majority(joiner.contact_points().len()) {
            return false;
        }
        let situation = Situation::flagged(&ctx.gossip, &ctx.scope());
        if !situation.is_seen_by_its_side(&ctx.gossip, &ctx.scope()) {
            return false;
        }
        // The others may be up already. Then they decide by the strategy, and only one side may go on.
        match ctx.config.downing.strategy {
            Strategy::None | Strategy::AutoDownUnsafe { .. } | Strategy::DownAll => true,
            _ => {
                let situation = situation.if_begun().with_lease(true);
                let decision = decide(&ctx.config.downing, &situation);
                decision.verdict == Verdict::DownUnreachable
            }
        }
    }
}
