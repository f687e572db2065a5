//! The handle of a running member.

use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use membership_core::{ClusterName, MonoTime, SiloAddress};
use membership_gossip::GossipView;
use membership_gossip::protocol::Termination;
use membership_gossip::state::MemberStatus;
use tokio::sync::{mpsc, oneshot, watch};

use super::driver::Request;
use super::error::{DownError, JoinError, WaitError};
use super::events::Events;
use super::health::Health;
use super::state::Observed;
use super::views::Views;
use crate::runtime::stage::Stage;

/// A process of this program that is, or will be, a member of a cluster without a store. Clones are
/// handles of the same member.
///
/// When the last handle is dropped, the member leaves in the background without a hand-over.
/// (Streams, [`Views`] and [`Events`], are not handles.) When its tokio runtime is shut down, the
/// others see it as unreachable, as after a crash.
///
/// ```no_run
/// use membership::gossip::Member;
/// use membership::transport::Security;
/// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
/// // Without encryption, on this machine alone.
/// let here = "127.0.0.1:7100".parse()?;
/// let member = Member::builder("blue".parse()?).listen(here).security(Security::none()).start().await?;
/// let view = member.join([here]).await?;
/// println!("{} leads a cluster of {}", view.leader().expect("it is up"), view.active().count());
/// member.leave().await;
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Member {
    pub(super) inner: Arc<Inner>,
}

pub(super) struct Inner {
    pub(super) observed: Observed,
    pub(super) requests: mpsc::Sender<Request>,
    /// Closed when the last handle is gone.
    pub(super) stage: watch::Sender<Stage>,
}

impl Member {
    /// This process's address: endpoint and epoch. Its epoch may rise until it is a member.
    #[must_use]
    pub fn me(&self) -> SiloAddress {
        self.inner.observed.subscriber.state.borrow().me
    }

    /// The cluster it is for.
    #[must_use]
    pub fn cluster(&self) -> &ClusterName {
        &self.inner.observed.cluster
    }

    /// Joins the cluster that one of the contact points is in, or founds one with them as
    /// [configured](super::Config::founding), and waits until this member is up or weakly up. Gives
    /// the view in which it is.
    ///
    /// All members need the same contact points in the same order, their own included: they found by
    /// a majority of them. While nobody answers it waits and goes on trying; [`events`](Self::events)
    /// says what happens meanwhile. Bound it with a timeout. Only the first call has contact points
    /// that count; later ones just wait.
    ///
    /// # Errors
    /// [`JoinError`]. Cancellation: the process goes on joining.
    pub async fn join(
        &self,
        contact_points: impl IntoIterator<Item = SocketAddr>,
    ) -> Result<GossipView, JoinError> {
        let canonical = |at: SocketAddr| SocketAddr::new(at.ip().to_canonical(), at.port());
        let contact_points: Vec<_> = contact_points.into_iter().map(canonical).collect();
        if contact_points.is_empty() {
            return Err(JoinError::NoContactPoints);
        }
        // If the driver has ended, there are no views either.
        let _ = self
            .inner
            .requests
            .send(Request::Join(contact_points))
            .await;
        let mut views = self.views();
        while let Some(view) = views.next().await {
            let status = view.status(&view.me());
            if matches!(status, Some(MemberStatus::WeaklyUp | MemberStatus::Up)) {
                return Ok(view);
            }
        }
        Err(JoinError::Ended(self.terminated().await))
    }

    /// The newest view; after the end, the last one. None before the process is a member of a
    /// cluster. Cheap: it copies a few pointers.
    #[must_use]
    pub fn view(&self) -> Option<GossipView> {
        self.inner.observed.view()
    }

    /// The views as a stream, the current one first.
    #[must_use]
    pub fn views(&self) -> Views {
        self.inner.observed.views()
    }

    /// What happens to this member from now on, as a stream: views, who is unreachable, decisions of
    /// the resolver, the end. For logs and alerts; decide by [`view`](Self::view) and
    /// [`health`](Self::health). [`MemberBuilder::events`](super::MemberBuilder::events) begins
    /// before the process joins.
    #[must_use]
    pub fn events(&self) -> Events {
        self.inner.observed.events()
    }

    /// Waits for a view that satisfies `predicate`, the current one or one that follows; gives that
    /// view.
    ///
    /// # Errors
    /// [`WaitError::TimedOut`], or [`WaitError::Ended`] if the member ended before. Cancel safe.
    pub async fn wait_for(
        &self,
        mut predicate: impl FnMut(&GossipView) -> bool,
        timeout: Duration,
    ) -> Result<GossipView, WaitError> {
        let mut views = self.views();
        let found = tokio::time::timeout(timeout, async {
            while let Some(view) = views.next().await {
                if predicate(&view) {
                    return Some(view);
                }
            }
            None
        });
        match found.await {
            Ok(Some(view)) => Ok(view),
            Ok(None) => Err(WaitError::Ended(self.terminated().await)),
            Err(_) => Err(WaitError::TimedOut { waited: timeout }),
        }
    }

    /// Downs a member, because its process has ended for certain: an operator knows, or the
    /// application. Everybody who hears of it removes the member, and the member ends if it hears of
    /// it itself. Downing one that runs, behind a split network, lets both sides go on.
    ///
    /// # Errors
    /// [`DownError`]. Cancellation: the member may be downed nevertheless.
    pub async fn down(&self, member: SiloAddress) -> Result<(), DownError> {
        let (reply, answer) = oneshot::channel();
        let asked = Request::Down { member, reply };
        if self.inner.requests.send(asked).await.is_err() {
            return Err(DownError::Ended(self.terminated().await));
        }
        // A request may enter the queue while the driver ends; then it is never handled.
        tokio::select! {
            biased;
            answer = answer => match answer {
                Ok(true) => Ok(()),
                Ok(false) => Err(DownError::NotMember(member)),
                Err(_) => Err(DownError::Ended(self.terminated().await)),
            },
            end = self.terminated() => Err(DownError::Ended(end)),
        }
    }

    /// How the member is doing, for probes and dashboards: see [`Health`].
    #[must_use]
    pub fn health(&self) -> Health {
        self.inner.observed.health()
    }

    /// This process's monotonic time, to compare with [`GossipView::blocked_since`]. On Linux and
    /// Android it includes the time in which the machine is suspended.
    #[must_use]
    pub fn now(&self) -> MonoTime {
        self.inner.observed.clock.mono()
    }

    /// Waits for the end of the member; says why: it left, or it was downed. It never ends the
    /// process: an application that cannot continue without membership should exit when this
    /// returns, and be started again.
    ///
    /// If the member's tokio runtime is shut down, this gives [`Termination::Dropped`]. Cancel safe.
    pub async fn terminated(&self) -> Termination {
        self.inner.observed.subscriber.termination().await
    }
}

impl fmt::Debug for Member {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = *self.inner.observed.subscriber.state.borrow();
        f.debug_struct("Member")
            .field("me", &state.me)
            .field("status", &state.status)
            .finish_non_exhaustive()
    }
}
