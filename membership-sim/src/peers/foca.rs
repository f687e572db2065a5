//! foca: SWIM with suspicion and dissemination by gossip, a crate that does no input or output
//! itself; with its own configuration for a LAN (`Config::new_lan` for the number of members) and
//! its own codec.
//!
//! First detection is the first `MemberDown` that any member reports; a false death is a
//! `MemberDown` about a member that was running. A member that learns that it was declared down
//! returns by itself under a new identity (`Identity::renew`), as foca recommends; or it does not,
//! to measure the difference. Timers that become due in a pause are handled afterwards in the order
//! of foca's `Timer`.

use std::num::NonZeroU32;
use std::time::Duration;

use foca::{
    Config, Foca, Identity, NoCustomBroadcast, Notification, PostcardCodec, Runtime, Timer,
};
use membership_testing::Latency;
use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::SeedableRng;
use serde::{Deserialize, Serialize};

use super::world::{Effects, Peer, PeerWorld};
use crate::arena::Member;

/// The identity of a member: the address of its host, and its incarnation. `RENEWS` says whether it
/// may start another incarnation by itself.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Name<const RENEWS: bool> {
    address: std::net::SocketAddrV4,
    incarnation: u32,
}

impl<const RENEWS: bool> Name<RENEWS> {
    fn new(member: Member, incarnation: u32) -> Self {
        let number = u32::try_from(member).unwrap_or(u32::MAX >> 8) | 10 << 24;
        Self {
            address: std::net::SocketAddrV4::new(number.into(), 7100),
            incarnation,
        }
    }

    fn member(&self) -> Member {
        usize::try_from(u32::from(*self.address.ip()) & (u32::MAX >> 8)).unwrap_or(usize::MAX)
    }
}

impl<const RENEWS: bool> Identity for Name<RENEWS> {
    type Addr = std::net::SocketAddrV4;

    fn renew(&self) -> Option<Self> {
        RENEWS.then(|| Self {
            incarnation: self.incarnation + 1,
            ..self.clone()
        })
    }

    fn addr(&self) -> Self::Addr {
        self.address
    }

    fn win_addr_conflict(&self, adversary: &Self) -> bool {
        self.incarnation > adversary.incarnation
    }
}

/// One member of foca.
pub struct Node<const RENEWS: bool>(
    Foca<Name<RENEWS>, PostcardCodec, Xoshiro256PlusPlus, NoCustomBroadcast>,
);

/// A timer of a member.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
pub struct Reminder<const RENEWS: bool>(Timer<Name<RENEWS>>);

struct RuntimeAdapter<'a, const RENEWS: bool> {
    out: &'a mut Effects<Node<RENEWS>>,
    changed: bool,
}

impl<const RENEWS: bool> Runtime<Name<RENEWS>> for RuntimeAdapter<'_, RENEWS> {
    fn notify(&mut self, notification: Notification<'_, Name<RENEWS>>) {
        match notification {
            Notification::MemberDown(name) => {
                self.out.down.push(name.member());
                self.changed = true;
            }
            Notification::MemberUp(_) => self.changed = true,
            _ => {}
        }
    }

    fn send_to(&mut self, to: Name<RENEWS>, data: &[u8]) {
        self.out.sends.push((to.member(), data.to_vec()));
    }

    fn submit_after(&mut self, event: Timer<Name<RENEWS>>, after: Duration) {
        self.out.timers.push((after, Reminder(event)));
    }
}

impl<const RENEWS: bool> Node<RENEWS> {
    /// Runs an action. foca returns whether it could use the input; after an error it continues as
    /// before.
    fn act(
        &mut self,
        out: &mut Effects<Self>,
        act: impl FnOnce(&mut Self, &mut RuntimeAdapter<'_, RENEWS>) -> Result<(), foca::Error>,
    ) {
        let mut adapter = RuntimeAdapter {
            out,
            changed: false,
        };
        let _ = act(self, &mut adapter);
        if adapter.changed {
            out.size = Some(self.0.num_members() + 1);
        }
    }
}

impl<const RENEWS: bool> Peer for Node<RENEWS> {
    type Timer = Reminder<RENEWS>;
    type Frame = Vec<u8>;

    fn begin(&mut self, _: Duration, seed: Option<Member>, out: &mut Effects<Self>) {
        out.size = Some(1);
        if let Some(seed) = seed {
            // The member at that address answers in any incarnation.
            self.act(out, |node, adapter| {
                node.0.announce(Name::new(seed, 1), adapter)
            });
        }
    }

    fn take(&mut self, _: Duration, data: &Vec<u8>, out: &mut Effects<Self>) {
        self.act(out, |node, adapter| node.0.handle_data(data, adapter));
    }

    fn fire(&mut self, _: Duration, timer: Self::Timer, out: &mut Effects<Self>) {
        self.act(out, |node, adapter| node.0.handle_timer(timer.0, adapter));
    }
}

/// A simulation of foca, for this many members.
pub fn world<const RENEWS: bool>(seed: u64, members: usize) -> PeerWorld<Node<RENEWS>> {
    let size = u32::try_from(members)
        .ok()
        .and_then(NonZeroU32::new)
        .unwrap_or(NonZeroU32::MIN);
    let make = move |member, incarnation, seed| {
        // Incarnations of the simulation leave room for those that foca starts by itself.
        let name = Name::new(member, (incarnation - 1) * 1_000 + 1);
        Node(Foca::new(
            name,
            Config::new_lan(size),
            Xoshiro256PlusPlus::seed_from_u64(seed),
            PostcardCodec,
        ))
    };
    PeerWorld::new(seed, Latency::default(), Box::new(make))
}
