//! What happens to a member, as a stream of typed events.

use std::collections::BTreeSet;
use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use futures_core::Stream;
use membership_core::{FoundingId, MonoTime, Now, SiloAddress, WallTime};
use membership_gossip::GossipView;
use membership_gossip::downing::{Decision, Strategy};
use membership_gossip::protocol::{Notice, Refusal, Termination, Waiting};
use membership_gossip::state::MemberStatus;

use super::arbiter::ArbiterAnswer;
use crate::runtime::feed::{Feed, FeedSender, FeedSource, Item};

/// Something that happened to a member.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Event {
    /// When, by this machine's clock.
    pub at: WallTime,
    /// When, by this process's monotonic clock: see [`Member::now`](super::Member::now).
    pub mono: MonoTime,
    /// What happened.
    pub kind: EventKind,
}

/// What happened to a member.
///
/// A program should ignore kinds that it does not know: later versions of this library add some.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum EventKind {
    /// A contact point cannot be reached while this process joins, or is no member of such a
    /// cluster. It goes on trying. Each reason is told once for each contact point.
    ContactFailed {
        /// The contact point.
        contact_point: SocketAddr,
        /// Why, for people.
        reason: String,
    },
    /// This process has founded a cluster.
    Founded {
        /// The id of the founding.
        founding: FoundingId,
    },
    /// A member took this process in.
    Welcomed {
        /// The member.
        by: SiloAddress,
    },
    /// A member did not take this process in. It goes on trying, unless it ends with
    /// [`Termination::Refused`].
    NotTakenIn {
        /// The member; this process itself, if its own address is a contact point and nobody answers
        /// there.
        by: SiloAddress,
        /// Why.
        reason: Refusal,
    },
    /// This member is in service.
    Active {
        /// Its address.
        member: SiloAddress,
        /// [`MemberStatus::Up`], or [`MemberStatus::WeaklyUp`], after which it comes once more.
        status: MemberStatus,
    },
    /// The member published a new view. [`Member::views`](super::Member::views) has the views
    /// themselves.
    ViewPublished {
        /// Members in it, whatever their status.
        members: usize,
        /// Members in service and reached.
        active: usize,
        /// Whether the members agree on it.
        converged: bool,
    },
    /// Other members of this data centre than before are unreachable, by anybody's word that counts.
    /// Nobody is moved up or removed until they answer or are downed.
    Unreachable {
        /// All of them; empty: everybody answers again.
        members: BTreeSet<SiloAddress>,
    },
    /// The resolver of this member has decided who is downed, with its evidence.
    Decided(Box<Decided>),
    /// A member of the view was downed: by a resolver, by an operator, or by an application. It is
    /// removed soon.
    Downed {
        /// The member.
        member: SiloAddress,
    },
    /// A member of the view is no member any more.
    Removed {
        /// The member.
        member: SiloAddress,
        /// Its status in the view before. One that was downed in between has the older one.
        before: MemberStatus,
    },
    /// This member was asked to down another one, or itself, and does so.
    DownAsked {
        /// The member that is downed.
        member: SiloAddress,
        /// The address of whoever asked, an operator with a tool; none: it is not known, or the
        /// application of this process asked.
        from: Option<IpAddr>,
    },
    /// This process has waited for five seconds more to found a cluster or to be taken in.
    Waiting(Box<Waiting>),
    /// A member does not answer this one, but answers others: the link is broken, not the member.
    LinkBroken {
        /// The member.
        to: SiloAddress,
    },
    /// This process was paused. It flags nobody until it has listened again.
    Paused(Duration),
    /// A message came from another founding, or from a build that this one does not understand.
    Stranger {
        /// Its sender.
        from: SiloAddress,
    },
    /// The member is leaving.
    Leaving,
    /// All know that it leaves: it hands over what it owns.
    Exiting,
    /// The member ended for good. The last event.
    Ended(Termination),
    /// The reader was too slow and missed events. The time is that of the last event before the gap.
    Missed {
        /// How many.
        events: u64,
    },
}

/// A decision of the resolver, with what it rests on.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Decided {
    /// The strategy.
    pub strategy: Strategy,
    /// What this side does, whom it downs, and what it knew.
    pub decision: Decision,
    /// What the arbiter answered; none: it was not asked.
    pub arbiter: Option<ArbiterAnswer>,
}

/// The events of a member, from the moment at which the stream was made.
///
/// The stream never slows the member down: it holds up to 256 events, and a reader that falls behind
/// gets [`EventKind::Missed`] and continues with the oldest that is left. It ends after
/// [`EventKind::Ended`]. It does not keep the member running.
pub struct Events {
    feed: Feed<Event>,
    last: (WallTime, MonoTime),
}

impl Events {
    fn new(feed: Feed<Event>) -> Self {
        Self {
            feed,
            last: (WallTime::default(), MonoTime::ZERO),
        }
    }

    /// The next event; none when the member has ended for good. Cancel safe.
    pub async fn next(&mut self) -> Option<Event> {
        std::future::poll_fn(|cx| Pin::new(&mut *self).poll_next(cx)).await
    }
}

impl Stream for Events {
    type Item = Event;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Event>> {
        let item = std::task::ready!(self.feed.poll_next(cx));
        Poll::Ready(item.map(|item| match item {
            Item::Event(event) => {
                self.last = (event.at, event.mono);
                event
            }
            Item::Missed(events) => {
                let (at, mono) = self.last;
                let kind = EventKind::Missed { events };
                Event { at, mono, kind }
            }
        }))
    }
}

impl fmt::Debug for Events {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Events")
    }
}

/// Where streams of events come from, for as long as the member runs.
#[derive(Clone)]
pub(super) struct EventSource(FeedSource<Event>);

impl EventSource {
    pub(super) fn subscribe(&self) -> Events {
        Events::new(self.0.subscribe())
    }
}

/// The most contact points whose failures are remembered.
const MOST_FAILED: usize = 64;

/// The driver's side.
#[derive(Clone)]
pub(super) struct EventSender {
    sender: FeedSender<Event>,
    now: Now,
    unreachable: BTreeSet<SiloAddress>,
    last: Option<GossipView>,
    active: Option<MemberStatus>,
    leaving: bool,
    /// What was told of contact points.
    failed: Vec<(SocketAddr, String)>,
}

impl EventSender {
    pub(super) fn new() -> Self {
        Self {
            sender: FeedSender::new(),
            now: Now::default(),
            unreachable: BTreeSet::new(),
            last: None,
            active: None,
            leaving: false,
            failed: Vec::new(),
        }
    }

    pub(super) fn subscribe(&self) -> Events {
        Events::new(self.sender.subscribe())
    }

    pub(super) fn source(&self) -> EventSource {
        EventSource(self.sender.source())
    }

    /// What time it is for the events that follow.
    pub(super) const fn at(&mut self, now: Now) {
        self.now = now;
    }

    pub(super) fn view(&mut self, view: &GossipView) {
        let status = view.status(&view.me());
        if let Some(status @ (MemberStatus::WeaklyUp | MemberStatus::Up)) = status
            && self.active != Some(status)
        {
            self.active = Some(status);
            let member = view.me();
            self.send(EventKind::Active { member, status });
        }
        if status == Some(MemberStatus::Leaving) && !self.leaving {
            self.leaving = true;
            self.send(EventKind::Leaving);
        }
        let members = view.unreachable();
        if members != self.unreachable {
            self.unreachable.clone_from(&members);
            self.send(EventKind::Unreachable { members });
        }
        let older = self.last.replace(view.clone());
        if let Some(older) = older.filter(|older| older.founding() == view.founding()) {
            for change in view.changes_since(&older) {
                let member = change.member.address();
                match (change.now, change.before) {
                    (MemberStatus::Down, _) => self.send(EventKind::Downed { member }),
                    (MemberStatus::Removed, Some(before)) => {
                        self.send(EventKind::Removed { member, before });
                    }
                    _ => {}
                }
            }
        }
        // Counting is not free in a large cluster.
        if self.sender.is_read() {
            self.send(EventKind::ViewPublished {
                members: view.members().count(),
                active: view.active().count(),
                converged: view.converged(),
            });
        }
    }

    /// A contact point cannot be reached. Whether this reason is new.
    pub(super) fn contact_failed(&mut self, contact_point: SocketAddr, reason: &str) -> bool {
        let failure = (contact_point, reason.to_owned());
        if self.failed.len() >= MOST_FAILED || self.failed.contains(&failure) {
            return false;
        }
        self.failed.push(failure);
        let reason = reason.to_owned();
        self.send(EventKind::ContactFailed {
            contact_point,
            reason,
        });
        true
    }

    pub(super) fn notice(&self, notice: &Notice) {
        self.send(match notice.clone() {
            Notice::Founded(founding) => EventKind::Founded { founding },
            Notice::Welcomed { by } => EventKind::Welcomed { by },
            Notice::NotTakenIn { by, reason } => EventKind::NotTakenIn { by, reason },
            Notice::Exiting => EventKind::Exiting,
            Notice::LinkBroken { to } => EventKind::LinkBroken { to },
            Notice::Paused(pause) => EventKind::Paused(pause),
            Notice::Stranger { from } => EventKind::Stranger { from },
            _ => return,
        });
    }

    pub(super) fn decided(&self, decided: Decided) {
        self.send(EventKind::Decided(Box::new(decided)));
    }

    pub(super) fn down_asked(&self, member: SiloAddress, from: Option<IpAddr>) {
        self.send(EventKind::DownAsked { member, from });
    }

    pub(super) fn waiting(&self, waiting: Waiting) {
        self.send(EventKind::Waiting(Box::new(waiting)));
    }

    pub(super) fn ended(&self, end: &Termination) {
        self.send(EventKind::Ended(end.clone()));
    }

    fn send(&self, kind: EventKind) {
        self.sender.send(Event {
            at: self.now.wall,
            mono: self.now.mono,
            kind,
        });
    }
}
