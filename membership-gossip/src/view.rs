//! What a member publishes: who is a member, how far, who is reached, and whether members agree.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::{Arc, OnceLock};

use membership_core::{FoundingId, Members, MonoTime, Peer, Peers, Rendezvous, SiloAddress};

use crate::convergence::{Blocking, Scope};
use crate::state::{Gossip, Member, MemberStatus, State, Version};

/// The cluster as one member sees it. Immutable; two members may have different views at the same
/// time, and there is no order of views. **It gives no fencing token.**
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GossipView {
    founding: Option<FoundingId>,
    gossip: Gossip,
    scope: Scope,
    blocked_since: Option<MonoTime>,
    blocking: Blocking,
    owners: Owners,
}

/// The members in service with a hash of each: made when it is first asked for, and shared by all
/// clones of a view. It follows from the rest of the view.
#[derive(Clone, Default)]
struct Owners(Arc<OnceLock<(Rendezvous, Vec<Arc<Member>>)>>);

impl PartialEq for Owners {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl Eq for Owners {}

impl fmt::Debug for Owners {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Owners")
    }
}

impl GossipView {
    pub(crate) fn new(
        founding: Option<FoundingId>,
        gossip: Gossip,
        scope: Scope,
        blocked_since: Option<MonoTime>,
    ) -> Self {
        let blocking = scope.blocking(&gossip);
        Self {
            founding,
            gossip,
            scope,
            blocked_since,
            blocking,
            owners: Owners::default(),
        }
    }

    /// The view of a member of a data centre that has this state; for tests of applications.
    #[must_use]
    pub fn of(
        founding: Option<FoundingId>,
        gossip: Gossip,
        me: SiloAddress,
        data_centre: &str,
    ) -> Self {
        Self::told(founding, gossip, me, data_centre, false)
    }

    /// The view of a member that told its state; for tools. `leaving_observers_count` is
    /// [its setting](crate::Config::leaving_observers_count).
    #[must_use]
    pub fn told(
        founding: Option<FoundingId>,
        gossip: Gossip,
        me: SiloAddress,
        data_centre: &str,
        leaving_observers_count: bool,
    ) -> Self {
        let scope = Scope {
            me,
            data_centre: data_centre.to_owned(),
            leaving_observers_count,
        };
        Self::new(founding, gossip, scope, None)
    }

    /// The member whose view this is.
    #[must_use]
    pub const fn me(&self) -> SiloAddress {
        self.scope.me
    }

    /// The founding of the cluster.
    #[must_use]
    pub const fn founding(&self) -> Option<FoundingId> {
        self.founding
    }

    /// The hash of the state: views with the same version show the same members.
    #[must_use]
    pub const fn version(&self) -> Version {
        self.gossip.version()
    }

    /// The state.
    #[must_use]
    pub const fn state(&self) -> &Arc<State> {
        self.gossip.state()
    }

    /// All members, by address.
    pub fn members(&self) -> impl DoubleEndedIterator<Item = &Arc<Member>> + Clone {
        self.state().members().iter()
    }

    /// A member by its whole address.
    #[must_use]
    pub fn member(&self, address: &SiloAddress) -> Option<&Member> {
        self.state().member(address)
    }

    /// The members in service, that are reached: up, or weakly up where that is configured. Another
    /// member may see others.
    pub fn active(&self) -> impl Iterator<Item = &Arc<Member>> {
        let unreachable = self.unreachable();
        let serves = |m: &Member| matches!(m.status(), MemberStatus::Up | MemberStatus::WeaklyUp);
        self.members()
            .filter(move |m| serves(m) && !unreachable.contains(&m.address()))
    }

    /// The member in service that owns `key`, by rendezvous hashing. **Others may see another owner**,
    /// and there is no token by which a store could tell them apart: for work that is only wasted if
    /// two do it. None: nobody is in service.
    #[must_use]
    pub fn owner(&self, key: impl AsRef<[u8]>) -> Option<&Arc<Member>> {
        let (places, members) = self.owners.0.get_or_init(|| {
            let members: Vec<_> = self.active().cloned().collect();
            let names = members.iter().map(|m| m.address().to_string());
            (Rendezvous::of(names), members)
        });
        members.get(places.owner(key)?)
    }

    /// How far an incarnation is: [`MemberStatus::Removed`] if it is gone, none if it is not known.
    #[must_use]
    pub fn status(&self, address: &SiloAddress) -> Option<MemberStatus> {
        self.state().status(address)
    }

    /// The members that somebody does not reach, each with those who say so; all data centres.
    #[must_use]
    pub fn reachability(&self) -> BTreeMap<SiloAddress, BTreeSet<SiloAddress>> {
        let mut all = BTreeMap::<_, BTreeSet<_>>::new();
        for (observer, subject, _) in self.state().reachability().flags() {
            all.entry(subject).or_default().insert(observer);
        }
        all
    }

    /// The members of this data centre that are not reached, by the flags that count.
    #[must_use]
    pub fn unreachable(&self) -> BTreeSet<SiloAddress> {
        self.scope.unreachable(self.state()).subjects()
    }

    /// The other data centres of which a member of this one does not reach somebody.
    #[must_use]
    pub fn unreachable_data_centres(&self) -> BTreeSet<String> {
        let of = |address: &SiloAddress| self.member(address).filter(|m| !self.scope.is_mine(m));
        let flagged = self.scope.unreachable(self.state()).subjects();
        let members = flagged.iter().filter_map(of);
        members.map(|m| m.data_centre().to_owned()).collect()
    }

    /// Whether all members that must have seen this state are known to have, and nobody is
    /// unreachable.
    #[must_use]
    pub const fn converged(&self) -> bool {
        self.blocking.is_nothing()
    }

    /// Who keeps members from agreeing.
    #[must_use]
    pub const fn blocked_by(&self) -> &Blocking {
        &self.blocking
    }

    /// Since when members do not agree, by this process's clock.
    #[must_use]
    pub const fn blocked_since(&self) -> Option<MonoTime> {
        self.blocked_since
    }

    /// The leader of this data centre, as this member sees it.
    #[must_use]
    pub fn leader(&self) -> Option<SiloAddress> {
        self.scope.leader(self.state())
    }

    /// The roles of members that are up or weakly up, each with its leader as this member sees it.
    #[must_use]
    pub fn roles(&self) -> BTreeMap<String, Option<SiloAddress>> {
        let began = |m: &&Arc<Member>| {
            matches!(m.status(), MemberStatus::Up | MemberStatus::WeaklyUp)
                && !m.info().role.is_empty()
        };
        let roles = self.members().filter(began).map(|m| m.info().role.clone());
        let leader = |role: String| {
            let leader = self.scope.leader_of_role(self.state(), &role);
            (role, leader)
        };
        roles.map(leader).collect()
    }

    /// The oldest member in service: the one that was up first.
    #[must_use]
    pub fn oldest(&self) -> Option<&Arc<Member>> {
        let mine = self.members().filter(|m| self.scope.is_mine(m));
        let began = mine.filter(|m| m.serves());
        began.min_by(|a, b| a.age_order(b))
    }
}

impl Members for GossipView {
    fn me(&self) -> SiloAddress {
        self.scope.me
    }

    fn active(&self) -> Peers<'_> {
        Box::new(self.active().map(|member| peer(member)))
    }

    fn owner(&self, key: &[u8]) -> Option<Peer<'_>> {
        self.owner(key).map(|member| peer(member))
    }
}

fn peer(member: &Member) -> Peer<'_> {
    Peer::new(member.address(), member.instance(), member.info())
}
