//! "The version may have moved": what commits publish, heard over a connection of its own.
//!
//! It is opened when somebody listens and closed when nobody does any more. Redis keeps no messages for listeners that are away, so that
//! the bell rings once after each (re)subscription. Losing hints costs only time.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures_util::{StreamExt as _, stream};
use membership_core::{HintStream, TableError, TableErrorKind};
use redis::{PushInfo, PushKind};
use tokio::runtime::Handle;
use tokio::sync::{Notify, watch};
use tokio::task::AbortHandle;

use crate::dial::Conn;
use crate::error::{Refusal, error};
use crate::link::Link;

/// The first pause before subscribing anew, and the longest.
const PAUSE: Duration = Duration::from_millis(50);
const LONGEST_PAUSE: Duration = Duration::from_secs(5);
/// How often a user who may not subscribe tries again: somebody may have granted it.
const DENIED_PAUSE: Duration = Duration::from_secs(60);
/// How often a silent connection is asked whether it still is one.
const PING: Duration = Duration::from_secs(15);

pub(crate) struct Hints {
    link: Arc<Link>,
    channel: String,
    cluster: String,
    bell: watch::Sender<u64>,
    /// The task that listens, while anybody does.
    task: Arc<Mutex<Option<AbortHandle>>>,
}

impl Hints {
    pub(crate) fn new(link: Arc<Link>, channel: String, cluster: String) -> Self {
        Self {
            link,
            channel,
            cluster,
            bell: watch::Sender::new(0),
            task: Arc::default(),
        }
    }

    /// A stream of hints; it ends when the table is dropped. None without a runtime to listen on.
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
            let (channel, cluster) = (self.channel.clone(), self.cluster.clone());
            let listening = runtime.spawn(async move {
                loop {
                    tokio::select! {
                        () = subscribe(&link, &bell, &channel, &cluster) => {}
                        () = bell.closed() => {}
                    }
                    let mut running = running.lock().unwrap_or_else(PoisonError::into_inner);
                    if bell.is_closed() {
                        *running = None;
                        return;
                    }
                }
            });
            *task = Some(listening.abort_handle());
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

/// Listens for ever, over one connection after the other.
async fn subscribe(link: &Link, bell: &watch::Sender<u64>, channel: &str, cluster: &str) {
    let (mut pause, mut warned) = (PAUSE, false);
    loop {
        let result = one_connection(link, bell, channel, &mut pause).await;
        if result.kind() == TableErrorKind::PermissionDenied {
            if !warned {
                tracing::warn!(cluster, error = %result, "no hints: changes are noticed by reading only");
                warned = true;
            }
            pause = DENIED_PAUSE;
        } else {
            tracing::debug!(cluster, error = %result, "hints are interrupted");
        }
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(LONGEST_PAUSE);
    }
}

/// Listens until the connection ends, and says why it did.
async fn one_connection(
    link: &Link,
    bell: &watch::Sender<u64>,
    channel: &str,
    pause: &mut Duration,
) -> TableError {
    let (conn, ended) = match open(link, bell).await {
        Ok(both) => both,
        Err(e) => return e,
    };
    let mut raw = conn.raw();
    let Ok(subscribed) = tokio::time::timeout(PING, raw.subscribe(channel)).await else {
        return error(
            TableErrorKind::Unavailable,
            format!("{} does not answer SUBSCRIBE", conn.at),
        );
    };
    if let Err(e) = subscribed {
        return match Refusal::of(&e) {
            Some(refusal) => refusal
                .into_error(&link.dialer().secrets)
                .at(conn.at.to_string()),
            None => link.dialer().not_connected(&conn.at, &e),
        };
    }
    *pause = PAUSE;
    // What was published before this is lost.
    ring(bell);
    let ping = redis::cmd("PING");
    while conn.is_alive() {
        tokio::select! {
            () = ended.notified() => break,
            () = tokio::time::sleep(PING) => match tokio::time::timeout(PING, conn.command(&ping)).await {
                Ok(Ok(_)) => {}
                Ok(Err(_)) | Err(_) => break,
            },
        }
    }
    error(
        TableErrorKind::Unavailable,
        format!("the connection to {} has ended", conn.at),
    )
}

async fn open(link: &Link, bell: &watch::Sender<u64>) -> Result<(Conn, Arc<Notify>), TableError> {
    let mut last = error(TableErrorKind::Unavailable, "no server is named");
    for at in link.place().address(link.dialer()).await? {
        let (bell, ended) = (bell.clone(), Arc::new(Notify::new()));
        let over = Arc::clone(&ended);
        let heard = move |info: PushInfo| match info.kind {
            PushKind::Message => ring(&bell),
            PushKind::Disconnection => over.notify_one(),
            _ => {}
        };
        match link.dialer().open(&at, heard).await {
            Ok(conn) => return Ok((conn, ended)),
            Err(e) => last = e,
        }
    }
    Err(last)
}
