//! What the driver publishes to its handles, through channels that never make it wait.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use membership_core::{ClusterName, MonoTime, SiloAddress};
use membership_gossip::GossipView;
use membership_gossip::protocol::{Protocol, Termination};
use membership_gossip::state::MemberStatus;
use tokio::sync::watch;

use super::events::{EventSender, EventSource, Events};
use super::health::Health;
use super::views::Views;
use crate::runtime::SILENT;
use crate::runtime::clock::Clock;
use crate::runtime::stage::Stage;

/// The member's state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct State {
    /// Its epoch may rise until it is a member.
    pub(super) me: SiloAddress,
    pub(super) status: Option<MemberStatus>,
    /// All know that it leaves.
    pub(super) exiting: bool,
    /// When the last view was published.
    pub(super) view_at: MonoTime,
}

/// The driver's side.
pub(super) struct Publisher {
    pub(super) view: watch::Sender<Option<GossipView>>,
    pub(super) state: watch::Sender<State>,
    pub(super) end: watch::Sender<Option<Termination>>,
    pub(super) events: EventSender,
    last_input: Arc<AtomicU64>,
}

/// The handles' side.
#[derive(Clone)]
pub(super) struct Subscriber {
    pub(super) view: watch::Receiver<Option<GossipView>>,
    pub(super) state: watch::Receiver<State>,
    pub(super) end: watch::Receiver<Option<Termination>>,
    pub(super) events: EventSource,
    /// Nanoseconds of monotonic time; changes with every input and wakes nobody.
    last_input: Arc<AtomicU64>,
}

pub(super) fn channel(me: SiloAddress, events: EventSender) -> (Publisher, Subscriber) {
    let (view, view_seen) = watch::channel(None);
    let (state, state_seen) = watch::channel(State {
        me,
        status: None,
        exiting: false,
        view_at: MonoTime::ZERO,
    });
    let (end, end_seen) = watch::channel(None);
    let last_input = Arc::new(AtomicU64::new(Clock::new().mono().as_nanos()));
    let source = events.source();
    (
        Publisher {
            view,
            state,
            end,
            events,
            last_input: last_input.clone(),
        },
        Subscriber {
            view: view_seen,
            state: state_seen,
            end: end_seen,
            events: source,
            last_input,
        },
    )
}

impl Publisher {
    /// After each input: publishes what changed.
    pub(super) fn update(&self, protocol: &Protocol, now: MonoTime) {
        self.last_input.store(now.as_nanos(), Ordering::Relaxed);
        let (me, status) = (protocol.me(), protocol.status());
        self.state.send_if_modified(|state| {
            let changed = (state.me, state.status) != (me, status);
            (state.me, state.status) = (me, status);
            changed
        });
    }

    pub(super) fn publish(&mut self, view: GossipView, now: MonoTime) {
        self.events.view(&view);
        let exiting = view.status(&view.me()) == Some(MemberStatus::Exiting);
        // Who waits for the state finds the view.
        self.view.send_replace(Some(view));
        self.state.send_modify(|state| {
            state.view_at = now;
            state.exiting |= exiting;
        });
    }
}

impl Subscriber {
    /// The end, if there is one, including the end of a driver that was dropped with its runtime.
    pub(super) fn ended(&self) -> Option<Termination> {
        let end = self.end.borrow().clone();
        let dropped = || self.end.has_changed().is_err();
        end.or_else(|| dropped().then_some(Termination::Dropped))
    }

    /// Waits for the end. Cancel safe.
    pub(super) async fn termination(&self) -> Termination {
        let mut end = self.end.clone();
        let found = end.wait_for(Option::is_some).await;
        let found = found.ok().and_then(|end| end.clone());
        found.unwrap_or(Termination::Dropped)
    }
}

/// The readable side of a member. It is no handle: the member leaves when the last handle is gone,
/// whoever still observes it.
#[derive(Clone)]
pub(super) struct Observed {
    pub(super) subscriber: Subscriber,
    pub(super) stage: watch::Receiver<Stage>,
    pub(super) clock: Clock,
    pub(super) cluster: ClusterName,
}

impl Observed {
    pub(super) fn view(&self) -> Option<GossipView> {
        self.subscriber.view.borrow().clone()
    }

    pub(super) fn views(&self) -> Views {
        Views::new(self.subscriber.view.clone())
    }

    pub(super) fn events(&self) -> Events {
        self.subscriber.events.subscribe()
    }

    pub(super) fn health(&self) -> Health {
        let state = *self.subscriber.state.borrow();
        let now = self.clock.mono();
        let ended = self.subscriber.ended().is_some();
        let leaving = *self.stage.borrow() > Stage::Running;
        let serves = matches!(
            state.status,
            Some(MemberStatus::Up | MemberStatus::WeaklyUp)
        );
        let view = self.subscriber.view.borrow();
        let view = view.as_ref().filter(|_| !ended);
        let last_input = MonoTime::from_nanos(self.subscriber.last_input.load(Ordering::Relaxed));
        Health {
            status: if ended {
                Some(MemberStatus::Removed)
            } else {
                state.status
            },
            ready: !ended && !leaving && serves,
            live: !ended && now.since(last_input) < SILENT,
            view_age: now.since(state.view_at),
            blocked_for: view
                .and_then(GossipView::blocked_since)
                .map(|since| now.since(since)),
            unreachable: view.map_or(0, |view| view.unreachable().len()),
        }
    }
}
