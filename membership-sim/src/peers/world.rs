//! A world for any system without input and output of its own: the network and the dice of `membership_core::testing`, and nothing else.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::ops::Range;
use std::time::Duration;

use membership_core::testing::{Dice, Latency, Network};

use crate::arena::{Arena, Member, Record, Traffic, Trouble};

/// What a member of some system does with what happens to it.
pub trait Peer: Sized {
    /// What it asks to be reminded of. Of what is due at one moment after a pause, the lesser comes first.
    type Timer: Ord;

    /// It starts; it knows the address of this one, if there is one.
    fn begin(&mut self, seed: Option<Member>, out: &mut Out<Self::Timer>);
    /// A datagram.
    fn take(&mut self, data: &[u8], out: &mut Out<Self::Timer>);
    /// A timer.
    fn fire(&mut self, timer: Self::Timer, out: &mut Out<Self::Timer>);
}

/// What a member wants.
#[derive(Debug)]
pub struct Out<T> {
    /// Datagrams.
    pub sends: Vec<(Member, Vec<u8>)>,
    /// Timers, and after how long.
    pub timers: Vec<(Duration, T)>,
    /// Whom it takes for dead now.
    pub down: Vec<Member>,
    /// How many it counts now, itself included, if its set of members changed.
    pub size: Option<usize>,
}

impl<T> Default for Out<T> {
    fn default() -> Self {
        Self {
            sends: Vec::new(),
            timers: Vec::new(),
            down: Vec::new(),
            size: None,
        }
    }
}

enum Event<T> {
    Begin { member: Member, life: u32 },
    Deliver { member: Member, data: Vec<u8> },
    Fire { member: Member, life: u32, timer: T },
    Release(Member),
    Resume(Member),
}

struct Due<T> {
    at: Duration,
    number: u64,
    event: Event<T>,
}

impl<T> PartialEq for Due<T> {
    fn eq(&self, other: &Self) -> bool {
        self.number == other.number
    }
}
impl<T> Eq for Due<T> {}
impl<T> PartialOrd for Due<T> {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}
impl<T> Ord for Due<T> {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (self.at, self.number).cmp(&(other.at, other.number))
    }
}

struct Place<P: Peer> {
    /// None when it does not run.
    peer: Option<P>,
    life: u32,
    held_until: Duration,
    paused_until: Duration,
    /// What it wanted to send while it was held.
    outbox: Vec<(Member, Vec<u8>)>,
    /// What arrived while it was held or paused.
    inbox: Vec<Vec<u8>>,
    /// What was due while it was paused.
    late: Vec<P::Timer>,
    traffic: Traffic,
}

/// Makes the member of a machine, in its so-and-so-manieth life, with a seed of its own.
pub type Factory<P> = Box<dyn Fn(Member, u32, u64) -> P>;

/// Any number of members of one system.
pub struct PeerWorld<P: Peer> {
    now: Duration,
    dice: Dice,
    network: Network,
    agenda: BinaryHeap<Reverse<Due<P::Timer>>>,
    number: u64,
    places: Vec<Place<P>>,
    make: Factory<P>,
    record: Record,
}

impl<P: Peer> PeerWorld<P> {
    /// A world without anybody.
    pub fn new(seed: u64, latency: Latency, make: Factory<P>) -> Self {
        Self {
            now: Duration::ZERO,
            dice: Dice::new(seed),
            network: Network::new(latency),
            agenda: BinaryHeap::new(),
            number: 0,
            places: Vec::new(),
            make,
            record: Record::default(),
        }
    }

    fn plan(&mut self, at: Duration, event: Event<P::Timer>) {
        self.number += 1;
        self.agenda.push(Reverse(Due {
            at,
            number: self.number,
            event,
        }));
    }

    fn happen(&mut self, event: Event<P::Timer>) {
        match event {
            Event::Begin { member, life } => {
                // Members of one moment are many: the first one is known to all, the others ask it.
                let seed = (member != 0).then_some(0);
                self.with(member, Some(life), |peer, out| peer.begin(seed, out));
            }
            Event::Deliver { member, data } => match self.places.get_mut(member) {
                Some(place) if place.held_until > self.now || place.paused_until > self.now => {
                    place.inbox.push(data)
                }
                Some(_) => self.with(member, None, |peer, out| peer.take(&data, out)),
                None => {}
            },
            Event::Fire {
                member,
                life,
                timer,
            } => match self.places.get_mut(member) {
                Some(place) if place.life != life => {}
                Some(place) if place.paused_until > self.now => place.late.push(timer),
                Some(_) => self.with(member, Some(life), |peer, out| peer.fire(timer, out)),
                None => {}
            },
            Event::Release(member) => self.release(member),
            Event::Resume(member) => self.resume(member),
        }
    }

    fn release(&mut self, member: Member) {
        let Some(place) = self
            .places
            .get_mut(member)
            .filter(|p| p.held_until <= self.now)
        else {
            return;
        };
        for (to, data) in std::mem::take(&mut place.outbox) {
            self.send(member, to, data);
        }
        self.mail(member);
    }

    fn resume(&mut self, member: Member) {
        let Some(place) = self
            .places
            .get_mut(member)
            .filter(|p| p.paused_until <= self.now)
        else {
            return;
        };
        let mut late = std::mem::take(&mut place.late);
        late.sort();
        // What it notices first, its clock or its mail, is a matter of luck.
        let mail_first = self.dice.chance(0.5);
        if mail_first {
            self.mail(member);
        }
        for timer in late {
            self.with(member, None, |peer, out| peer.fire(timer, out));
        }
        self.mail(member);
    }

    fn mail(&mut self, member: Member) {
        let Some(place) = self
            .places
            .get_mut(member)
            .filter(|p| p.held_until <= self.now && p.paused_until <= self.now)
        else {
            return;
        };
        for data in std::mem::take(&mut place.inbox) {
            self.with(member, None, |peer, out| peer.take(&data, out));
        }
    }

    /// Lets a member do something, if it runs, and carries out what it wants.
    fn with(
        &mut self,
        member: Member,
        life: Option<u32>,
        act: impl FnOnce(&mut P, &mut Out<P::Timer>),
    ) {
        let mut out = Out::default();
        let Some(place) = self.places.get_mut(member) else {
            return;
        };
        let Some(peer) = place
            .peer
            .as_mut()
            .filter(|_| life.is_none_or(|life| life == place.life))
        else {
            return;
        };
        act(peer, &mut out);
        let life = place.life;
        for of in out.down {
            self.record.died(self.now, member, of);
        }
        if let Some(size) = out.size {
            self.record.counts(self.now, member, size);
        }
        for (after, timer) in out.timers {
            self.plan(
                self.now + after,
                Event::Fire {
                    member,
                    life,
                    timer,
                },
            );
        }
        for (to, data) in out.sends {
            match self.places.get_mut(member) {
                Some(place) if place.held_until > self.now => place.outbox.push((to, data)),
                _ => self.send(member, to, data),
            }
        }
    }

    fn send(&mut self, from: Member, to: Member, data: Vec<u8>) {
        if let Some(place) = self.places.get_mut(from) {
            place.traffic = place.traffic.plus(Traffic {
                messages: 1,
                bytes: data.len() as u64,
            });
        }
        if self.places.get(to).is_none_or(|place| place.peer.is_none()) {
            return;
        }
        if let Some(after) = self.network.carry(from, to, &mut self.dice) {
            self.plan(self.now + after, Event::Deliver { member: to, data });
        }
    }

    fn spawn(&mut self, member: Member, after: Duration) {
        let seed = self.dice.number();
        let Some(place) = self.places.get_mut(member) else {
            return;
        };
        place.life += 1;
        let life = place.life;
        place.peer = Some((self.make)(member, life, seed));
        (place.outbox, place.inbox, place.late) = (Vec::new(), Vec::new(), Vec::new());
        self.plan(self.now + after, Event::Begin { member, life });
    }
}

impl<P: Peer> Arena for PeerWorld<P> {
    fn now(&self) -> Duration {
        self.now
    }

    fn start(&mut self, members: usize, within: Duration) -> Range<Member> {
        let first = self.places.len();
        for member in first..first + members {
            self.places.push(Place {
                peer: None,
                life: 0,
                held_until: Duration::ZERO,
                paused_until: Duration::ZERO,
                outbox: Vec::new(),
                inbox: Vec::new(),
                late: Vec::new(),
                traffic: Traffic::default(),
            });
            let after = self.dice.between(Duration::ZERO, within);
            self.spawn(member, if member == 0 { Duration::ZERO } else { after });
        }
        first..self.places.len()
    }

    fn kill(&mut self, member: Member) {
        if let Some(place) = self.places.get_mut(member) {
            place.peer = None;
        }
    }

    fn restart(&mut self, member: Member) {
        self.spawn(member, Duration::ZERO);
    }

    fn hold(&mut self, member: Member, time: Duration) {
        let until = self.now + time;
        if let Some(place) = self.places.get_mut(member) {
            place.held_until = until;
            self.plan(until, Event::Release(member));
        }
    }

    fn pause(&mut self, member: Member, time: Duration) {
        let until = self.now + time;
        if let Some(place) = self.places.get_mut(member) {
            place.paused_until = until;
            self.plan(until, Event::Resume(member));
        }
    }

    fn loss(&mut self, member: Member, egress: f64, ingress: f64) {
        self.network.set_egress_loss(member, egress);
        self.network.set_ingress_loss(member, ingress);
    }

    fn partition(&mut self, groups: &[Vec<Member>]) {
        split(&mut self.network, self.places.len(), groups);
    }

    fn run_for(&mut self, time: Duration) -> Result<(), Trouble> {
        let end = self.now + time;
        while self.agenda.peek().is_some_and(|Reverse(due)| due.at <= end) {
            let Some(Reverse(due)) = self.agenda.pop() else {
                break;
            };
            self.now = self.now.max(due.at);
            self.happen(due.event);
        }
        self.now = end;
        Ok(())
    }

    fn record(&self) -> Record {
        self.record.clone()
    }

    fn all_count(&self, members: Range<Member>, size: usize) -> Option<Duration> {
        self.record.all_count(members, size)
    }

    fn forget(&mut self) {
        self.record.forget();
    }

    fn sent(&self, member: Member) -> Traffic {
        self.places
            .get(member)
            .map_or_else(Traffic::default, |place| place.traffic)
    }
}

/// Shuts every direction between members of different groups, and opens all others.
pub fn split(network: &mut Network, members: usize, groups: &[Vec<Member>]) {
    network.open_all();
    let group = |member: Member| groups.iter().position(|g| g.contains(&member));
    let of: Vec<Option<usize>> = (0..members).map(group).collect();
    for (a, mine) in of.iter().enumerate() {
        for (b, theirs) in of.iter().enumerate() {
            if mine != theirs {
                network.shut(a, b);
            }
        }
    }
}
