//! "The version may have moved": questions that Consul answers when the mark of the version moves, or after a while.
//!
//! One is open while somebody listens. It says since when it asks, so that what happens between two of them is not missed. An index that
//! went back is that of another store, or of one that was restored, and means nothing. Losing hints costs only time.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures_util::{StreamExt as _, stream};
use membership_core::{HintStream, TableError, TableErrorKind};
use tokio::runtime::Handle;
use tokio::sync::watch;
use tokio::task::AbortHandle;
use tokio::time::Instant;

use crate::keys::path;
use crate::link::{Link, Request};

/// How long a question stays open. Consul adds up to a sixteenth, so that not all come back at once.
const WAIT: Duration = Duration::from_secs(60);
const WAIT_AND_MORE: Duration = Duration::from_secs(64);
/// The first pause before asking anew, and the longest.
const PAUSE: Duration = Duration::from_millis(50);
const LONGEST_PAUSE: Duration = Duration::from_secs(5);
/// How often somebody who may not ask tries again: somebody may have granted it.
const DENIED_PAUSE: Duration = Duration::from_secs(60);

pub(crate) struct Hints {
    link: Arc<Link>,
    /// The folder whose index moves with each commit.
    folder: String,
    cluster: String,
    bell: watch::Sender<u64>,
    /// The task that asks, while anybody listens.
    task: Arc<Mutex<Option<AbortHandle>>>,
}

impl Hints {
    pub(crate) fn new(link: Arc<Link>, folder: String, cluster: String) -> Self {
        Self {
            link,
            folder,
            cluster,
            bell: watch::Sender::new(0),
            task: Arc::default(),
        }
    }

    /// A stream of hints; it ends when the table is dropped. None without a runtime to ask on.
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
            let (folder, cluster) = (self.folder.clone(), self.cluster.clone());
            let asking = runtime.spawn(async move {
                loop {
                    tokio::select! {
                        () = watch_over(&link, &bell, &folder, &cluster) => {}
                        () = bell.closed() => {}
                    }
                    let mut running = running.lock().unwrap_or_else(PoisonError::into_inner);
                    if bell.is_closed() {
                        *running = None;
                        return;
                    }
                }
            });
            *task = Some(asking.abort_handle());
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

/// Asks for ever.
async fn watch_over(link: &Link, bell: &watch::Sender<u64>, folder: &str, cluster: &str) {
    let (mut since, mut pause, mut warned) = (0, PAUSE, false);
    loop {
        match ask(link, folder, since).await {
            Ok(index) => {
                pause = PAUSE;
                let moved = index != since;
                since = next(since, index);
                if moved {
                    bell.send_modify(|times| *times = times.wrapping_add(1));
                    continue;
                }
                // Nothing happened while the question was open; an answer that comes at once all the same must not make a busy loop.
                tokio::time::sleep(PAUSE).await;
            }
            Err(e) => {
                since = 0;
                if e.kind() == TableErrorKind::PermissionDenied {
                    if !warned {
                        tracing::warn!(cluster, error = %e, "no hints: changes are noticed by reading only");
                        warned = true;
                    }
                    pause = DENIED_PAUSE;
                } else {
                    tracing::debug!(cluster, error = %e, "hints are interrupted");
                }
                tokio::time::sleep(pause).await;
                pause = (pause * 2).min(LONGEST_PAUSE);
            }
        }
    }
}

/// Since when to ask next: from the beginning where the index went back or is none.
fn next(since: u64, index: u64) -> u64 {
    if index < since { 0 } else { index }
}

async fn ask(link: &Link, folder: &str, since: u64) -> Result<u64, TableError> {
    let wait = WAIT.as_secs();
    let query = format!(
        "/v1/kv/{}?recurse=&index={since}&wait={wait}s",
        path(folder)
    );
    let request = Request {
        path: query,
        ..Request::get(folder)
    };
    link.keys(&request, Instant::now() + WAIT_AND_MORE + link.timeout)
        .await
        .map(|(_, index)| index)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_index_that_went_back_means_nothing() {
        assert_eq!(
            (next(0, 7), next(7, 9), next(9, 9), next(9, 3), next(9, 0)),
            (7, 9, 9, 0, 0)
        );
        assert!(WAIT + WAIT / 16 <= WAIT_AND_MORE);
    }
}
