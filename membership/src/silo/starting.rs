//! A silo whose driver runs, until it is Active.

use std::sync::Arc;

use membership_core::protocol::Termination;
use membership_core::{ClusterName, SiloStatus};
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
                let first = view
                    .wait_for(Option::is_some)
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

#[cfg(test)]
mod tests {
    use membership_core::{
        ClusterView, MonoTime, Rows, SharedSettings, SiloAddress, Snapshot, TableId, VersionRow,
    };

    use super::super::error::RequestError;
    use super::super::events::EventSender;
    use super::super::state;
    use super::*;

    #[tokio::test]
    async fn a_request_that_is_never_handled_ends_with_the_silo() {
        let (mut publisher, subscriber) = state::channel(EventSender::new());
        let (requests, queue) = mpsc::channel(4);
        let (stage, _stages) = watch::channel(Stage::Running);
        publisher.change(|state| {
            state.status = SiloStatus::Active;
            state.me = Some(SiloAddress::new([127, 0, 0, 1].into(), 1, 1));
        });
        let row = VersionRow::initial(TableId::new(1), SharedSettings::default());
        let token = row.token(&[]);
        publisher.publish(
            ClusterView::new(Snapshot::new(token, Arc::new(row), Rows::new())),
            MonoTime::ZERO,
        );
        let cluster = "test".parse().unwrap();
        let silo = Starting {
            subscriber,
            requests,
            stage,
            cluster,
        }
        .active()
        .await
        .unwrap();
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
