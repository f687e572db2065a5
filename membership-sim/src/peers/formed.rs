//! A cluster without a store in which all are up: members begin with its state. To simulate that
//! thousands join takes hours, and what a quiet member sends does not depend on how it joined.

use std::sync::Arc;
use std::time::Duration;

use membership_core::protocol::{LinkId, PeerIdentity};
use membership_core::{ClusterName, FoundingId, InstanceId, SiloAddress};
use membership_gossip::protocol::{Header, Input, Message};
use membership_gossip::state::{Gossip, MemberStatus};

use super::gossip::{epoch, profile};
use crate::arena::Member;
use crate::ours::endpoint;

/// The incarnation of a member that is started for the first time.
const FIRST: u32 = 1;

/// The state of all members.
pub struct Formed {
    cluster: u64,
    state: Arc<Gossip>,
}

impl Formed {
    /// A cluster of so many members, all of which have seen its state.
    pub fn new(cluster: &ClusterName, members: usize) -> Self {
        let all = || (0..members).map(|member| (member, address(member)));
        let mut state = Gossip::default();
        state.edit(address(0), |edit| {
            for (member, address) in all() {
                edit.admit(address, instance(member), Arc::new(profile(member)));
            }
        });
        state.edit(address(0), |edit| {
            for (place, (_, address)) in (1..).zip(all()) {
                edit.advance(&address, MemberStatus::Up, Some(place));
            }
        });
        for (_, address) in all() {
            state.mark_seen(&address);
        }
        Self {
            cluster: cluster.fingerprint(),
            state: Arc::new(state),
        }
    }

    /// The answer of another member that takes this one in.
    pub fn welcome(&self, member: Member) -> Input {
        let by = usize::from(member == 0);
        let mut header = Header::new(self.cluster, address(by), instance(by));
        header.founding = Some(FoundingId::new(1));
        header.to = Some(address(member));
        Input::Message {
            link: LinkId(0),
            peer: PeerIdentity::Proven(header.instance),
            header,
            body: Arc::new(Message::Welcome(Arc::clone(&self.state))),
            waited: Duration::ZERO,
        }
    }
}

/// The process of a member.
pub fn instance(member: Member) -> InstanceId {
    InstanceId::new(member as u128 + 1)
}

fn address(member: Member) -> SiloAddress {
    SiloAddress::at(endpoint(member), epoch(FIRST))
}
