//! Who leads, and what the leader changes once members agree (specification, leader).
//!
//! There is no election: who is first in order among those that can, leads. Each member knows that
//! by itself.

use std::collections::BTreeMap;

use membership_core::SiloAddress;

use crate::Config;
use crate::convergence::Scope;
use crate::state::{Edit, Member, MemberStatus, State, Unreachable};

impl Scope {
    /// The leader of this data centre as the judging member sees it: the first by address of those
    /// that are up or leaving and not flagged; if there is none, the first of the weakly up, then of
    /// the joining (and of those that leave before they were up), then of the exiting. The judging
    /// member counts itself as reachable.
    #[must_use]
    pub fn leader(&self, state: &State) -> Option<SiloAddress> {
        self.leader_among(state, &self.unreachable(state), |_| true)
    }

    /// The leader among the members of a role.
    #[must_use]
    pub fn leader_of_role(&self, state: &State, role: &str) -> Option<SiloAddress> {
        let has_role = |m: &Member| m.info().role == role;
        self.leader_among(state, &self.unreachable(state), has_role)
    }

    fn leader_among(
        &self,
        state: &State,
        unreachable: &Unreachable,
        accepts: impl Fn(&Member) -> bool,
    ) -> Option<SiloAddress> {
        let can = |m: &Member| {
            let reached = m.address() == self.me || !unreachable.contains(&m.address());
            reached && self.is_mine(m) && accepts(m)
        };
        // Members are in order of address, and `min_by_key` takes the first.
        let rank = |m: &Member| match m.status() {
            _ if m.serves() => Some(0),
            MemberStatus::WeaklyUp => Some(1),
            MemberStatus::Joining | MemberStatus::Up | MemberStatus::Leaving => Some(2),
            MemberStatus::Exiting => Some(3),
            MemberStatus::Down | MemberStatus::Removed => None,
        };
        let able = state.members().iter().filter(|m| can(m));
        let ranked = able.filter_map(|m| Some((rank(m)?, m.address())));
        ranked.min_by_key(|(rank, _)| *rank).map(|(_, m)| m)
    }

    /// Makes the leader's changes to a state that members agree on: joining and weakly up members
    /// become up, oldest address first; leaving ones exiting; exiting and down ones are removed, once
    /// they have ended or nobody reaches them. Nobody becomes up unless the cluster `may_begin`.
    pub fn lead(&self, edit: &mut Edit<'_>, config: &Config, may_begin: bool) {
        let unreachable = self.unreachable(edit.state());
        let enough = may_begin && has_enough_members(edit.state(), config);
        let mut next = next_up_number(edit.state());
        let members: Vec<_> = edit.state().members().iter().cloned().collect();
        for member in members {
            let address = member.address();
            let ended = member.end_confirmed() || unreachable.contains(&address);
            match member.status() {
                MemberStatus::Joining | MemberStatus::WeaklyUp
                    if enough && self.is_mine(&member) =>
                {
                    edit.advance(&address, MemberStatus::Up, Some(next));
                    next += 1;
                }
                MemberStatus::Leaving if self.is_mine(&member) => {
                    edit.advance(&address, MemberStatus::Exiting, None);
                }
                MemberStatus::Exiting | MemberStatus::Down if ended => {
                    edit.remove(&address);
                }
                _ => {}
            }
        }
        let most = usize::try_from(config.max_tombstones).unwrap_or(usize::MAX);
        edit.bound_tombstones(most);
    }

    /// Lets joining members that are reached begin although members do not agree.
    pub fn lead_weakly(&self, edit: &mut Edit<'_>, config: &Config) {
        if !has_enough_members(edit.state(), config) {
            return;
        }
        let unreachable = self.unreachable(edit.state());
        let joining: Vec<_> = edit
            .state()
            .members()
            .iter()
            .filter(|m| m.status() == MemberStatus::Joining && self.is_mine(m))
            .map(|m| m.address())
            .filter(|address| !unreachable.contains(address))
            .collect();
        for address in joining {
            edit.advance(&address, MemberStatus::WeaklyUp, None);
        }
    }
}

/// The number after the largest that was given.
fn next_up_number(state: &State) -> u64 {
    let numbers = state.members().iter().filter_map(|m| m.up_number());
    numbers.max().unwrap_or(0).saturating_add(1)
}

/// Whether there are as many members as configured, of all statuses and data centres.
fn has_enough_members(state: &State, config: &Config) -> bool {
    let count = |role: Option<&str>| {
        let all = state.members().iter();
        all.filter(|m| role.is_none_or(|role| m.info().role == role))
            .count()
    };
    let reached = |least: u32, count: usize| count >= usize::try_from(least).unwrap_or(usize::MAX);
    let roles: &BTreeMap<String, u32> = &config.min_members_of_role;
    reached(config.min_members, count(None))
        && roles
            .iter()
            .all(|(role, least)| reached(*least, count(Some(role))))
}
