//! What the driver publishes to its handles, through channels that never make it wait.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use membership_core::protocol::{Health as Score, Protocol, TableState, Termination, WriterState};
use membership_core::{ClusterView, MonoTime, SiloAddress, SiloStatus};
use tokio::sync::watch;

use super::events::{EventSender, EventSource};

/// The silo's state.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct State {
    pub(super) me: Option<SiloAddress>,
    pub(super) status: SiloStatus,
    pub(super) score: Score,
    pub(super) suspended: bool,
    /// How many silos it does not reach, though others do.
    pub(super) unreached: usize,
    pub(super) table: TableState,
    /// Who writes its changes, as of the last tick.
    pub(super) writer: WriterState,
    /// When the last view was published.
    pub(super) view_at: MonoTime,
    /// Once known: the version that says ShuttingDown, or none if it could not be written.
    pub(super) leaving: Option<Option<u64>>,
}

impl State {
    const START: Self = Self {
        me: None,
        status: SiloStatus::Created,
        score: Score::HEALTHY,
        suspended: false,
        unreached: 0,
        table: TableState::Available,
        writer: WriterState::IDLE,
        view_at: MonoTime::ZERO,
        leaving: None,
    };
}

/// How the silo ended, once it has.
pub(super) type End = Option<Termination>;

/// The driver's side.
pub(super) struct Publisher {
    pub(super) view: watch::Sender<Option<ClusterView>>,
    pub(super) confirmed: watch::Sender<Option<ClusterView>>,
    pub(super) state: watch::Sender<State>,
    pub(super) end: watch::Sender<End>,
    pub(super) events: EventSender,
    times: Arc<Times>,
}

/// Times that change with every input and wake nobody: nanoseconds of monotonic time.
#[derive(Debug, Default)]
struct Times {
    last_input: AtomicU64,
    table_contact: AtomicU64,
}

/// The handles' side.
#[derive(Clone)]
pub(super) struct Subscriber {
    pub(super) view: watch::Receiver<Option<ClusterView>>,
    pub(super) confirmed: watch::Receiver<Option<ClusterView>>,
    pub(super) state: watch::Receiver<State>,
    pub(super) end: watch::Receiver<End>,
    pub(super) events: EventSource,
    times: Arc<Times>,
}

pub(super) fn channel(events: EventSender) -> (Publisher, Subscriber) {
    let (view, view_seen) = watch::channel(None);
    let (confirmed, confirmed_seen) = watch::channel(None);
    let (state, state_seen) = watch::channel(State::START);
    let (end, end_seen) = watch::channel(None);
    let times = Arc::new(Times::default());
    let source = events.source();
    (
        Publisher {
            view,
            confirmed,
            state,
            end,
            events,
            times: times.clone(),
        },
        Subscriber {
            view: view_seen,
            confirmed: confirmed_seen,
            state: state_seen,
            end: end_seen,
            events: source,
            times,
        },
    )
}

impl Publisher {
    /// After each input: publishes what changed.
    pub(super) fn update(&self, protocol: &Protocol, now: MonoTime) {
        let times = &self.times;
        times.last_input.store(now.as_nanos(), Ordering::Relaxed);
        if let Some(contact) = protocol.table_contact() {
            let contact = contact.as_nanos();
            times.table_contact.store(contact, Ordering::Relaxed);
        }
        if let Some(view) = protocol.confirmed_view() {
            self.confirmed.send_if_modified(|last| {
                let of = |view: &ClusterView| (view.table_id(), view.version(), view.digest());
                let is_new = last.as_ref().is_none_or(|last| of(last) != of(view));
                if is_new {
                    *last = Some(view.clone());
                }
                is_new
            });
        }
        self.state.send_if_modified(|state| {
            let next = State {
                me: protocol.me(),
                status: protocol.status(),
                score: protocol.health(),
                suspended: protocol.is_suspended(),
                ..*state
            };
            let changed = *state != next;
            *state = next;
            changed
        });
    }

    /// A few times a second: publishes who writes the silo's changes, if that is another one.
    pub(super) fn writer(&self, writer: WriterState) {
        self.state.send_if_modified(|state| {
            let changed = state.writer != writer;
            state.writer = writer;
            changed
        });
    }

    pub(super) fn change(&self, change: impl FnOnce(&mut State)) {
        self.state.send_modify(change);
    }

    pub(super) fn publish(&mut self, view: ClusterView, now: MonoTime) {
        self.change(|state| state.view_at = now);
        self.events.view(&view);
        self.view.send_replace(Some(view));
    }
}

impl Subscriber {
    /// When the driver last took an input.
    pub(super) fn last_input(&self) -> MonoTime {
        MonoTime::from_nanos(self.times.last_input.load(Ordering::Relaxed))
    }

    /// When the last call that the table answered well was sent.
    pub(super) fn table_contact(&self) -> MonoTime {
        MonoTime::from_nanos(self.times.table_contact.load(Ordering::Relaxed))
    }

    /// The end, if there is one, including the end of a driver that was dropped with its runtime.
    pub(super) fn ended(&self) -> Option<Termination> {
        let end = self.end.borrow().clone();
        end.or_else(|| self.end.has_changed().is_err().then_some(DROPPED))
    }

    /// Waits for the end. Cancel safe.
    pub(super) async fn termination(&self) -> Termination {
        let mut end = self.end.clone();
        let found = end
            .wait_for(Option::is_some)
            .await
            .ok()
            .and_then(|end| end.clone());
        found.unwrap_or(DROPPED)
    }
}

/// The end of a silo whose driver was dropped with its runtime: its row does not report the end.
const DROPPED: Termination = Termination::Left { clean: false };

#[cfg(test)]
mod tests {
    use membership_core::{CommitId, Rows, SharedSettings, Snapshot, TableId, VersionRow};

    use super::super::views::Views;
    use super::*;

    fn view(version: u64) -> ClusterView {
        let mut row = VersionRow::initial(TableId::new(1), SharedSettings::default());
        row.version = version;
        let token =
            membership_core::VersionToken::new(row.table_id, version, CommitId::new(0), &[]);
        ClusterView::new(Snapshot::new(token, row, Rows::new()))
    }

    #[tokio::test]
    async fn a_stream_gives_the_newest_view_once_and_ends_with_the_driver() {
        let (mut publisher, subscriber) = channel(EventSender::new());
        publisher.publish(view(1), MonoTime::ZERO);
        let mut views = Views::new(subscriber.view.clone());
        assert_eq!(views.next().await, Some(view(1)));
        publisher.publish(view(2), MonoTime::ZERO);
        publisher.publish(view(3), MonoTime::ZERO);
        assert_eq!(views.next().await, Some(view(3)));
        assert!(
            tokio::time::timeout(std::time::Duration::from_millis(10), views.next())
                .await
                .is_err(),
            "no view twice"
        );
        publisher.publish(view(4), MonoTime::ZERO);
        drop(publisher);
        assert_eq!(views.next().await, Some(view(4)));
        assert_eq!(views.next().await, None);
        assert_eq!(
            Views::new(subscriber.view.clone()).next().await,
            Some(view(4)),
            "a stream taken after the end"
        );
    }

    #[tokio::test]
    async fn a_dropped_driver_ends_unclean_and_another_as_it_says() {
        let (publisher, subscriber) = channel(EventSender::new());
        assert_eq!(subscriber.ended(), None);
        drop(publisher);
        assert_eq!(
            (subscriber.ended(), subscriber.termination().await),
            (Some(DROPPED), DROPPED)
        );
        let (publisher, subscriber) = channel(EventSender::new());
        publisher
            .end
            .send_replace(Some(Termination::Left { clean: true }));
        drop(publisher);
        assert_eq!(subscriber.ended(), Some(Termination::Left { clean: true }));
        assert_eq!(
            subscriber.termination().await,
            Termination::Left { clean: true }
        );
    }
}
