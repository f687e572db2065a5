//! The handle of a running silo.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use membership_core::intent::Answer;
use membership_core::protocol::Termination;
use membership_core::{
    Change, ClusterName, ClusterView, FencingToken, MembershipEntry, MembershipTable, MonoTime,
    SiloAddress, SiloStatus,
};
use tokio::sync::mpsc::error::TrySendError;
use tokio::sync::{mpsc, oneshot, watch};

use super::builder::SiloBuilder;
use super::clock::Clock;
use super::driver::SILENT;
use super::error::{RequestError, WaitError};
use super::health::Health;
use super::leave::LeaveGuard;
use super::request::{Request, Stage};
use super::state::Told;
use super::views::Views;

/// A running silo of this process. Clones are handles of the same silo.
///
/// When the last handle is dropped the silo stops in the background, without draining: the others see it as left. (A [`Views`] stream is no
/// handle.) When the tokio runtime is shut down under it, its row stays as it is, and the others find out as they would after a crash.
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
    inner: Arc<Inner>,
}

struct Inner {
    told: Told,
    requests: mpsc::Sender<Request>,
    /// Its end tells the driver that the last handle is gone.
    stage: watch::Sender<Stage>,
    clock: Clock,
    cluster: ClusterName,
    /// What was true when the silo became Active, for the case that nothing newer is there.
    me: SiloAddress,
    first: ClusterView,
}

/// A driver that runs, before it is known to be Active. Dropped, it stops the silo.
pub(super) struct Starting {
    pub(super) told: Told,
    pub(super) requests: mpsc::Sender<Request>,
    pub(super) stage: watch::Sender<Stage>,
    pub(super) cluster: ClusterName,
}

impl Starting {
    /// Waits until the silo is Active, or has ended. Cancel safe; dropping the future drops the silo.
    pub(super) async fn active(self) -> Result<Silo, Termination> {
        let mut state = self.told.state.clone();
        let mut view = self.told.view.clone();
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
                end = self.told.termination() => return Err(end),
                found = active => found,
            }
        };
        let Some((me, first)) = found else {
            return Err(self.told.termination().await);
        };
        let Self {
            told,
            requests,
            stage,
            cluster,
        } = self;
        Ok(Silo {
            inner: Arc::new(Inner {
                told,
                requests,
                stage,
                clock: Clock::new(),
                cluster,
                me,
                first,
            }),
        })
    }
}

impl Silo {
    /// Describes a silo of the cluster that `table` belongs to. Takes a table or an `Arc` of one, also of a `dyn MembershipTable`.
    pub fn builder(table: impl MembershipTable) -> SiloBuilder {
        SiloBuilder::new(table)
    }

    /// This silo's address: where it is dialled and which start of the process it is.
    #[must_use]
    pub fn me(&self) -> SiloAddress {
        self.inner.me
    }

    /// The cluster it is in.
    #[must_use]
    pub fn cluster(&self) -> &ClusterName {
        &self.inner.cluster
    }

    /// The newest view. Cheap: no lock is held, nothing is copied but a few pointers. After the end, the last one there was.
    #[must_use]
    pub fn view(&self) -> ClusterView {
        let newest = self.inner.told.view.borrow().clone();
        newest.unwrap_or_else(|| self.inner.first.clone())
    }

    /// The views as a stream, the current one first.
    #[must_use]
    pub fn views(&self) -> Views {
        Views::new(self.inner.told.view.clone())
    }

    /// What changed from `older` to the newest view. See [`ClusterView::changes_since`].
    #[must_use]
    pub fn changes_since(&self, older: &ClusterView) -> Vec<Change> {
        self.view().changes_since(older)
    }

    /// What the newest view says of a silo; none when it has no row.
    #[must_use]
    pub fn get(&self, silo: &SiloAddress) -> Option<MembershipEntry> {
        self.view().get(silo).cloned()
    }

    /// The Active silo that became active at the lowest version. See [`ClusterView::leader`].
    #[must_use]
    pub fn leader(&self) -> Option<MembershipEntry> {
        self.view().leader().cloned()
    }

    /// The Active silo that owns a key, by rendezvous hashing over the newest view. See [`ClusterView::owner`]: fence what is written.
    #[must_use]
    pub fn owner(&self, key: impl AsRef<[u8]>) -> Option<MembershipEntry> {
        self.view().owner(key).cloned()
    }

    /// Table id and version of the newest view: see [`FencingToken`] and the [example](crate#fencing).
    #[must_use]
    pub fn fencing_token(&self) -> FencingToken {
        self.view().fencing_token()
    }

    /// Waits for a view that satisfies `predicate`, which is asked about the current view and about newer ones; gives that view.
    ///
    /// # Errors
    /// [`WaitError::TimedOut`], or [`WaitError::Stopped`] when the silo ended before. Cancel safe.
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

    /// Reads the table, so that the view is at least at version `at_least`, or as recent as the table at the time of the call when that
    /// is none; gives the version of the view then. One read that succeeds ends it, reached or not: compare.
    ///
    /// # Errors
    /// [`RequestError`]. Cancellation: the read may still happen.
    pub async fn refresh(&self, at_least: Option<u64>) -> Result<u64, RequestError> {
        let (reply, answer) = oneshot::channel();
        self.ask(Request::Refresh { at_least, reply }, answer)
            .await?
            .map_err(RequestError::Table)
    }

    /// Ends a silo without a vote: its row becomes Dead, cause `evicted`, with `reason` and this silo's address in it; the silo stops when
    /// it finds out. For operators, and for applications that know for certain. Waits until that is in the table, or refused; with the
    /// table down it waits until it is back: bound it with a timeout.
    ///
    /// # Errors
    /// [`RequestError`]. Cancellation: it may still happen.
    pub async fn evict(
        &self,
        silo: SiloAddress,
        reason: impl Into<String>,
    ) -> Result<Answer, RequestError> {
        let (reply, answer) = oneshot::channel();
        self.ask(
            Request::Evict {
                silo,
                reason: reason.into(),
                reply,
            },
            answer,
        )
        .await
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
        // A request that slips into the queue while the driver ends is never looked at: the end is an answer too.
        let answer = tokio::select! {
            biased;
            answer = answer => answer,
            end = self.terminated() => return stopped(end),
        };
        answer.or_else(|_| match self.inner.told.ended() {
            Some(end) => stopped(end),
            // The driver hung up on this request alone.
            None => Err(RequestError::TooMany),
        })
    }

    /// Tells the protocol that `from` answered, on a connection of the application's own, something that was sent at `asked`. It is
    /// evidence of life, and suppresses a vote when a probe that began before `asked` failed. Never waits; dropped when the driver is busy.
    pub fn heard_from(&self, from: SiloAddress, asked: Instant) {
        let asked = self.inner.clock.at_std(asked);
        let _: Result<(), TrySendError<Request>> =
            self.inner.requests.try_send(Request::Heard { from, asked });
    }

    /// How the silo is doing, and which of it feeds which probe: see [`Health`].
    #[must_use]
    pub fn health(&self) -> Health {
        let state = *self.inner.told.state.borrow();
        let now = self.inner.clock.mono();
        let ended = self.inner.told.ended().is_some();
        let leaving = *self.inner.stage.borrow() > Stage::Running;
        Health {
            score: state.score.score,
            local: state.score.local,
            status: if ended {
                SiloStatus::Dead
            } else {
                state.status
            },
            view_age: now.since(state.view_at),
            table_age: now.since(self.view().confirmed_at()),
            table: state.table,
            ready: !ended && !leaving && state.status == SiloStatus::Active && !state.suspended,
            live: !ended && now.since(self.inner.told.beat()) < SILENT,
            suspended: state.suspended,
        }
    }

    /// This process's monotonic time, to compare with [`ClusterView::confirmed_at`]: a lease of length `d` holds while
    /// `silo.now().since(view.confirmed_at()) < d`. On Linux and Android it goes on while the machine is suspended.
    #[must_use]
    pub fn now(&self) -> MonoTime {
        self.inner.clock.mono()
    }

    /// Publishes that this silo is leaving (ShuttingDown), so that it gets no new work; waits until that is in the table, or until the
    /// silo ended. Drain, then finish with the guard. Leaving cannot be taken back.
    ///
    /// Takes no longer than [`Config::leave_timeout`](membership_core::Config::leave_timeout), also with the table down.
    /// Cancellation: leaving has begun nevertheless, and waits for another `begin_leave`, a `leave`, or the last handle to go.
    pub async fn begin_leave(&self) -> LeaveGuard {
        self.ask_stage(Stage::Leave);
        let mut state = self.inner.told.state.clone();
        let version = tokio::select! {
            biased;
            state = state.wait_for(|s| s.leaving.is_some()) => state.ok().and_then(|s| s.leaving).flatten(),
            _ = self.terminated() => None,
        };
        LeaveGuard::new(self.clone(), version)
    }

    /// Leaves without draining, and waits for the end: as [`begin_leave`](Self::begin_leave) and [`LeaveGuard::finish`] in one.
    ///
    /// Cancellation: the leave goes on in the background.
    pub async fn leave(&self) -> Termination {
        self.ask_stage(Stage::Finish);
        self.terminated().await
    }

    /// Only ever forward; without effect after the end.
    pub(super) fn ask_stage(&self, wanted: Stage) {
        self.inner.stage.send_if_modified(|stage| {
            let forward = wanted > *stage;
            if forward {
                *stage = wanted;
            }
            forward
        });
    }

    /// Waits for the end of the silo and tells why: it left, or the table says that it is Dead (cause, votes, evidence). It never ends the
    /// process; an application that cannot go on without membership should exit when this returns, and be started again.
    ///
    /// A tokio runtime that is shut down under the silo counts as `Left { clean: false }`. Cancel safe.
    pub async fn terminated(&self) -> Termination {
        self.inner.told.termination().await
    }
}

impl fmt::Debug for Silo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = *self.inner.told.state.borrow();
        f.debug_struct("Silo")
            .field("me", &self.inner.me)
            .field("status", &state.status)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use membership_core::{Rows, SharedSettings, Snapshot, TableId, VersionRow};

    use super::super::state;
    use super::*;

    #[tokio::test]
    async fn a_request_that_nobody_looks_at_ends_with_the_silo() {
        let (teller, told) = state::channel();
        let (requests, queue) = mpsc::channel(4);
        let (stage, _stages) = watch::channel(Stage::Running);
        teller.change(|state| {
            state.status = SiloStatus::Active;
            state.me = Some(SiloAddress::new([127, 0, 0, 1].into(), 1, 1));
        });
        let row = VersionRow::initial(TableId::new(1), SharedSettings::default());
        let token = row.token(&[]);
        teller.publish(
            ClusterView::new(Snapshot {
                version_row: Arc::new(row),
                token,
                rows: Rows::new(),
            }),
            MonoTime::ZERO,
        );
        let cluster = "test".parse().unwrap();
        let silo = Starting {
            told,
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
        teller.end.send_replace(Some(end.clone()));
        assert_eq!(
            asking.await.unwrap(),
            Err(RequestError::Stopped(Box::new(end)))
        );
    }
}
