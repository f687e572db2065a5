//! The handle of a running silo.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use membership_core::protocol::Termination;
use membership_core::{
    Change, ClusterName, ClusterView, FencingToken, MembershipEntry, MonoTime, SiloAddress,
    SiloMembers,
};
use tokio::sync::mpsc::error::TrySendError;
use tokio::sync::{mpsc, oneshot, watch};

use super::error::{RequestError, WaitError};
use super::events::Events;
use super::health::Health;
use super::observed::Observed;
use super::request::Request;
use super::views::Views;
use crate::runtime::stage::Stage;

/// A running silo of this process. Clones are handles of the same silo.
///
/// When the last handle is dropped, the silo stops in the background without draining, and other
/// silos see that it left. (Streams, [`Views`] and [`Events`], are not handles.) When its tokio
/// runtime is shut down, its row stays as it is, and other silos declare it dead as after a crash.
///
/// ```no_run
/// use membership::{MemoryTable, Silo};
/// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
/// let table = MemoryTable::new("blue".parse()?);
/// let silo = Silo::builder(table).listen("127.0.0.1:0".parse()?).role("worker").start().await?;
/// println!("{} is in a cluster of {}", silo.me(), silo.view().active().count());
/// let mine = silo.owner("customer/42").is_some_and(|owner| owner.address == silo.me());
/// # let _ = mine;
/// silo.leave().await;
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Silo {
    pub(super) inner: Arc<Inner>,
}

pub(super) struct Inner {
    pub(super) observed: Observed,
    pub(super) requests: mpsc::Sender<Request>,
    /// Closed when the last handle is gone.
    pub(super) stage: watch::Sender<Stage>,
}

impl Silo {
    /// This silo's address: endpoint and epoch.
    #[must_use]
    pub fn me(&self) -> SiloAddress {
        self.inner.observed.me()
    }

    /// The cluster it is in.
    #[must_use]
    pub fn cluster(&self) -> &ClusterName {
        self.inner.observed.cluster()
    }

    /// The newest view, confirmed or announced; after the end, the last one. Cheap: it copies a few
    /// pointers.
    #[must_use]
    pub fn view(&self) -> ClusterView {
        self.inner.observed.view()
    }

    /// The newest view that this silo has from the table itself: what it read, or wrote with
    /// success. [`view`](Self::view) may be newer, if another silo announced it. Decide what must
    /// not be wrong (ownership, leases, fencing) by this one; [`refresh`](Self::refresh) brings it
    /// up to date.
    #[must_use]
    pub fn confirmed_view(&self) -> ClusterView {
        self.inner.observed.confirmed_view()
    }

    /// The views as a stream, the current one first.
    #[must_use]
    pub fn views(&self) -> Views {
        self.inner.observed.views()
    }

    /// What happens to this silo from now on, as a stream: views, suspicions, votes, the table's
    /// state, the end. For logs and alerts; decide by [`view`](Self::view) and
    /// [`health`](Self::health). [`SiloBuilder::events`](crate::SiloBuilder::events) begins before
    /// the silo joins.
    #[must_use]
    pub fn events(&self) -> Events {
        self.inner.observed.events()
    }

    /// The newest view as [`Members`](membership_core::Members), for code that is written for clusters without a table, too.
    #[must_use]
    pub fn members(&self) -> SiloMembers {
        self.view().seen_by(self.me())
    }

    /// What changed from `older` to the newest view. See [`ClusterView::changes_since`].
    #[must_use]
    pub fn changes_since(&self, older: &ClusterView) -> Vec<Change> {
        self.view().changes_since(older)
    }

    /// A silo's row in the newest view; none without a row.
    #[must_use]
    pub fn get(&self, silo: &SiloAddress) -> Option<MembershipEntry> {
        self.view().get(silo).cloned()
    }

    /// The Active silo that became active at the lowest version. See [`ClusterView::leader`].
    #[must_use]
    pub fn leader(&self) -> Option<MembershipEntry> {
        self.view().leader().cloned()
    }

    /// The Active silo that owns a key, by rendezvous hashing over the newest view. To write as the
    /// owner, take owner and token from the [confirmed view](Self::confirmed_view): see
    /// [`ClusterView::owner`].
    #[must_use]
    pub fn owner(&self, key: impl AsRef<[u8]>) -> Option<MembershipEntry> {
        self.view().owner(key).cloned()
    }

    /// Table id and version of the newest [confirmed view](Self::confirmed_view), by which the
    /// owner must be chosen, too: see [`FencingToken`] and the [example](crate#fencing). No message
    /// of another silo moves it.
    #[must_use]
    pub fn fencing_token(&self) -> FencingToken {
        let view = self.confirmed_view();
        FencingToken {
            table_id: view.table_id(),
            version: view.version(),
        }
    }

    /// Waits for a view that satisfies `predicate`, the current one or a newer one; gives that
    /// view.
    ///
    /// # Errors
    /// [`WaitError::TimedOut`], or [`WaitError::Stopped`] if the silo stopped before. Cancel safe.
    pub async fn wait_for(
        &self,
        mut predicate: impl FnMut(&ClusterView) -> bool,
        timeout: Duration,
    ) -> Result<ClusterView, WaitError> {
        let mut version = 0;
        let mut views = self.views();
        let found = tokio::time::timeout(timeout, async {
            while let Some(view) = views.next().await {
                version = view.version();
                if predicate(&view) {
                    return Some(view);
                }
            }
            None
        });
        match found.await {
            Ok(Some(view)) => Ok(view),
            Ok(None) => Err(WaitError::Stopped(Box::new(self.terminated().await))),
            Err(_) => Err(WaitError::TimedOut {
                waited: timeout,
                version,
            }),
        }
    }

    /// Reads the table until the confirmed view has at least version `at_least`; without one, until
    /// it is as recent as the table at the time of the call. Gives the
    /// [confirmed view](Self::confirmed_view). It ends after one successful read, even if the
    /// version is lower: compare.
    ///
    /// # Errors
    /// [`RequestError`]. Cancellation: the read may still happen.
    pub async fn refresh(&self, at_least: Option<u64>) -> Result<ClusterView, RequestError> {
        let (reply, answer) = oneshot::channel();
        self.ask(Request::Refresh { at_least, reply }, answer)
            .await?
            .map_err(RequestError::Table)?;
        Ok(self.confirmed_view())
    }

    /// Ends a silo without a vote: its row becomes Dead, cause `evicted`, with `reason` and this
    /// silo's address in it. The silo stops when it finds out. For operators, and for applications
    /// that know for certain.
    ///
    /// Returns the version of that commit, or none if the silo was Dead already. While the table is
    /// down the call waits: bound it with a timeout.
    ///
    /// # Errors
    /// [`RequestError`]; [`RequestError::Refused`] if the silo has no row, or the row cannot be
    /// changed. Cancellation: the eviction may still happen.
    pub async fn evict(
        &self,
        silo: SiloAddress,
        reason: impl Into<String>,
    ) -> Result<Option<u64>, RequestError> {
        let (reply, answer) = oneshot::channel();
        self.ask(
            Request::Evict {
                silo,
                reason: reason.into(),
                reply,
            },
            answer,
        )
        .await?
        .map_err(RequestError::Refused)
    }

    async fn ask<T>(
        &self,
        request: Request,
        answer: oneshot::Receiver<T>,
    ) -> Result<T, RequestError> {
        let stopped = |end| Err(RequestError::Stopped(Box::new(end)));
        if self.inner.requests.send(request).await.is_err() {
            return stopped(self.terminated().await);
        }
        // A request may enter the queue while the driver ends; then it is never handled.
        let answer = tokio::select! {
            biased;
            answer = answer => answer,
            end = self.terminated() => return stopped(end),
        };
        answer.or_else(|_| match self.inner.observed.ended() {
            Some(end) => stopped(end),
            // The driver dropped only this request.
            None => Err(RequestError::TooMany),
        })
    }

    /// Reports that `from` answered, on a connection of the application's own, a request that was
    /// sent at `asked`. That is evidence of life: it suppresses a vote after a failed probe that
    /// began before `asked`. Never waits; dropped when the driver is busy.
    pub fn heard_from(&self, from: SiloAddress, asked: Instant) {
        let asked = self.inner.observed.clock.at_std(asked);
        let _: Result<(), TrySendError<Request>> =
            self.inner.requests.try_send(Request::Heard { from, asked });
    }

    /// How the silo is doing, for probes and dashboards: see [`Health`].
    #[must_use]
    pub fn health(&self) -> Health {
        self.inner.observed.health()
    }

    /// This process's monotonic time, to compare with [`ClusterView::confirmed_at`]: a lease of
    /// length `d` holds while `silo.now().since(at) < d` for the time `at` of the view by which it
    /// was taken. On Linux and Android it includes the time in which the machine is suspended.
    #[must_use]
    pub fn now(&self) -> MonoTime {
        self.inner.observed.clock.mono()
    }

    /// Waits for the end of the silo; says why: it left, or the table says that it is Dead (cause,
    /// votes, evidence). It never ends the process: an application that cannot continue without
    /// membership should exit when this returns, and be started again.
    ///
    /// If the silo's tokio runtime is shut down, this gives `Left { clean: false }`. Cancel safe.
    pub async fn terminated(&self) -> Termination {
        self.inner.observed.subscriber.termination().await
    }
}

#[cfg(feature = "http")]
impl Silo {
    pub(crate) fn observed(&self) -> Observed {
        self.inner.observed.clone()
    }
}

impl fmt::Debug for Silo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = *self.inner.observed.subscriber.state.borrow();
        f.debug_struct("Silo")
            .field("me", &self.inner.observed.me)
            .field("status", &state.status)
            .finish_non_exhaustive()
    }
}
