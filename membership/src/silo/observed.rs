//! What can be seen of a silo without keeping it running.

#[cfg(feature = "http")]
use membership_core::Now;
use membership_core::protocol::Termination;
use membership_core::{ClusterName, ClusterView, SiloAddress, SiloStatus};
use tokio::sync::watch;

use super::events::Events;
use super::health::Health;
use super::state::Subscriber;
use super::views::Views;
use crate::runtime::SILENT;
use crate::runtime::clock::Clock;
use crate::runtime::stage::Stage;

/// The readable side of a silo. It is no handle: the silo stops when the last handle is gone,
/// whoever still observes it.
#[derive(Clone)]
pub(crate) struct Observed {
    pub(super) subscriber: Subscriber,
    pub(super) stage: watch::Receiver<Stage>,
    pub(super) clock: Clock,
    pub(super) cluster: ClusterName,
    /// The address and the view at the time when the silo became Active; used until there is a
    /// newer view.
    pub(super) me: SiloAddress,
    pub(super) first: ClusterView,
}

impl Observed {
    pub(crate) const fn me(&self) -> SiloAddress {
        self.me
    }

    pub(crate) const fn cluster(&self) -> &ClusterName {
        &self.cluster
    }

    /// The newest view; after the end, the last one.
    pub(crate) fn view(&self) -> ClusterView {
        let newest = self.subscriber.view.borrow().clone();
        newest.unwrap_or_else(|| self.first.clone())
    }

    /// The newest view that this silo has from the table itself.
    pub(crate) fn confirmed_view(&self) -> ClusterView {
        let newest = self.subscriber.confirmed.borrow().clone();
        newest.unwrap_or_else(|| self.first.clone())
    }

    pub(crate) fn views(&self) -> Views {
        Views::new(self.subscriber.view.clone())
    }

    pub(crate) fn events(&self) -> Events {
        self.subscriber.events.subscribe()
    }

    #[cfg(feature = "http")]
    pub(crate) fn now(&self) -> Now {
        self.clock.now()
    }

    /// How it ended, once it has.
    pub(crate) fn ended(&self) -> Option<Termination> {
        self.subscriber.ended()
    }

    pub(crate) fn health(&self) -> Health {
        let state = *self.subscriber.state.borrow();
        let now = self.clock.mono();
        let ended = self.ended().is_some();
        let leaving = *self.stage.borrow() > Stage::Running;
        Health {
            score: state.score.score,
            local: state.score.local,
            status: if ended {
                SiloStatus::Dead
            } else {
                state.status
            },
            view_age: now.since(state.view_at),
            table_age: now.since(self.subscriber.table_contact()),
            table: state.table,
            writer: state.writer,
            ready: !ended && !leaving && state.status == SiloStatus::Active && !state.suspended,
            live: !ended && now.since(self.subscriber.last_input()) < SILENT,
            unreached: state.unreached,
            suspended: state.suspended,
        }
    }
}
