//! Hints: "the version may have moved".
//!
//! A task listens to the store while at least one hint stream exists, reconnects with a back-off,
//! and ends with the last stream or with the table. A lost hint costs only time, because silos also
//! read at intervals.

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use futures_util::{StreamExt as _, stream};
use membership_core::{HintStream, TableError, TableErrorKind};
use tokio::runtime::Handle;
use tokio::sync::watch;
use tokio::task::AbortHandle;
use tokio::time::Instant;

/// The pause before the first reconnection. It doubles with each attempt.
const FIRST_PAUSE: Duration = Duration::from_millis(50);
/// The longest pause: a server that is back must be found soon.
const LONGEST_PAUSE: Duration = Duration::from_secs(5);
/// The pause after a refusal: an operator may grant the permission later.
const DENIED_PAUSE: Duration = Duration::from_secs(60);

/// Sends hints to every stream of one table. Clones send to the same streams. Hints that a stream
/// has not taken yet become one.
///
/// ```
/// use futures_util::{FutureExt as _, StreamExt as _};
/// use membership_provider::Notifier;
///
/// let notifier = Notifier::default();
/// let mut hints = notifier.subscribe();
/// notifier.notify();
/// notifier.notify();
/// assert_eq!(hints.next().now_or_never(), Some(Some(())));
/// assert_eq!(hints.next().now_or_never(), None);
/// drop(notifier);
/// assert_eq!(hints.next().now_or_never(), Some(None));
/// ```
#[derive(Clone, Debug)]
pub struct Notifier {
    hints: watch::Sender<u64>,
    /// Whether the source has connected since the last pause.
    connected: Arc<AtomicBool>,
}

impl Default for Notifier {
    fn default() -> Self {
        Self {
            hints: watch::Sender::new(0),
            connected: Arc::default(),
        }
    }
}

impl Notifier {
    /// The version may have moved.
    pub fn notify(&self) {
        self.hints
            .send_modify(|hints| *hints = hints.wrapping_add(1));
    }

    /// The source listens from now on. Notifies, because changes before this moment were not heard,
    /// and resets the back-off.
    pub fn connected(&self) {
        self.connected.store(true, Ordering::Relaxed);
        self.notify();
    }

    /// A stream of hints. It ends when the last clone of this notifier is dropped.
    #[must_use]
    pub fn subscribe(&self) -> HintStream {
        let hints = stream::unfold(self.hints.subscribe(), |mut hints| async move {
            hints.changed().await.ok()?;
            Some(((), hints))
        });
        // Without `fuse`, a poll after the end would panic.
        Box::pin(hints.fuse())
    }

    /// Whether a stream exists.
    #[must_use]
    pub fn has_listeners(&self) -> bool {
        !self.hints.is_closed()
    }
}

/// How a provider listens to its store.
///
/// ```
/// use membership_core::{Operation, TableError, TableErrorKind};
/// use membership_provider::{HintSource, Notifier};
///
/// struct Subscription;
///
/// #[async_trait::async_trait]
/// impl HintSource for Subscription {
///     async fn listen(&self, notifier: &Notifier) -> TableError {
///         // Connect and subscribe to the store, then:
///         notifier.connected();
///         // For each message:
///         notifier.notify();
///         TableError::new(TableErrorKind::Unavailable, Operation::Connect, "mystore", "the connection ended")
///     }
/// }
/// ```
#[async_trait]
pub trait HintSource: Send + Sync + 'static {
    /// Listens over one connection until it ends, and returns why it ended. Calls
    /// [`Notifier::connected`] when it listens, and [`Notifier::notify`] for each change. Is called
    /// again after a pause. Cancelled when nobody listens any more.
    ///
    /// `PermissionDenied` is logged once as a warning and tried again after one minute; everything
    /// else is logged at debug level.
    async fn listen(&self, notifier: &Notifier) -> TableError;
}

/// The hints of one table: a task that listens to a [`HintSource`] while there is a stream.
/// Dropping it ends the streams.
///
/// ```
/// use membership_core::{Operation, TableError, TableErrorKind};
/// use membership_provider::{HintSource, Hints, Notifier};
/// # struct Subscription;
/// # #[async_trait::async_trait]
/// # impl HintSource for Subscription {
/// #     async fn listen(&self, notifier: &Notifier) -> TableError {
/// #         notifier.connected();
/// #         std::future::pending().await
/// #     }
/// # }
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() {
/// use futures_util::StreamExt as _;
///
/// let hints = Hints::new("billing/blue", Subscription);
/// let mut stream = hints.listen().expect("there is a runtime");
/// assert_eq!(stream.next().await, Some(()));
/// drop(hints);
/// assert_eq!(stream.next().await, None);
/// # }
/// ```
pub struct Hints {
    source: Arc<dyn HintSource>,
    cluster: String,
    notifier: Notifier,
    /// The task that listens, while there is a stream.
    task: Arc<Mutex<Option<AbortHandle>>>,
}

impl Hints {
    /// Hints of `cluster` (for logs) from `source`. Nothing is started before the first
    /// [`listen`](Self::listen).
    #[must_use]
    pub fn new(cluster: impl fmt::Display, source: impl HintSource) -> Self {
        Self {
            source: Arc::new(source),
            cluster: cluster.to_string(),
            notifier: Notifier::default(),
            task: Arc::default(),
        }
    }

    /// A stream of hints; `None` outside of a tokio runtime.
    #[must_use]
    pub fn listen(&self) -> Option<HintStream> {
        let Ok(runtime) = Handle::try_current() else {
            tracing::warn!(cluster = self.cluster, "hints need a tokio runtime");
            return None;
        };
        // The task decides under the same lock whether it ends, so no stream is left without a
        // task.
        let mut task = self.task.lock().unwrap_or_else(PoisonError::into_inner);
        let stream = self.notifier.subscribe();
        if task.as_ref().is_none_or(AbortHandle::is_finished) {
            let (source, notifier) = (Arc::clone(&self.source), self.notifier.clone());
            let (cluster, running) = (self.cluster.clone(), Arc::clone(&self.task));
            let listening = runtime.spawn(async move {
                loop {
                    tokio::select! {
                        () = listen_forever(&*source, &notifier, &cluster) => {}
                        () = notifier.hints.closed() => {}
                    }
                    let mut running = running.lock().unwrap_or_else(PoisonError::into_inner);
                    if !notifier.has_listeners() {
                        *running = None;
                        return;
                    }
                }
            });
            *task = Some(listening.abort_handle());
        }
        Some(stream)
    }
}

impl Drop for Hints {
    fn drop(&mut self) {
        let mut task = self.task.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(task) = task.take() {
            // Drops the task's notifier, which is the last one: the streams end.
            task.abort();
        }
    }
}

impl fmt::Debug for Hints {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Hints")
            .field("cluster", &self.cluster)
            .finish_non_exhaustive()
    }
}

/// Listens over one connection after the other.
async fn listen_forever(source: &dyn HintSource, notifier: &Notifier, cluster: &str) {
    let (mut pause, mut denied, mut warned) = (FIRST_PAUSE, false, false);
    loop {
        let began = Instant::now();
        let ended = source.listen(notifier).await;
        let was_connected = notifier.connected.swap(false, Ordering::Relaxed);
        // A connection that is cut as soon as it is made must not be made twenty times a second.
        if was_connected && began.elapsed() > LONGEST_PAUSE {
            pause = FIRST_PAUSE;
        }
        let denied_before = denied && !was_connected;
        denied = ended.kind() == TableErrorKind::PermissionDenied;
        if denied && denied_before {
            if !warned {
                tracing::warn!(cluster, error = %ended, "no hints: changes are noticed by reading only");
                warned = true;
            }
            pause = DENIED_PAUSE;
        } else {
            // The first refusal may be a credential that was just replaced.
            tracing::debug!(cluster, error = %ended, "hints are interrupted");
        }
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(LONGEST_PAUSE);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicUsize;

    use super::*;
    use membership_core::Operation;

    fn ended(kind: TableErrorKind) -> TableError {
        TableError::new(kind, Operation::Connect, "test", "the connection ended")
    }

    /// Connects and ends at once, the first `failures` times without connecting.
    struct Flaky {
        failures: usize,
        kind: TableErrorKind,
        listened: Arc<AtomicUsize>,
    }

    #[async_trait]
    impl HintSource for Flaky {
        async fn listen(&self, notifier: &Notifier) -> TableError {
            if self.listened.fetch_add(1, Ordering::Relaxed) < self.failures {
                return ended(self.kind);
            }
            notifier.connected();
            std::future::pending().await
        }
    }

    async fn time_to_first_hint(failures: usize, kind: TableErrorKind) -> Duration {
        let source = Flaky {
            failures,
            kind,
            listened: Arc::default(),
        };
        let hints = Hints::new("blue", source);
        let began = Instant::now();
        hints.listen().unwrap().next().await.unwrap();
        began.elapsed()
    }

    #[tokio::test(start_paused = true)]
    async fn reconnection_backs_off() {
        let time = |failures| time_to_first_hint(failures, TableErrorKind::Unavailable);
        assert_eq!(time(0).await.as_millis(), 0);
        assert_eq!(time(2).await.as_millis(), 150);
        assert!(time(20).await > 10 * LONGEST_PAUSE);
        let denied = |failures| time_to_first_hint(failures, TableErrorKind::PermissionDenied);
        assert_eq!(denied(1).await, FIRST_PAUSE);
        assert!(denied(2).await >= DENIED_PAUSE);
    }

    /// Connects each time, and is cut at once.
    struct Cut(Arc<AtomicUsize>);

    #[async_trait]
    impl HintSource for Cut {
        async fn listen(&self, notifier: &Notifier) -> TableError {
            self.0.fetch_add(1, Ordering::Relaxed);
            notifier.connected();
            ended(TableErrorKind::Unavailable)
        }
    }

    #[tokio::test(start_paused = true)]
    async fn connections_that_are_cut_at_once_back_off_too() {
        let listened = Arc::new(AtomicUsize::new(0));
        let hints = Hints::new("blue", Cut(Arc::clone(&listened)));
        let _stream = hints.listen().unwrap();
        tokio::time::sleep(Duration::from_secs(60)).await;
        let times = listened.load(Ordering::Relaxed);
        assert!((10..30).contains(&times), "{times} connections a minute");
    }

    #[tokio::test]
    async fn the_task_ends_with_the_last_stream_and_starts_again() {
        let listened = Arc::new(AtomicUsize::new(0));
        let source = Flaky {
            failures: 0,
            kind: TableErrorKind::Busy,
            listened: Arc::clone(&listened),
        };
        let hints = Hints::new("blue", source);
        for round in 1..=3 {
            let (mut one, mut other) = (hints.listen().unwrap(), hints.listen().unwrap());
            assert_eq!((one.next().await, other.next().await), (Some(()), Some(())));
            assert_eq!(listened.load(Ordering::Relaxed), round);
            drop((one, other));
            while hints.task.lock().unwrap().is_some() {
                tokio::task::yield_now().await;
            }
        }
        let mut last = hints.listen().unwrap();
        assert_eq!(last.next().await, Some(()));
        drop(hints);
        assert_eq!((last.next().await, last.next().await), (None, None));
    }

    #[test]
    fn there_are_no_hints_without_a_runtime() {
        let source = Flaky {
            failures: 0,
            kind: TableErrorKind::Busy,
            listened: Arc::default(),
        };
        assert!(Hints::new("blue", source).listen().is_none());
    }
}
