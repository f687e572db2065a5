//! When the resolver decides: once nothing has changed for a while, or when things have not settled
//! for too long.

use std::collections::{BTreeMap, BTreeSet};

use membership_core::{MonoTime, SiloAddress};

use super::doubted::Doubted;
use super::{Downing, Situation, is_lease};
use crate::convergence::Scope;
use crate::state::{Gossip, Member, MemberStatus, Version};

/// What is due.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Due {
    /// Nothing.
    Nothing,
    /// Nothing has changed for `stable_after`: decide.
    Decide,
    /// Things have changed for too long: down all.
    DownAll,
}

/// What a change of makes the resolver wait again: flags, and members that went up, exit or are
/// down.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Watched {
    flags: Vec<(SiloAddress, SiloAddress)>,
    /// The flags about members that no strategy counts: those that join, or leave before they were up.
    joining: Vec<(SiloAddress, SiloAddress)>,
    steps: BTreeMap<SiloAddress, MemberStatus>,
}

impl Watched {
    /// What flags say that are `believed`, and what steps there were. Joining, weakly up, leaving and
    /// removed members do not make it wait, nor one that leaves before it was up: a process that is started
    /// and stopped again and again would make it wait for ever.
    pub(super) fn of(
        gossip: &Gossip,
        scope: &Scope,
        every_flag_counts: bool,
        believed: impl Fn(&SiloAddress, &SiloAddress) -> bool,
    ) -> Self {
        let state = gossip.state();
        let blocks = |address: &SiloAddress| {
            let member = state.member(address);
            member.is_some_and(|m| scope.is_mine(m) && m.status().is_present())
        };
        let unreachable = scope.unreachable(state);
        let counts = |address: &SiloAddress| {
            let member = state.member(address);
            every_flag_counts || member.is_some_and(Member::serves)
        };
        let (flags, joining) = unreachable
            .iter()
            .filter(|(subject, _)| blocks(subject))
            .flat_map(|(subject, by)| {
                let mut observers: Vec<_> = by.iter().filter(|o| believed(o, subject)).collect();
                // Where it does not matter who flags a member, the member stands for all of them.
                if !every_flag_counts && !observers.is_empty() {
                    observers = vec![subject];
                }
                observers.into_iter().map(|observer| (*observer, *subject))
            })
            .partition(|(_, subject)| counts(subject));
        let members = state.members().iter().filter(|m| scope.is_mine(m));
        let steps = members.filter_map(|m| {
            let step = match m.status() {
                _ if m.serves() => MemberStatus::Up,
                MemberStatus::Exiting => MemberStatus::Exiting,
                MemberStatus::Down => MemberStatus::Down,
                _ => return None,
            };
            Some((m.address(), step))
        });
        Self {
            flags,
            joining,
            steps: steps.collect(),
        }
    }

    /// Takes note of members as if they were flagged.
    pub(super) fn add(&mut self, members: &BTreeSet<SiloAddress>) {
        self.flags.extend(members.iter().map(|m| (*m, *m)));
    }

    /// Whether strategies count the same members, on the same sides.
    pub(super) fn counts_as(&self, other: &Self) -> bool {
        (&self.flags, &self.steps) == (&other.flags, &other.steps)
    }

    /// Whether things had settled in between: somebody is down now who was unreachable before, or is up,
    /// for which all members had to be reached.
    fn has_settled_since(&self, before: &Self) -> bool {
        let is = |address, step| self.steps.get(address) == Some(&step);
        let mut subjects = before.flags.iter().chain(&before.joining);
        let mut went_up = self.steps.iter().filter(|(address, step)| {
            **step == MemberStatus::Up && !before.steps.contains_key(*address)
        });
        subjects.any(|(_, subject)| is(subject, MemberStatus::Down)) || went_up.next().is_some()
    }
}

/// Since when nothing has changed, and since when somebody is unreachable.
#[derive(Clone, Debug, Default)]
pub struct Timing {
    /// The state that was last looked at: another look at it finds the same.
    version: Option<Version>,
    watched: Watched,
    changed_at: MonoTime,
    /// The last change that was not only about members that join.
    counted_at: MonoTime,
    /// Since when this member hears nobody, if it does not.
    alone_since: Option<MonoTime>,
    /// The first change since all was well.
    unsettled_at: Option<MonoTime>,
    doubted: Doubted,
}

impl Timing {
    /// Looks at a state. Call it whenever the state has changed, and once per second.
    pub fn look(
        &mut self,
        now: MonoTime,
        downing: &Downing,
        gossip: &Gossip,
        scope: &Scope,
    ) -> Due {
        if self.version != Some(gossip.version()) {
            self.version = Some(gossip.version());
            let watched = Watched::of(gossip, scope, downing.every_flag_counts, |_, _| true);
            if watched != self.watched {
                if !watched.counts_as(&self.watched) {
                    self.counted_at = now;
                }
                if watched.has_settled_since(&self.watched) {
                    self.unsettled_at = None;
                }
                self.watched = watched;
                self.changed_at = now;
            }
        }
        if self.watched.flags.is_empty() && self.watched.joining.is_empty() {
            self.unsettled_at = None;
            self.doubted = Doubted::default();
            return Due::Nothing;
        }
        if !downing.every_flag_counts {
            self.doubted.look(now, gossip, scope);
        }
        let since = self.alone_since.unwrap_or(now);
        let since = *self.unsettled_at.get_or_insert(since);
        let too_long = downing
            .down_all_when_unstable
            .is_some_and(|more| now.since(since) >= downing.stable_after + more);
        // Processes that crash soon after each start may change something for ever: they end themselves
        // and not all others. Where the other side of a split may ask an arbiter first, nobody waits for them.
        let only_joining = now.since(self.counted_at) >= downing.stable_after;
        let may_be_late = is_lease(&downing.strategy) && !self.watched.flags.is_empty();
        let enough = only_joining && (too_long || may_be_late);
        if now.since(self.changed_at) >= downing.stable_after || enough {
            Due::Decide
        } else if too_long {
            Due::DownAll
        } else {
            Due::Nothing
        }
    }

    /// Takes note since when this member hears nobody. That is known before it flags anybody: until it does, it
    /// waits longer than usual, and others that have missed it may have downed it by then.
    pub(crate) const fn hears_nobody(&mut self, since: Option<MonoTime>) {
        self.alone_since = since;
    }

    /// This process was paused: what it knew is old, and it waits again.
    pub fn start_over(&mut self, now: MonoTime) {
        self.alone_since = None;
        self.changed_at = now;
        self.counted_at = now;
        self.unsettled_at = self.unsettled_at.map(|_| now);
        self.doubted.start_over(now);
    }

    /// The indirectly connected, if nothing has changed for `stable_after` but by what they say.
    pub(crate) fn settled_but_for(
        &self,
        now: MonoTime,
        downing: &Downing,
    ) -> Option<&BTreeSet<SiloAddress>> {
        let (indirect, since) = self.doubted.indirect();
        let is_settled = now.since(since) >= downing.stable_after;
        (is_settled && !indirect.is_empty()).then_some(indirect)
    }

    /// The last situation that was known on the whole side, if nothing has changed since but by what the
    /// indirectly connected say.
    pub(crate) const fn known(&self) -> Option<&Situation> {
        self.doubted.situation()
    }

    /// Since when somebody is unreachable.
    #[must_use]
    pub const fn unsettled_at(&self) -> Option<MonoTime> {
        self.unsettled_at
    }
}
