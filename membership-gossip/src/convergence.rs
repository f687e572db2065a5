//! When members agree (specification, gossip convergence), and what keeps them from it.

use membership_core::SiloAddress;

use crate::state::{Gossip, Member, MemberStatus, State, Unreachable};

/// From where agreement and leader are judged: a member, its data centre, and whose flags count.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Scope {
    /// The judging member.
    pub me: SiloAddress,
    /// Its data centre. Others' members have no say.
    pub data_centre: String,
    /// Whether flags of leaving and exiting observers count.
    pub leaving_observers_count: bool,
}

/// What keeps a state from being agreed on. Empty: it is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Blocking {
    /// Members that are not known to have seen the state.
    pub unseen: Vec<SiloAddress>,
    /// Members that somebody does not reach and nobody has downed, each with one who flags it.
    pub unreachable: Vec<(SiloAddress, SiloAddress)>,
}

impl Blocking {
    /// Whether nothing blocks.
    #[must_use]
    pub const fn is_nothing(&self) -> bool {
        self.unseen.is_empty() && self.unreachable.is_empty()
    }
}

impl Scope {
    /// Whether a member is of this data centre.
    #[must_use]
    pub fn is_mine(&self, member: &Member) -> bool {
        member.data_centre() == self.data_centre
    }

    /// Those that an observer of this data centre flags whose word counts: one that is not down, nor
    /// on its way out unless that is configured.
    #[must_use]
    pub fn unreachable(&self, state: &State) -> Unreachable {
        state.reachability().unreachable(|observer| {
            let counts = |m: &Member| {
                self.is_mine(m)
                    && match m.status() {
                        MemberStatus::Down | MemberStatus::Removed => false,
                        MemberStatus::Leaving | MemberStatus::Exiting => {
                            self.leaving_observers_count
                        }
                        _ => true,
                    }
            };
            state.member(observer).is_some_and(counts)
        })
    }

    /// What keeps the members of this data centre from agreeing on a state.
    ///
    /// Every member that is up or leaving must have seen it, unless its end is confirmed; if none
    /// [serves](Member::serves) yet, every member that is joining, of whatever data centre. And whoever
    /// is flagged must be down or exiting. A member does not wait for flags about itself.
    #[must_use]
    pub fn blocking(&self, gossip: &Gossip) -> Blocking {
        let state = gossip.state();
        let members = state.members();
        let settled = |m: &Member| m.status().counts_for_convergence();
        let begun = members.iter().any(|m| self.is_mine(m) && m.serves());
        let must_see = |m: &Member| {
            if begun {
                self.is_mine(m) && settled(m)
            } else {
                m.status().is_present()
            }
        };
        let unseen = gossip
            .roster()
            .addresses()
            .iter()
            .zip(members.iter())
            .enumerate()
            .filter(|(place, (_, m))| {
                !gossip.seen().contains(*place) && !m.end_confirmed() && must_see(m)
            })
            .map(|(_, (address, _))| *address)
            .collect();
        let unreachable = self.unreachable(state);
        let unreachable = unreachable
            .iter()
            .filter(|(subject, _)| **subject != self.me)
            .filter(|(subject, _)| {
                let blocks = |m: &Member| self.is_mine(m) && m.status().is_present();
                state.member(subject).is_some_and(blocks)
            })
            .filter_map(|(subject, by)| Some((*subject, *by.first()?)))
            .collect();
        Blocking {
            unseen,
            unreachable,
        }
    }
}
