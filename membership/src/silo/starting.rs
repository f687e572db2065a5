//! A silo whose driver runs, until it is Active.

use std::sync::Arc;

use membership_core::protocol::Termination;
use membership_core::{ClusterName, ClusterView, SiloAddress, SiloStatus};
use tokio::sync::{mpsc, watch};

use super::handle::{Inner, Silo};
use super::observed::Observed;
use super::request::Request;
use super::state::Subscriber;
use crate::runtime::clock::Clock;
use crate::runtime::stage::Stage;

/// A running driver whose silo is not Active yet. Dropping it stops the silo.
pub(super) struct Starting {
    pub(super) subscriber: Subscriber,
    pub(super) requests: mpsc::Sender<Request>,
    pub(super) stage: watch::Sender<Stage>,
    pub(super) cluster: ClusterName,
}

impl Starting {
    /// Waits until the silo is Active or has ended. Dropping the future stops the silo.
    pub(super) async fn active(self) -> Result<Silo, Termination> {
        let mut state = self.subscriber.state.clone();
        let mut view = self.subscriber.view.clone();
        let found = {
            let active = async {
                let me = state
                    .wait_for(|s| s.status == SiloStatus::Active && s.me.is_some())
                    .await
                    .ok()
                    .and_then(|s| s.me)?;
                // The state is published before the view: a caller must find itself in the first view that it sees.
                let first = view
                    .wait_for(|v| v.as_ref().is_some_and(|v| is_active(v, &me)))
                    .await
                    .ok()
                    .and_then(|v| v.clone())?;
                Some((me, first))
            };
            tokio::select! {
                biased;
                end = self.subscriber.termination() => return Err(end),
                found = active => found,
            }
        };
        let Some((me, first)) = found else {
            return Err(self.subscriber.termination().await);
        };
        let Self {
            subscriber,
            requests,
            stage,
            cluster,
        } = self;
        Ok(Silo {
            inner: Arc::new(Inner {
                observed: Observed {
                    subscriber,
                    stage: stage.subscribe(),
                    clock: Clock::new(),
                    cluster,
                    me,
                    first,
                },
                requests,
                stage,
            }),
        })
    }
}

fn is_active(view: &ClusterView, me: &SiloAddress) -> bool {
    view.get(me)
        .is_some_and(|silo| silo.status == SiloStatus::Active)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use membership_core::{
        InstanceId, MembershipEntry, MonoTime, Row, Rows, SharedSettings, Snapshot, TableId,
        VersionRow, WallTime,
    };

    use super::super::error::RequestError;
    use super::super::events::EventSender;
    use super::super::state::{self, Publisher};
    use super::*;

    fn me() -> SiloAddress {
        SiloAddress::new([127, 0, 0, 1].into(), 1, 1)
    }

    /// A view with this silo's row.
    fn view(status: SiloStatus) -> ClusterView {
        let mut entry = MembershipEntry::new(me(), InstanceId::new(1), WallTime::default());
        entry.status = status;
        let row = VersionRow::initial(TableId::new(1), SharedSettings::default());
        let token = row.token(&[]);
        ClusterView::new(Snapshot::new(
            token,
            Arc::new(row),
            Rows::from_iter([Row::encode(entry)]),
        ))
    }

    fn says_active(publisher: &Publisher) {
        publisher.change(|state| {
            state.status = SiloStatus::Active;
            state.me = Some(me());
        });
    }

    fn starting(subscriber: Subscriber, requests: mpsc::Sender<Request>) -> Starting {
        Starting {
            subscriber,
            requests,
            stage: watch::channel(Stage::Running).0,
            cluster: "test".parse().unwrap(),
        }
    }

    #[tokio::test]
    async fn a_silo_that_has_started_finds_itself_in_its_view() {
        let (mut publisher, subscriber) = state::channel(EventSender::new());
        let (requests, _queue) = mpsc::channel(4);
        publisher.publish(view(SiloStatus::Joining), MonoTime::ZERO);
        let mut started = tokio::spawn(starting(subscriber, requests).active());
        says_active(&publisher);
        let early = tokio::time::timeout(Duration::from_millis(50), &mut started).await;
        assert!(early.is_err(), "started with a view in which it is Joining");
        publisher.publish(view(SiloStatus::Active), MonoTime::ZERO);
        let silo = started.await.unwrap().unwrap();
        assert_eq!(silo.view().owner("key").unwrap().address, me());
    }

    #[tokio::test]
    async fn a_request_that_is_never_handled_ends_with_the_silo() {
        let (mut publisher, subscriber) = state::channel(EventSender::new());
        let (requests, queue) = mpsc::channel(4);
        says_active(&publisher);
        publisher.publish(view(SiloStatus::Active), MonoTime::ZERO);
        let silo = starting(subscriber, requests).active().await.unwrap();
        let asking = tokio::spawn({
            let silo = silo.clone();
            async move { silo.refresh(None).await }
        });
        while queue.is_empty() {
            tokio::task::yield_now().await;
        }
        let end = Termination::Left { clean: true };
        publisher.end.send_replace(Some(end.clone()));
        assert_eq!(
            asking.await.unwrap(),
            Err(RequestError::Stopped(Box::new(end)))
        );
    }
}
