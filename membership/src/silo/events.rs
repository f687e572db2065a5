//! What happens to a silo, as a stream of typed events.

use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll};

use futures_core::Stream;
use membership_core::protocol::{
    JoinProgress, NotReached, Notice, Observation, TableState, Termination,
};
use membership_core::{ClusterView, MonoTime, Now, SiloAddress, TableError, WallTime};

use crate::runtime::feed::{Feed, FeedSender, FeedSource, Item};

/// Something that happened to a silo.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Event {
    /// When, by this machine's clock.
    pub at: WallTime,
    /// When, by this process's monotonic clock: see [`Silo::now`](super::Silo::now).
    pub mono: MonoTime,
    /// The version of the table that the event belongs to: the version that reports it, or else the
    /// version of the silo's view at that time. 0 before the first view.
    pub version: u64,
    /// What happened.
    pub kind: EventKind,
}

/// What happened to a silo.
///
/// A program should ignore kinds that it does not know: later versions of this library add some.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum EventKind {
    /// The silo's address is decided and its row is in the table, as Joining.
    Joining {
        /// The silo.
        silo: SiloAddress,
    },
    /// The silo is still joining. Comes every 5 s, with the silos that delay it.
    JoinProgress(Box<JoinProgress>),
    /// The silo joined: it is Active.
    Active {
        /// The silo.
        silo: SiloAddress,
    },
    /// The silo published a new view, of the event's version. [`Silo::views`](super::Silo::views)
    /// has the views themselves.
    ViewPublished {
        /// Rows in it, dead ones included.
        members: usize,
        /// Active silos in it.
        active: usize,
    },
    /// This silo suspects another one: it missed as many probes in a row as the configuration
    /// allows. A suspicion that the other silos do not share never becomes a vote.
    Suspected {
        /// The suspect.
        peer: SiloAddress,
        /// How many probes it missed in a row.
        misses: u32,
    },
    /// A vote of this silo is in the table.
    VoteWritten {
        /// The silo that it is against.
        suspect: SiloAddress,
    },
    /// A vote against this silo is in the table.
    VoteReceived {
        /// The silo that voted.
        accuser: SiloAddress,
    },
    /// The table is in another state: it became unavailable, available again, unusable, or it is
    /// not the table that this silo knew. Without the table no silo is declared dead, and all keep
    /// running.
    Table {
        /// The state that it is in now.
        state: TableState,
        /// The error of the call that showed it, if there was one.
        error: Option<Box<TableError>>,
    },
    /// The table does not have a view that another silo announced and this one published: the
    /// table's is published instead, of the event's version. A silo with a fault announces
    /// such views, and so does one that lies.
    ViewWithdrawn {
        /// The version that was announced.
        announced: u64,
    },
    /// A partial partition: other silos than before are not reached by this one, though others reach
    /// them. It comes a failure window after the first roll call that shows it, and no more often than
    /// that; nobody is declared dead for it. The silos of the other side send such an event, too.
    PartialPartition {
        /// All silos that this one does not reach, each with how many others do; empty when it has
        /// ended.
        unreached: Vec<NotReached>,
    },
    /// No other silo answers this one: none of those that it probes, for twice the failure window. It
    /// is cut off, or alone; the others may have given it up, and it stops when it can read that in
    /// the table.
    Unanswered {
        /// How many silos it probes in vain; 0 when one answers again.
        silos: usize,
    },
    /// The process did not run for longer than the failure window; the silo publishes and writes
    /// nothing until it has read the table.
    Suspended,
    /// The silo continues after [`Suspended`](Self::Suspended).
    Resumed,
    /// The silo's mistrust in itself changed: see [`Health`](super::Health).
    HealthChanged {
        /// All reasons together: 0 (healthy) to 8.
        score: u8,
        /// The reasons within this process alone: 0 to 8.
        local: u8,
    },
    /// The silo is leaving: it drains now.
    Leaving {
        /// Whether the table says so. If not, the table could not be written in time.
        written: bool,
    },
    /// The silo stopped for good: it left, was declared dead, or could not join. The last event.
    Ended(Box<Termination>),
    /// The reader was too slow and missed events. Time and version are those of the last event
    /// before the gap.
    Missed {
        /// How many.
        events: u64,
    },
}

/// The events of a silo, from the moment at which the stream was made.
///
/// The stream never slows the silo down: it holds up to 256 events, and a reader that falls behind
/// gets [`EventKind::Missed`] and continues with the oldest that is left. It ends after
/// [`EventKind::Ended`]. It does not keep the silo running.
///
/// ```no_run
/// use membership::{EventKind, MemoryTable, Silo};
/// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
/// let builder = Silo::builder(MemoryTable::new("blue".parse()?)).listen("127.0.0.1:0".parse()?);
/// let mut events = builder.events();
/// let silo = builder.start().await?;
/// while let Some(event) = events.next().await {
///     match event.kind {
///         EventKind::Table { state, error } => println!("{}: {state:?} {error:?}", event.at),
///         EventKind::Suspected { peer, .. } => println!("{}: suspects {peer}", event.at),
///         _ => {}
///     }
/// }
/// # let _ = silo;
/// # Ok(())
/// # }
/// ```
pub struct Events {
    feed: Feed<Event>,
    last: (WallTime, MonoTime, u64),
}

impl Events {
    fn new(feed: Feed<Event>) -> Self {
        Self {
            feed,
            last: (WallTime::default(), MonoTime::ZERO, 0),
        }
    }

    /// The next event; none when the silo has stopped for good. Cancel safe.
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
                self.last = (event.at, event.mono, event.version);
                event
            }
            Item::Missed(events) => {
                let (at, mono, version) = self.last;
                let kind = EventKind::Missed { events };
                Event {
                    at,
                    mono,
                    version,
                    kind,
                }
            }
        }))
    }
}

impl fmt::Debug for Events {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Events")
    }
}

/// Where streams of events come from, for as long as the silo runs.
#[derive(Clone)]
pub(super) struct EventSource(FeedSource<Event>);

impl EventSource {
    pub(super) fn subscribe(&self) -> Events {
        Events::new(self.0.subscribe())
    }
}

/// The driver's side.
#[derive(Clone)]
pub(super) struct EventSender {
    sender: FeedSender<Event>,
    /// This many missed probes in a row make a suspicion.
    misses: u32,
    now: Now,
    version: u64,
}

impl EventSender {
    pub(super) fn new() -> Self {
        Self {
            sender: FeedSender::new(),
            misses: 0,
            now: Now {
                mono: MonoTime::ZERO,
                wall: WallTime::default(),
            },
            version: 0,
        }
    }

    pub(super) fn subscribe(&self) -> Events {
        Events::new(self.sender.subscribe())
    }

    pub(super) fn source(&self) -> EventSource {
        EventSource(self.sender.source())
    }

    pub(super) const fn suspect_after(&mut self, misses: u32) {
        self.misses = misses;
    }

    /// What time it is for the events that follow.
    pub(super) const fn at(&mut self, now: Now) {
        self.now = now;
    }

    pub(super) fn view(&mut self, view: &ClusterView) {
        self.version = view.version();
        // Counting is not free in a large cluster.
        if self.sender.is_read() {
            self.send(EventKind::ViewPublished {
                members: view.len(),
                active: view.active().count(),
            });
        }
    }

    /// `error` is the error of the table call that caused the notice.
    pub(super) fn notice(
        &self,
        notice: &Notice,
        me: Option<SiloAddress>,
        error: Option<&TableError>,
    ) {
        let (version, kind) = match notice {
            Notice::Joining { silo, version } => (*version, EventKind::Joining { silo: *silo }),
            Notice::JoinProgress(progress) => (
                self.version,
                EventKind::JoinProgress(Box::new(progress.clone())),
            ),
            Notice::Active { version } => match me {
                Some(silo) => (*version, EventKind::Active { silo }),
                None => return,
            },
            Notice::LeaveBegun { version } => (
                version.unwrap_or(self.version),
                EventKind::Leaving {
                    written: version.is_some(),
                },
            ),
            Notice::Table(state) => (
                self.version,
                EventKind::Table {
                    state: *state,
                    error: error.cloned().map(Box::new),
                },
            ),
            Notice::ViewWithdrawn { version, table } => {
                let announced = *version;
                (*table, EventKind::ViewWithdrawn { announced })
            }
            Notice::PartialPartition { unreached } => {
                let unreached = unreached.clone();
                (self.version, EventKind::PartialPartition { unreached })
            }
            Notice::Suspended(true) => (self.version, EventKind::Suspended),
            Notice::Suspended(false) => (self.version, EventKind::Resumed),
            _ => return,
        };
        self.send_at(version, kind);
    }

    pub(super) fn observation(&self, observation: &Observation) {
        self.send(match observation {
            Observation::ProbeMissed { peer, misses, .. } if *misses == self.misses => {
                EventKind::Suspected {
                    peer: *peer,
                    misses: *misses,
                }
            }
            Observation::VoteCast { suspect } => EventKind::VoteWritten { suspect: *suspect },
            Observation::VoteReceived { accuser } => EventKind::VoteReceived { accuser: *accuser },
            Observation::Health { score, local } => EventKind::HealthChanged {
                score: *score,
                local: *local,
            },
            _ => return,
        });
    }

    pub(super) fn unanswered(&self, silos: usize) {
        self.send(EventKind::Unanswered { silos });
    }

    pub(super) fn ended(&self, end: &Termination) {
        self.send(EventKind::Ended(Box::new(end.clone())));
    }

    fn send(&self, kind: EventKind) {
        self.send_at(self.version, kind);
    }

    fn send_at(&self, version: u64, kind: EventKind) {
        self.sender.send(Event {
            at: self.now.wall,
            mono: self.now.mono,
            version,
            kind,
        });
    }
}
