//! foca: SWIM with suspicion and dissemination by gossip, as a crate without input and output; in its own configuration for a LAN
//! (`Config::new_lan` for the number of members), with its own codec.
//!
//! First detection is the first `MemberDown` that any member is notified of; a false death is a `MemberDown` about a member that was
//! running. A member that learns that it was declared down comes back by itself under a new identity (`Identity::renew`), as foca
//! recommends; or, to see what that adds, it does not. Timers that fall into a pause come afterwards in the order that foca's `Timer` asks for.

use std::num::NonZeroU32;
use std::time::Duration;

use foca::{
    Config, Foca, Identity, NoCustomBroadcast, Notification, PostcardCodec, Runtime, Timer,
};
use membership_core::testing::Latency;
use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::SeedableRng;
use serde::{Deserialize, Serialize};

use super::world::{Out, Peer, PeerWorld};
use crate::arena::Member;

/// A member: its machine, as foca's users have a socket address, and which life of it; whether it may begin another one by itself.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Name<const RENEWS: bool> {
    address: std::net::SocketAddrV4,
    life: u32,
}

impl<const RENEWS: bool> Name<RENEWS> {
    fn new(member: Member, life: u32) -> Self {
        let number = u32::try_from(member).unwrap_or(u32::MAX >> 8) | 10 << 24;
        Self {
            address: std::net::SocketAddrV4::new(number.into(), 7100),
            life,
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
            life: self.life + 1,
            ..self.clone()
        })
    }

    fn addr(&self) -> Self::Addr {
        self.address
    }

    fn win_addr_conflict(&self, adversary: &Self) -> bool {
        self.life > adversary.life
    }
}

/// One member of foca.
pub struct Node<const RENEWS: bool>(
    Foca<Name<RENEWS>, PostcardCodec, Xoshiro256PlusPlus, NoCustomBroadcast>,
);

/// What is due for it.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
pub struct Reminder<const RENEWS: bool>(Timer<Name<RENEWS>>);

struct Hands<'a, const RENEWS: bool> {
    out: &'a mut Out<Reminder<RENEWS>>,
    changed: bool,
}

impl<const RENEWS: bool> Runtime<Name<RENEWS>> for Hands<'_, RENEWS> {
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
    /// What foca answers is whether it could make use of the input: after an error it goes on as before.
    fn act(
        &mut self,
        out: &mut Out<Reminder<RENEWS>>,
        act: impl FnOnce(&mut Self, &mut Hands<'_, RENEWS>) -> Result<(), foca::Error>,
    ) {
        let mut hands = Hands {
            out,
            changed: false,
        };
        let _ = act(self, &mut hands);
        if hands.changed {
            out.size = Some(self.0.num_members() + 1);
        }
    }
}

impl<const RENEWS: bool> Peer for Node<RENEWS> {
    type Timer = Reminder<RENEWS>;

    fn begin(&mut self, seed: Option<Member>, out: &mut Out<Self::Timer>) {
        out.size = Some(1);
        if let Some(seed) = seed {
            // Whoever is there answers, whichever life it is in.
            self.act(out, |node, hands| {
                node.0.announce(Name::new(seed, 1), hands)
            });
        }
    }

    fn take(&mut self, data: &[u8], out: &mut Out<Self::Timer>) {
        self.act(out, |node, hands| node.0.handle_data(data, hands));
    }

    fn fire(&mut self, timer: Self::Timer, out: &mut Out<Self::Timer>) {
        self.act(out, |node, hands| node.0.handle_timer(timer.0, hands));
    }
}

/// A world of foca, for so many members.
pub fn world<const RENEWS: bool>(seed: u64, members: usize) -> PeerWorld<Node<RENEWS>> {
    let size = u32::try_from(members)
        .ok()
        .and_then(NonZeroU32::new)
        .unwrap_or(NonZeroU32::MIN);
    let make = move |member, life, seed| {
        // A life of the world leaves room for those that foca begins by itself.
        let name = Name::new(member, (life - 1) * 1_000 + 1);
        Node(Foca::new(
            name,
            Config::new_lan(size),
            Xoshiro256PlusPlus::seed_from_u64(seed),
            PostcardCodec,
        ))
    };
    PeerWorld::new(seed, Latency::default(), Box::new(make))
}
