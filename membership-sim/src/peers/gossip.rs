//! This library without a store: the state machine of `membership-gossip`.
//!
//! The application of a member uses those in service that it reaches ([`GossipView::active`]). First
//! detection is the first time at which another member leaves that set of any member without having
//! left the cluster: because somebody does not reach it, or because it was downed. A member that
//! answers again before the resolver downs it returns to the set. A member that was downed ends, and
//! does not return, unless it is *supervised*: then a new process starts at its address after a
//! second. Messages are handed over in memory; their size is that of the bytes that they would be on
//! connections of the TCP transport, which leaves out a header that is that of the message before.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::hash::{DefaultHasher, Hasher};
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use membership_core::protocol::{Destination, LinkId, PeerIdentity};
use membership_core::{ClusterName, InstanceId, MonoTime, Now, SiloAddress, SiloInfo, WallTime};
use membership_gossip::protocol::{
    Command, Effect, Header, Input, Message, Protocol, Setup, encode_body, encode_header,
};
use membership_gossip::state::{MemberStatus, Profile};
use membership_gossip::{Config, GossipView};
use membership_testing::{Latency, Rng};

use super::formed::{self, Formed};
use super::world::{Effects, Frame, Peer, PeerWorld};
use crate::arena::{Failure, Member};
use crate::ours::endpoint;

/// The wall time when the simulation begins, in milliseconds.
const BEGIN: u64 = 1_763_000_000_000;
/// The length and the kind of a frame.
const FRAME: u64 = 4 + 1;
/// The length of a header, where one is there.
const LENGTH: u64 = 1;
/// A connection without messages for so long is closed (`TcpConfig::idle_timeout`).
const IDLE: Duration = Duration::from_secs(120);

/// A message with its size.
pub struct Sent {
    header: Header,
    body: Arc<Message>,
    bytes: u64,
}

impl Frame for Sent {
    fn bytes(&self) -> u64 {
        self.bytes
    }
}

/// The size of the last body, which many receivers may share.
type LastSize = Rc<RefCell<Option<(Arc<Message>, u64)>>>;

/// The last members that an application began to use: nearly all use the same.
type LastActive = Rc<RefCell<Rc<Vec<SiloAddress>>>>;

/// One member.
pub struct Node {
    protocol: Protocol,
    /// The next time at which it is woken.
    wake_at: Option<MonoTime>,
    /// The members that its application uses.
    active: Rc<Vec<SiloAddress>>,
    last_active: LastActive,
    sizes: LastSize,
    headers: Headers,
    /// The answer to its first question, where it begins in a formed cluster.
    welcome: Option<Input>,
}

/// The headers that the other ends of a member's connections know. There are two connections for each
/// pair of members: each one's requests and their answers use one.
#[derive(Default)]
struct Headers {
    known: BTreeMap<(Member, bool), (u64, Duration)>,
    tidied: Duration,
}

impl Headers {
    /// How many bytes this header takes on that connection.
    fn bytes(&mut self, now: Duration, to: (Member, bool), head: &[u8], is_fresh: bool) -> u64 {
        if now > self.tidied + IDLE {
            self.known.retain(|_, (_, at)| *at + IDLE > now);
            self.tidied = now;
        }
        let mut hash = DefaultHasher::new();
        hash.write(head);
        let hash = hash.finish();
        match self.known.insert(to, (hash, now)) {
            Some((known, at)) if known == hash && at + IDLE > now && !is_fresh => 0,
            _ => LENGTH + head.len() as u64,
        }
    }
}

impl Node {
    fn handle(&mut self, now: Duration, input: Input, out: &mut Effects<Self>) {
        let at = Now {
            mono: MonoTime::ZERO + now,
            wall: WallTime::from_millis(
                BEGIN + u64::try_from(now.as_millis()).unwrap_or(u64::MAX / 2),
            ),
        };
        let mut effects = Vec::new();
        self.protocol.handle(at, input, &mut effects);
        for effect in effects {
            match effect {
                Effect::Send { to, header, body } => {
                    self.send(now, to, (header, body), out);
                }
                Effect::Publish(view) => self.published(&view, out),
                Effect::Stop(_) => out.ended = true,
                _ => {}
            }
        }
        self.plan(at.mono, out);
    }

    fn send(
        &mut self,
        now: Duration,
        to: Destination,
        (header, body): (Header, Arc<Message>),
        out: &mut Effects<Self>,
    ) {
        let is_fresh = matches!(to, Destination::Fresh(_));
        let (to, is_answer) = match to {
            Destination::Endpoint(to) | Destination::Fresh(to) => (member(to), false),
            // An answer goes to whoever asked.
            Destination::Link(LinkId(asker)) => (usize::try_from(asker).ok(), true),
            _ => (None, false),
        };
        if let Some(to) = to {
            let head = encode_header(&header).unwrap_or_default();
            let head = self.headers.bytes(now, (to, is_answer), &head, is_fresh);
            let bytes = FRAME + head + self.size(&body);
            out.sends.push((
                to,
                Sent {
                    header,
                    body,
                    bytes,
                },
            ));
        }
    }

    fn size(&self, body: &Arc<Message>) -> u64 {
        let mut last = self.sizes.borrow_mut();
        if let Some((_, size)) = last.as_ref().filter(|(known, _)| Arc::ptr_eq(known, body)) {
            return *size;
        }
        let size = encode_body(body).map_or(0, |bytes| bytes.len() as u64);
        *last = Some((Arc::clone(body), size));
        size
    }

    fn published(&mut self, view: &GossipView, out: &mut Effects<Self>) {
        let active: Vec<_> = view.active().map(|m| m.address()).collect();
        if active == *self.active {
            return;
        }
        let now: BTreeSet<_> = active.iter().copied().collect();
        let went = self.active.iter().filter(|member| !now.contains(*member));
        for gone in went.filter(|member| !has_left(view, member)) {
            out.down.extend(member(gone.endpoint()));
        }
        let mut last = self.last_active.borrow_mut();
        if **last != active {
            *last = Rc::new(active);
        }
        self.active = Rc::clone(&last);
        out.size = Some(self.active.len());
    }

    /// Wakes it at its next time, if that is not planned yet.
    fn plan(&mut self, now: MonoTime, out: &mut Effects<Self>) {
        let Some(next) = self.protocol.next_wakeup() else {
            return;
        };
        let planned = self.wake_at.filter(|at| *at > now);
        if planned.is_none_or(|at| next < at) {
            self.wake_at = Some(next);
            out.timers.push((next.since(now), ()));
        }
    }
}

/// Whether a member is on its way out by its own will, or has a newer process.
fn has_left(view: &GossipView, member: &SiloAddress) -> bool {
    match view.status(member) {
        Some(MemberStatus::Leaving | MemberStatus::Exiting) => true,
        Some(MemberStatus::Removed) => {
            let at = view.state().members().at(&member.endpoint());
            at.is_some_and(|newer| newer.address().epoch() > member.epoch())
        }
        _ => false,
    }
}

impl Peer for Node {
    type Timer = ();
    type Frame = Sent;

    fn begin(&mut self, now: Duration, _: Option<Member>, out: &mut Effects<Self>) {
        let contact_points = vec![endpoint(0)];
        let join = Command::Join { contact_points };
        self.handle(now, Input::Command(join), out);
        if let Some(welcome) = self.welcome.take() {
            self.handle(now, welcome, out);
        }
    }

    fn take(&mut self, now: Duration, sent: &Sent, out: &mut Effects<Self>) {
        let input = Input::Message {
            link: link(&sent.header),
            peer: PeerIdentity::Proven(sent.header.instance),
            header: sent.header.clone(),
            body: Arc::clone(&sent.body),
            // What waited for a process that did not run waited outside of it.
            waited: Duration::ZERO,
        };
        self.handle(now, input, out);
    }

    fn fire(&mut self, now: Duration, (): (), out: &mut Effects<Self>) {
        self.handle(now, Input::Wake, out);
    }
}

/// The connection of a message: its number is that of its sender.
fn link(header: &Header) -> LinkId {
    LinkId(member(header.from.endpoint()).map_or(u64::MAX, |member| member as u64))
}

/// The member at an endpoint.
fn member(at: SocketAddr) -> Option<Member> {
    let SocketAddr::V4(at) = at else {
        return None;
    };
    let number = u32::from(*at.ip()) & (u32::MAX >> 8);
    usize::try_from(number.checked_sub(1)?).ok()
}

/// The epoch of an incarnation: there is room for those that a member starts by itself.
pub(super) fn epoch(incarnation: u32) -> u64 {
    BEGIN + u64::from(incarnation) * 1_000
}

pub(super) fn profile(member: Member) -> Profile {
    Profile::new(SiloInfo::named(format!("member-{member}")))
}

/// A simulation of members with this configuration, without members yet. Of a `formed` cluster so many
/// begin with the state in which all of them are up, and must be started together.
///
/// # Errors
/// When the configuration is not valid.
pub fn world(
    seed: u64,
    config: Config,
    supervised: bool,
    formed: Option<usize>,
) -> Result<PeerWorld<Node>, Failure> {
    config.validate()?;
    let cluster: ClusterName = "simulated".parse()?;
    let formed = formed.map(|members| Formed::new(&cluster, members));
    let (sizes, last_active) = (LastSize::default(), LastActive::default());
    let make = move |member: Member, incarnation: u32, seed: u64| {
        let mut rng = Rng::new(seed);
        let instance = match formed {
            Some(_) => formed::instance(member),
            None => InstanceId::new(rng.next_u128()),
        };
        let mut setup = Setup::new(
            cluster.clone(),
            endpoint(member),
            epoch(incarnation),
            instance,
            profile(member),
            rng.next_u64(),
        );
        setup.config = config.clone();
        Node {
            protocol: Protocol::new(setup),
            wake_at: None,
            active: Rc::default(),
            last_active: Rc::clone(&last_active),
            sizes: Rc::clone(&sizes),
            headers: Headers::default(),
            welcome: formed.as_ref().map(|formed| formed.welcome(member)),
        }
    };
    let mut world = PeerWorld::new(seed, Latency::default(), Box::new(make));
    world.supervisor = supervised.then_some(Duration::from_secs(1));
    Ok(world)
}
