//! The facts that a decision rests on.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use membership_core::SiloAddress;

use super::indirect::to_blame;
use super::{Decision, Verdict};
use crate::convergence::Scope;
use crate::state::{Gossip, Member, MemberStatus};

/// The members of one data centre and who of them is reached.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Situation {
    /// All members of the data centre, by address.
    pub members: Vec<Arc<Member>>,
    /// Those that are not reached: whoever is flagged and has not seen the state in which it is, and the
    /// indirectly connected. Whom these flag is reached by others.
    pub unreachable: BTreeSet<SiloAddress>,
    /// Those that some reach and others do not, and who are [to blame](super::indirectly_connected) for it.
    pub indirect: BTreeSet<SiloAddress>,
    /// The flags for which they are, where others may be to blame instead.
    broken: Vec<(SiloAddress, SiloAddress)>,
    /// Those downed for broken links who may not know it: if the network has split since they may live, with
    /// others that count them.
    unaware: BTreeSet<SiloAddress>,
    /// Whether this side holds the lease; none: the arbiter was not asked.
    pub lease: Option<bool>,
}

impl Situation {
    /// The situation of members that are all reached but for some.
    #[must_use]
    pub fn new(
        members: impl IntoIterator<Item = Arc<Member>>,
        unreachable: impl IntoIterator<Item = SiloAddress>,
    ) -> Self {
        let mut members: Vec<_> = members.into_iter().collect();
        members.sort_unstable_by_key(|m| m.address());
        Self {
            members,
            unreachable: unreachable.into_iter().collect(),
            ..Self::default()
        }
    }

    /// Adds members that some reach and others do not.
    #[must_use]
    pub fn with_indirect(mut self, indirect: impl IntoIterator<Item = SiloAddress>) -> Self {
        self.indirect.extend(indirect);
        self
    }

    /// Adds broken links: flags of members that have seen the state about others that have, too.
    #[must_use]
    pub fn with_broken_links(
        mut self,
        flags: impl IntoIterator<Item = (SiloAddress, SiloAddress)>,
    ) -> Self {
        self.broken = flags.into_iter().collect();
        self.indirect = to_blame(&self.broken, |worst| worst);
        self
    }

    /// Adds the answer of the arbiter.
    #[must_use]
    pub const fn with_lease(mut self, held: bool) -> Self {
        self.lease = Some(held);
        self
    }

    /// The situation that a state shows.
    #[must_use]
    pub fn of(gossip: &Gossip, scope: &Scope) -> Self {
        let mut situation = Self::flagged(gossip, scope);
        situation
            .unreachable
            .retain(|member| !gossip.has_seen(member));
        situation.unreachable.extend(&situation.indirect);
        situation
    }

    /// The same where nobody is taken for reached who is flagged.
    pub(crate) fn flagged(gossip: &Gossip, scope: &Scope) -> Self {
        let state = gossip.state();
        let mine = state.members().iter().filter(|m| scope.is_mine(m));
        let mut flags = current_flags(gossip, scope);
        let situation = Self::new(mine.cloned(), flags.iter().map(|(_, subject)| *subject));
        flags.retain(|(_, subject)| gossip.has_seen(subject));
        let mut situation = situation.with_broken_links(flags);
        situation.unaware = unaware(gossip, scope);
        situation
    }

    /// Whether everybody on this side has seen the state. Until then the flags of those that have not are
    /// [taken for old ones](current_flags), and whoever they flag for one that is reached.
    pub(crate) fn is_seen_by_its_side(&self, gossip: &Gossip, scope: &Scope) -> bool {
        let blocking = scope.blocking(gossip);
        let mut unseen = blocking.unseen.iter();
        unseen.all(|member| self.unreachable.contains(member))
    }

    /// The same with every flag, old ones too: nobody is taken for reached whom somebody flags.
    pub(crate) fn with_every_flag(mut self, gossip: &Gossip, scope: &Scope) -> Self {
        let mut flagged = scope.unreachable(gossip.state()).subjects();
        flagged.remove(&scope.me);
        self.unreachable.extend(flagged);
        self.broken.clear();
        self
    }

    /// The situation of a side on which those that join are up already: what the other end of a split sees
    /// if the cluster began there, and the news is on its way.
    #[must_use]
    pub(crate) fn if_begun(mut self) -> Self {
        for (place, member) in (1..).zip(&mut self.members) {
            if matches!(
                member.status(),
                MemberStatus::Joining | MemberStatus::WeaklyUp
            ) {
                let up = member.changed(MemberStatus::Up, Some(place), member.stamp());
                *member = Arc::new(up);
            }
        }
        // Nobody is up here: who is flagged at all is not waited for.
        self.indirect.clear();
        self
    }

    /// Members that count: those that [serve](Member::serves), of a role if one is given.
    pub(super) fn counted<'a>(
        &'a self,
        role: Option<&'a str>,
    ) -> impl Iterator<Item = &'a Arc<Member>> + Clone {
        self.with_status(role, Member::serves)
    }

    /// Members that count if a change that is under way comes first: on this side those that leave
    /// are gone, on the other one those that join are up, and so is one that leaves before it was up here.
    pub(super) fn after_changes<'a>(
        &'a self,
        role: Option<&'a str>,
        joiners: bool,
    ) -> impl Iterator<Item = &'a Arc<Member>> + Clone {
        self.with_status(role, move |m| match m.status() {
            MemberStatus::Up => true,
            MemberStatus::Leaving if m.serves() => !self.reaches(m),
            _ => joiners && m.status().is_present() && !self.reaches(m),
        })
    }

    fn with_status<'a>(
        &'a self,
        role: Option<&'a str>,
        counts: impl Fn(&Member) -> bool + Clone + 'a,
    ) -> impl Iterator<Item = &'a Arc<Member>> + Clone {
        let has_role = move |m: &Member| role.is_none_or(|role| m.info().role == role);
        self.members
            .iter()
            .filter(move |m| counts(m) && has_role(m))
    }

    /// Adds those that are down and may not know it.
    pub(super) fn with_unaware<'a>(
        &'a self,
        role: Option<&'a str>,
        members: impl Iterator<Item = &'a Arc<Member>> + Clone,
    ) -> impl Iterator<Item = &'a Arc<Member>> + Clone {
        members.chain(self.with_status(role, |m| self.unaware.contains(&m.address())))
    }

    pub(super) fn reaches(&self, member: &Member) -> bool {
        let address = member.address();
        !self.unreachable.contains(&address) && !self.unaware.contains(&address)
    }

    /// How many of these are reached, and how many are not.
    pub(super) fn sides<'a>(
        &self,
        members: impl Iterator<Item = &'a Arc<Member>>,
    ) -> (usize, usize) {
        let (mut reached, mut unreached) = (0, 0);
        for member in members {
            if self.reaches(member) {
                reached += 1;
            } else {
                unreached += 1;
            }
        }
        (reached, unreached)
    }

    /// Whether more than this share of the members is connected indirectly.
    pub(super) fn too_many_indirect(&self, per_mille: u32) -> bool {
        let all = self.counted(None).count() as u64;
        self.indirect.len() as u64 * 1_000 > all * u64::from(per_mille)
    }

    /// The same as if the indirectly connected were reached by all.
    pub(super) fn without_indirect(&self) -> Self {
        Self {
            unreachable: &self.unreachable - &self.indirect,
            indirect: BTreeSet::new(),
            broken: Vec::new(),
            ..self.clone()
        }
    }

    /// The same with others to blame: of those that have most broken links one after the other, those that are
    /// not `spared` first, and the youngest of them.
    pub(super) fn blaming_one_by_one(&self, spared: &BTreeSet<SiloAddress>) -> Self {
        let mut order: Vec<_> = self.members.iter().collect();
        order.sort_unstable_by(|a, b| b.age_order(a));
        let order: BTreeMap<_, _> = (0..)
            .zip(order)
            .map(|(place, member)| (member.address(), place))
            .collect();
        let take = |worst: BTreeSet<SiloAddress>| {
            let rank = |m: &SiloAddress| (spared.contains(m), order.get(m).copied(), *m);
            worst.into_iter().min_by_key(rank).into_iter().collect()
        };
        let indirect = to_blame(&self.broken, take);
        Self {
            unreachable: &(&self.unreachable - &self.indirect) | &indirect,
            indirect,
            broken: Vec::new(),
            ..self.clone()
        }
    }

    /// Who decides for this side: the leader, or else the first by address of those in service that are
    /// reached. One that flags all others in error is the only one that nobody flags, and leads.
    pub(crate) fn decider(&self, leader: Option<SiloAddress>) -> Option<SiloAddress> {
        let able = leader.filter(|leader| !self.unreachable.contains(leader));
        let mut others = self.counted(None).filter(|m| self.reaches(m));
        let first = || others.next().map(|m| m.address());
        able.or_else(first).or(leader)
    }

    /// A verdict with whom it downs. Members that exit or are down are left as they are.
    pub(super) fn decision(&self, verdict: Verdict) -> Decision {
        let downable = self.members.iter().filter(|m| m.status().is_present());
        let down = downable
            .filter(|m| match verdict {
                Verdict::DownAll => true,
                Verdict::DownUnreachable => !self.reaches(m),
                Verdict::DownReachable => self.reaches(m),
                Verdict::DownIndirectlyConnected => self.indirect.contains(&m.address()),
                Verdict::AskLease => false,
            })
            .map(|m| m.address())
            .collect();
        let (reached, unreached) = self.sides(self.counted(None));
        Decision {
            verdict,
            down,
            reached,
            unreached,
            indirect: self.indirect.clone(),
        }
    }
}

/// The flags of the data centre about those that are neither down nor exiting, by observers that have
/// seen the current state. Others' flags are old: an observer on the other side of a split cannot take
/// back what it said before.
pub(super) fn current_flags(gossip: &Gossip, scope: &Scope) -> Vec<(SiloAddress, SiloAddress)> {
    let state = gossip.state();
    let mine = |address: &SiloAddress, counts: fn(&Member) -> bool| {
        state
            .member(address)
            .is_some_and(|m| scope.is_mine(m) && counts(m))
    };
    let unreachable = scope.unreachable(state);
    unreachable
        .iter()
        .filter(|(subject, _)| mine(subject, |m| m.status().is_present()))
        .flat_map(|(subject, by)| by.iter().map(|observer| (*observer, *subject)))
        .filter(|(observer, _)| gossip.has_seen(observer))
        .collect()
}

/// Those that are down, are at one end of a broken link, and are not known to have ended. Who only flags
/// members that do not answer either has most likely crashed with them.
fn unaware(gossip: &Gossip, scope: &Scope) -> BTreeSet<SiloAddress> {
    let (state, flags) = (gossip.state(), gossip.state().reachability());
    let serves = |address: &SiloAddress| state.member(address).is_some_and(|m| m.serves());
    let is_broken = |observer: &SiloAddress, subject: &SiloAddress| {
        let answers = serves(subject) && gossip.has_seen(subject);
        answers || flags.flag(subject, observer).is_some()
    };
    let is_end = |observer: &SiloAddress| {
        let rows = flags.of(observer);
        rows.is_some_and(|rows| rows.rows().keys().any(|s| is_broken(observer, s)))
    };
    let mine = state.members().iter().filter(|m| scope.is_mine(m));
    let down = mine.filter(|m| m.status() == MemberStatus::Down && m.up_number().is_some());
    let down = down.filter(|m| !m.end_confirmed()).map(|m| m.address());
    down.filter(|m| !gossip.has_seen(m) && is_end(m)).collect()
}

/// Those of them whose subject has seen the state, too: there is a way from each end to the other.
pub(crate) fn broken_links(gossip: &Gossip, scope: &Scope) -> Vec<(SiloAddress, SiloAddress)> {
    let mut flags = current_flags(gossip, scope);
    flags.retain(|(_, subject)| gossip.has_seen(subject));
    flags
}

#[cfg(test)]
mod tests {
    use membership_core::{InstanceId, SiloInfo};

    use super::*;
    use crate::state::{DEFAULT_DATA_CENTRE, Flag, Profile};

    #[test]
    fn a_side_has_seen_the_state_when_all_that_are_reached_have() {
        let silo = |n: u8| SiloAddress::new([10, 0, 0, n].into(), 7100, 1);
        let scope = Scope {
            me: silo(1),
            data_centre: DEFAULT_DATA_CENTRE.to_owned(),
            leaving_observers_count: true,
        };
        let mut gossip = Gossip::default();
        gossip.edit(silo(1), |edit| {
            for n in 1..=3 {
                let profile = Arc::new(Profile::new(SiloInfo::named("m")));
                edit.admit(silo(n), InstanceId::new(u128::from(n)), profile);
                edit.advance(&silo(n), MemberStatus::Up, Some(u64::from(n)));
            }
        });
        let seen =
            |gossip: &Gossip| Situation::of(gossip, &scope).is_seen_by_its_side(gossip, &scope);
        gossip.mark_seen(&silo(2));
        assert!(!seen(&gossip), "the third is reached, and has not seen it");
        gossip.edit(silo(1), |edit| edit.flag(&silo(3), Some(Flag::Unreachable)));
        assert!(!seen(&gossip), "the second has not seen that change");
        gossip.mark_seen(&silo(2));
        assert!(seen(&gossip), "nobody waits for whom nobody reaches");
    }
}
