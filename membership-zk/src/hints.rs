//! "The version may have moved": a persistent watch of the version row's znode, over the table's own session.
//!
//! A watch ends with the connection it was set over. The client means to set it again over the next one, and does so for watches of a single
//! event only; so it is set again here, and then the bell rings, because what happened meanwhile is not told (ZOOKEEPER-4698). Losing hints costs
//! only time.

use std::panic::AssertUnwindSafe;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures_util::{FutureExt as _, StreamExt as _, stream};
use membership_core::{HintStream, TableError, TableErrorKind};
use tokio::runtime::Handle;
use tokio::sync::watch;
use tokio::task::AbortHandle;
use zookeeper_client::{AddWatchMode, EventType, PersistentWatcher, SessionState};

use crate::error::{error, failed};
use crate::link::{Link, Session};

/// The first pause before watching anew, and the longest.
const PAUSE: Duration = Duration::from_millis(50);
const LONGEST_PAUSE: Duration = Duration::from_secs(5);
/// How often a user who may not watch tries again: somebody may have granted it.
const DENIED_PAUSE: Duration = Duration::from_secs(60);

pub(crate) struct Hints {
    link: Arc<Link>,
    path: String,
    cluster: String,
    bell: watch::Sender<u64>,
    /// The task that watches, while anybody listens.
    task: Arc<Mutex<Option<AbortHandle>>>,
}

impl Hints {
    pub(crate) fn new(link: Arc<Link>, path: String, cluster: String) -> Self {
        Self {
            link,
            path,
            cluster,
            bell: watch::Sender::new(0),
            task: Arc::default(),
        }
    }

    /// A stream of hints; it ends when the table is dropped. None without a runtime to watch on.
    pub(crate) fn listen(&self) -> Option<HintStream> {
        let Ok(runtime) = Handle::try_current() else {
            tracing::warn!(
                cluster = self.cluster,
                "no hints: they need a tokio runtime"
            );
            return None;
        };
        // The task ends under the same lock, when it sees no listener.
        let mut task = self.task.lock().unwrap_or_else(PoisonError::into_inner);
        let listener = self.bell.subscribe();
        if task.as_ref().is_none_or(AbortHandle::is_finished) {
            let (link, bell, running) = (
                Arc::clone(&self.link),
                self.bell.clone(),
                Arc::clone(&self.task),
            );
            let (path, cluster) = (self.path.clone(), self.cluster.clone());
            let watching = runtime.spawn(async move {
                loop {
                    tokio::select! {
                        () = keep_watching(&link, &bell, &path, &cluster) => {}
                        () = bell.closed() => {}
                    }
                    let mut running = running.lock().unwrap_or_else(PoisonError::into_inner);
                    if bell.is_closed() {
                        *running = None;
                        return;
                    }
                }
            });
            *task = Some(watching.abort_handle());
        }
        drop(task);
        let hints = stream::unfold(listener, |mut listener| async move {
            listener.changed().await.ok()?;
            Some(((), listener))
        });
        // Whoever asks after its end is told so again.
        Some(Box::pin(hints.fuse()))
    }
}

impl Drop for Hints {
    fn drop(&mut self) {
        if let Some(task) = self
            .task
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take()
        {
            // The streams end with the last sender.
            task.abort();
        }
    }
}

fn ring(bell: &watch::Sender<u64>) {
    bell.send_modify(|times| *times = times.wrapping_add(1));
}

/// Watches for ever, over one session after the other.
async fn keep_watching(link: &Link, bell: &watch::Sender<u64>, path: &str, cluster: &str) {
    let (mut pause, mut warned) = (PAUSE, false);
    loop {
        // A watcher whose session ended without a word panics.
        let watched = AssertUnwindSafe(one_session(link, bell, path, &mut pause))
            .catch_unwind()
            .await;
        let ended = watched.unwrap_or_else(|_| {
            error(
                TableErrorKind::Unavailable,
                "the session ended without a word",
            )
        });
        if ended.kind() == TableErrorKind::PermissionDenied {
            if !warned {
                tracing::warn!(cluster, error = %ended, "no hints: changes are noticed by reading only");
                warned = true;
            }
            pause = DENIED_PAUSE;
        } else {
            tracing::debug!(cluster, error = %ended, "hints are interrupted");
        }
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(LONGEST_PAUSE);
    }
}

/// Watches until the session ends, and says why it did.
async fn one_session(
    link: &Link,
    bell: &watch::Sender<u64>,
    path: &str,
    pause: &mut Duration,
) -> TableError {
    let session = match link.session(link.deadline()).await {
        Ok(session) => session,
        Err(e) => return e,
    };
    let mut watcher = match set(link, &session, path).await {
        Ok(watcher) => watcher,
        Err(e) => return e,
    };
    *pause = PAUSE;
    loop {
        // What happened before the watch was set was not told.
        ring(bell);
        let event = watcher.changed().await;
        if event.event_type != EventType::Session {
            continue;
        }
        match event.session_state {
            // The former watcher is dropped after there is another one: the client takes the watch away with the last.
            SessionState::SyncConnected => match set(link, &session, path).await {
                Ok(another) => watcher = another,
                Err(e) => return e,
            },
            state if state.is_terminated() => {
                return error(TableErrorKind::Unavailable, "the session has ended");
            }
            _ => {}
        }
    }
}

/// Sets the watch; the znode need not be there yet.
async fn set(link: &Link, session: &Session, path: &str) -> Result<PersistentWatcher, TableError> {
    let set = session.client.watch(path, AddWatchMode::Persistent);
    link.answer(session, link.deadline(), set)
        .await?
        .map_err(failed)
}
