//! What the driver tells its handles, through channels that never make it wait.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use membership_core::protocol::{Health as Score, Protocol, TableState, Termination};
use membership_core::{ClusterView, MonoTime, SiloAddress, SiloStatus};
use tokio::sync::watch;

/// Where the silo stands.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct State {
    pub(super) me: Option<SiloAddress>,
    pub(super) status: SiloStatus,
    pub(super) score: Score,
    pub(super) suspended: bool,
    pub(super) table: TableState,
    /// When the last view was published.
    pub(super) view_at: MonoTime,
    /// The version that says ShuttingDown, once that is settled; the inner none: it could not be written.
    pub(super) leaving: Option<Option<u64>>,
}

impl State {
    const START: Self = Self {
        me: None,
        status: SiloStatus::Created,
        score: Score { score: 0, local: 0 },
        suspended: false,
        table: TableState::Available,
        view_at: MonoTime::ZERO,
        leaving: None,
    };
}

/// How the silo ended. `Vanished`: the driver is gone without an end, because its tokio runtime was shut down.
pub(super) type End = Option<Termination>;

/// The driver's side.
pub(super) struct Teller {
    pub(super) view: watch::Sender<Option<ClusterView>>,
    pub(super) state: watch::Sender<State>,
    pub(super) end: watch::Sender<End>,
    beat: Arc<AtomicU64>,
}

/// The handles' side.
#[derive(Clone)]
pub(super) struct Told {
    pub(super) view: watch::Receiver<Option<ClusterView>>,
    pub(super) state: watch::Receiver<State>,
    pub(super) end: watch::Receiver<End>,
    beat: Arc<AtomicU64>,
}

pub(super) fn channel() -> (Teller, Told) {
    let (view, view_seen) = watch::channel(None);
    let (state, state_seen) = watch::channel(State::START);
    let (end, end_seen) = watch::channel(None);
    let beat = Arc::new(AtomicU64::new(0));
    (
        Teller {
            view,
            state,
            end,
            beat: beat.clone(),
        },
        Told {
            view: view_seen,
            state: state_seen,
            end: end_seen,
            beat,
        },
    )
}

impl Teller {
    /// After each input: whatever changed.
    pub(super) fn update(&self, protocol: &Protocol, now: MonoTime) {
        self.beat.store(now.as_nanos(), Ordering::Relaxed);
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

    pub(super) fn change(&self, change: impl FnOnce(&mut State)) {
        self.state.send_modify(change);
    }

    pub(super) fn publish(&self, view: ClusterView, now: MonoTime) {
        self.change(|state| state.view_at = now);
        self.view.send_replace(Some(view));
    }
}

impl Told {
    /// When the driver last took an input.
    pub(super) fn beat(&self) -> MonoTime {
        MonoTime::from_nanos(self.beat.load(Ordering::Relaxed))
    }

    /// The end, if it came; also when the driver vanished with its runtime.
    pub(super) fn ended(&self) -> Option<Termination> {
        let end = self.end.borrow().clone();
        end.or_else(|| self.end.has_changed().is_err().then_some(VANISHED))
    }

    /// Waits for the end. Cancel safe.
    pub(super) async fn termination(&self) -> Termination {
        let mut end = self.end.clone();
        let found = end
            .wait_for(Option::is_some)
            .await
            .ok()
            .and_then(|end| end.clone());
        found.unwrap_or(VANISHED)
    }
}

/// A driver that was dropped has marked nothing: others will find out.
const VANISHED: Termination = Termination::Left { clean: false };

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
        ClusterView::new(Snapshot {
            version_row: Arc::new(row),
            token,
            rows: Rows::new(),
        })
    }

    #[tokio::test]
    async fn a_stream_gives_the_newest_view_once_and_ends_with_the_driver() {
        let (teller, told) = channel();
        teller.publish(view(1), MonoTime::ZERO);
        let mut views = Views::new(told.view.clone());
        assert_eq!(views.next().await, Some(view(1)));
        teller.publish(view(2), MonoTime::ZERO);
        teller.publish(view(3), MonoTime::ZERO);
        assert_eq!(views.next().await, Some(view(3)));
        assert!(
            tokio::time::timeout(std::time::Duration::from_millis(10), views.next())
                .await
                .is_err(),
            "no view twice"
        );
        teller.publish(view(4), MonoTime::ZERO);
        drop(teller);
        assert_eq!(views.next().await, Some(view(4)));
        assert_eq!(views.next().await, None);
        assert_eq!(
            Views::new(told.view.clone()).next().await,
            Some(view(4)),
            "a stream taken after the end"
        );
    }

    #[tokio::test]
    async fn a_driver_that_vanishes_ends_unclean_and_one_that_ends_tells_how() {
        let (teller, told) = channel();
        assert_eq!(told.ended(), None);
        drop(teller);
        assert_eq!(
            (told.ended(), told.termination().await),
            (Some(VANISHED), VANISHED)
        );
        let (teller, told) = channel();
        teller
            .end
            .send_replace(Some(Termination::Left { clean: true }));
        drop(teller);
        assert_eq!(told.ended(), Some(Termination::Left { clean: true }));
        assert_eq!(told.termination().await, Termination::Left { clean: true });
    }
}
