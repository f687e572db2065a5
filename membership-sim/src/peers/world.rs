//! A simulation of any system that does no input or output itself: the network and the random
//! number generator of `membership_testing`.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::ops::Range;
use std::time::Duration;

use membership_testing::{Latency, Network, Rng};

use crate::arena::{Arena, Failure, Member, Record, Traffic};

/// What members send each other: datagrams, or messages in memory with their size as bytes.
pub trait Frame {
    /// The number of bytes that it takes on the wire.
    fn bytes(&self) -> u64;
}

impl Frame for Vec<u8> {
    fn bytes(&self) -> u64 {
        self.len() as u64
    }
}

/// The state machine of one member.
pub trait Peer: Sized {
    /// A timer. Of the timers that are due at the same time after a pause, the smallest comes
    /// first.
    type Timer: Ord;
    /// What it sends.
    type Frame: Frame;

    /// Handles the start of the member, with the address of a seed member, if there is one.
    fn begin(&mut self, now: Duration, seed: Option<Member>, out: &mut Effects<Self>);
    /// Handles what another member sent.
    fn take(&mut self, now: Duration, frame: &Self::Frame, out: &mut Effects<Self>);
    /// Handles a timer.
    fn fire(&mut self, now: Duration, timer: Self::Timer, out: &mut Effects<Self>);
}

/// The effects of a member of a system.
pub type Effects<P> = Out<<P as Peer>::Timer, <P as Peer>::Frame>;

/// The effects of a member.
#[derive(Debug)]
pub struct Out<T, F> {
    /// What to send, and to whom.
    pub sends: Vec<(Member, F)>,
    /// Timers to set, and their delays.
    pub timers: Vec<(Duration, T)>,
    /// Members that it declares dead.
    pub down: Vec<Member>,
    /// The number of members that it counts now, itself included, if its set of members changed.
    pub size: Option<usize>,
    /// Whether it has ended by itself.
    pub ended: bool,
}

impl<T, F> Default for Out<T, F> {
    fn default() -> Self {
        Self {
            sends: Vec::new(),
            timers: Vec::new(),
            down: Vec::new(),
            size: None,
            ended: false,
        }
    }
}

enum Event<T, F> {
    Begin {
        member: Member,
        incarnation: u32,
    },
    Deliver {
        member: Member,
        frame: F,
    },
    Fire {
        member: Member,
        incarnation: u32,
        timer: T,
    },
    Release(Member),
    Resume(Member),
}

struct Due<T, F> {
    at: Duration,
    number: u64,
    event: Event<T, F>,
}

impl<T, F> PartialEq for Due<T, F> {
    fn eq(&self, other: &Self) -> bool {
        self.number == other.number
    }
}
impl<T, F> Eq for Due<T, F> {}
impl<T, F> PartialOrd for Due<T, F> {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}
impl<T, F> Ord for Due<T, F> {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (self.at, self.number).cmp(&(other.at, other.number))
    }
}

struct Host<P: Peer> {
    /// None when it does not run.
    peer: Option<P>,
    incarnation: u32,
    held_until: Duration,
    paused_until: Duration,
    /// What it tried to send while it was held.
    outbox: Vec<(Member, P::Frame)>,
    /// What arrived while it was held or paused.
    inbox: Vec<P::Frame>,
    /// Timers that became due while it was paused.
    late: Vec<P::Timer>,
    traffic: Traffic,
}

/// Creates the state machine of a member from its number, its incarnation and a seed.
pub type Factory<P> = Box<dyn Fn(Member, u32, u64) -> P>;

/// A simulation of any number of members of one system.
pub struct PeerWorld<P: Peer> {
    now: Duration,
    rng: Rng,
    network: Network,
    queue: BinaryHeap<Reverse<Due<P::Timer, P::Frame>>>,
    number: u64,
    hosts: Vec<Host<P>>,
    make: Factory<P>,
    record: Record,
    /// How long a supervisor takes to restart a member that ended by itself; none: nobody does.
    pub supervisor: Option<Duration>,
}

impl<P: Peer> PeerWorld<P> {
    /// A simulation without members.
    pub fn new(seed: u64, latency: Latency, make: Factory<P>) -> Self {
        Self {
            now: Duration::ZERO,
            rng: Rng::new(seed),
            network: Network::new(latency),
            queue: BinaryHeap::new(),
            number: 0,
            hosts: Vec::new(),
            make,
            record: Record::default(),
            supervisor: None,
        }
    }

    fn schedule(&mut self, at: Duration, event: Event<P::Timer, P::Frame>) {
        self.number += 1;
        self.queue.push(Reverse(Due {
            at,
            number: self.number,
            event,
        }));
    }

    fn dispatch(&mut self, event: Event<P::Timer, P::Frame>) {
        match event {
            Event::Begin {
                member,
                incarnation,
            } => {
                // Many members start at the same time: all of them know the first one.
                let seed = (member != 0).then_some(0);
                self.with(member, Some(incarnation), |peer, now, out| {
                    peer.begin(now, seed, out);
                });
            }
            Event::Deliver { member, frame } => match self.hosts.get_mut(member) {
                Some(host) if host.held_until > self.now || host.paused_until > self.now => {
                    host.inbox.push(frame);
                }
                Some(_) => self.with(member, None, |peer, now, out| peer.take(now, &frame, out)),
                None => {}
            },
            Event::Fire {
                member,
                incarnation,
                timer,
            } => match self.hosts.get_mut(member) {
                Some(host) if host.incarnation != incarnation => {}
                Some(host) if host.paused_until > self.now => host.late.push(timer),
                Some(_) => self.with(member, Some(incarnation), |peer, now, out| {
                    peer.fire(now, timer, out);
                }),
                None => {}
            },
            Event::Release(member) => self.release(member),
            Event::Resume(member) => self.resume(member),
        }
    }

    fn release(&mut self, member: Member) {
        let Some(host) = self
            .hosts
            .get_mut(member)
            .filter(|p| p.held_until <= self.now)
        else {
            return;
        };
        for (to, frame) in std::mem::take(&mut host.outbox) {
            self.send(member, to, frame);
        }
        self.deliver_inbox(member);
    }

    fn resume(&mut self, member: Member) {
        let Some(host) = self
            .hosts
            .get_mut(member)
            .filter(|p| p.paused_until <= self.now)
        else {
            return;
        };
        let mut late = std::mem::take(&mut host.late);
        late.sort();
        // After a pause, a member may first handle its timers or its messages.
        let messages_first = self.rng.chance(0.5);
        if messages_first {
            self.deliver_inbox(member);
        }
        for timer in late {
            self.with(member, None, |peer, now, out| peer.fire(now, timer, out));
        }
        self.deliver_inbox(member);
    }

    fn deliver_inbox(&mut self, member: Member) {
        let Some(host) = self
            .hosts
            .get_mut(member)
            .filter(|p| p.held_until <= self.now && p.paused_until <= self.now)
        else {
            return;
        };
        for frame in std::mem::take(&mut host.inbox) {
            self.with(member, None, |peer, now, out| peer.take(now, &frame, out));
        }
    }

    /// Runs an action of a member, if it runs, and carries out its effects.
    fn with(
        &mut self,
        member: Member,
        incarnation: Option<u32>,
        act: impl FnOnce(&mut P, Duration, &mut Effects<P>),
    ) {
        let mut out = Out::default();
        let Some(host) = self.hosts.get_mut(member) else {
            return;
        };
        let Some(peer) = host
            .peer
            .as_mut()
            .filter(|_| incarnation.is_none_or(|incarnation| incarnation == host.incarnation))
        else {
            return;
        };
        act(peer, self.now, &mut out);
        let incarnation = host.incarnation;
        for of in out.down {
            self.record.died(self.now, member, of);
        }
        if let Some(size) = out.size {
            self.record.counts(self.now, member, size);
        }
        for (after, timer) in out.timers {
            self.schedule(
                self.now + after,
                Event::Fire {
                    member,
                    incarnation,
                    timer,
                },
            );
        }
        for (to, frame) in out.sends {
            match self.hosts.get_mut(member) {
                Some(host) if host.held_until > self.now => host.outbox.push((to, frame)),
                _ => self.send(member, to, frame),
            }
        }
        if out.ended {
            self.end(member);
        }
    }

    /// A member ended by itself: with a supervisor it starts again.
    fn end(&mut self, member: Member) {
        if let Some(host) = self.hosts.get_mut(member) {
            host.peer = None;
        }
        if let Some(after) = self.supervisor {
            self.spawn(member, after);
        }
    }

    fn send(&mut self, from: Member, to: Member, frame: P::Frame) {
        if let Some(host) = self.hosts.get_mut(from) {
            host.traffic = host.traffic.plus(Traffic {
                messages: 1,
                bytes: frame.bytes(),
            });
        }
        if self.hosts.get(to).is_none_or(|host| host.peer.is_none()) {
            return;
        }
        if let Some(after) = self.network.delay(from, to, &mut self.rng) {
            self.schedule(self.now + after, Event::Deliver { member: to, frame });
        }
    }

    fn spawn(&mut self, member: Member, after: Duration) {
        let seed = self.rng.next_u64();
        let Some(host) = self.hosts.get_mut(member) else {
            return;
        };
        host.incarnation += 1;
        let incarnation = host.incarnation;
        host.peer = Some((self.make)(member, incarnation, seed));
        (host.outbox, host.inbox, host.late) = (Vec::new(), Vec::new(), Vec::new());
        self.schedule(
            self.now + after,
            Event::Begin {
                member,
                incarnation,
            },
        );
    }
}

impl<P: Peer> Arena for PeerWorld<P> {
    fn now(&self) -> Duration {
        self.now
    }

    fn start(&mut self, members: usize, within: Duration) -> Range<Member> {
        let first = self.hosts.len();
        for member in first..first + members {
            self.hosts.push(Host {
                peer: None,
                incarnation: 0,
                held_until: Duration::ZERO,
                paused_until: Duration::ZERO,
                outbox: Vec::new(),
                inbox: Vec::new(),
                late: Vec::new(),
                traffic: Traffic::default(),
            });
            let after = self.rng.between(Duration::ZERO, within);
            self.spawn(member, if member == 0 { Duration::ZERO } else { after });
        }
        first..self.hosts.len()
    }

    fn kill(&mut self, member: Member) {
        if let Some(host) = self.hosts.get_mut(member) {
            host.peer = None;
        }
    }

    fn restart(&mut self, member: Member) {
        self.spawn(member, Duration::ZERO);
    }

    fn hold(&mut self, member: Member, time: Duration) {
        let until = self.now + time;
        if let Some(host) = self.hosts.get_mut(member) {
            host.held_until = until;
            self.schedule(until, Event::Release(member));
        }
    }

    fn pause(&mut self, member: Member, time: Duration) {
        let until = self.now + time;
        if let Some(host) = self.hosts.get_mut(member) {
            host.paused_until = until;
            self.schedule(until, Event::Resume(member));
        }
    }

    fn loss(&mut self, member: Member, egress: f64, ingress: f64) {
        self.network.set_egress_loss(member, egress);
        self.network.set_ingress_loss(member, ingress);
    }

    fn partition(&mut self, groups: &[Vec<Member>]) {
        split(&mut self.network, self.hosts.len(), groups);
    }

    fn run_for(&mut self, time: Duration) -> Result<(), Failure> {
        let end = self.now + time;
        while self.queue.peek().is_some_and(|Reverse(due)| due.at <= end) {
            let Some(Reverse(due)) = self.queue.pop() else {
                break;
            };
            self.now = self.now.max(due.at);
            self.dispatch(due.event);
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
        self.hosts
            .get(member)
            .map_or_else(Traffic::default, |host| host.traffic)
    }
}

/// Blocks every direction between members of different groups, and unblocks all others.
pub fn split(network: &mut Network, members: usize, groups: &[Vec<Member>]) {
    network.unblock_all();
    let group = |member: Member| groups.iter().position(|g| g.contains(&member));
    let of: Vec<Option<usize>> = (0..members).map(group).collect();
    for (a, mine) in of.iter().enumerate() {
        for (b, theirs) in of.iter().enumerate() {
            if mine != theirs {
                network.block(a, b);
            }
        }
    }
}
