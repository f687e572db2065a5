//! "The version may have moved": a watch of the version row, over a connection of its own.
//!
//! It is opened when somebody listens and closed when nobody does any more. A watch begins with what comes next and never with the past, so
//! that no compaction of etcd's history is in its way; whatever ends one, the bell rings once when the next one has begun. Losing hints
//! costs only time.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures_util::{StreamExt as _, stream};
use membership_core::{HintStream, TableError, TableErrorKind};
use tokio::runtime::Handle;
use tokio::sync::watch;
use tokio::task::AbortHandle;

use crate::error::{Failure, error, innermost, refused};
use crate::link::Link;
use crate::wire::{Bytes, Range, Watch, WatchLine};

/// The first pause before watching anew, and the longest.
const PAUSE: Duration = Duration::from_millis(50);
const LONGEST_PAUSE: Duration = Duration::from_secs(5);
/// How often a user who may not watch tries again: somebody may have granted it.
const DENIED_PAUSE: Duration = Duration::from_secs(60);
/// A line holds what one commit did to the version row; longer ones are none of a watch.
const LONGEST_LINE: usize = 1 << 20;

pub(crate) struct Hints {
    link: Arc<Link>,
    key: Bytes,
    cluster: String,
    bell: watch::Sender<u64>,
    /// The task that listens, while anybody does.
    task: Arc<Mutex<Option<AbortHandle>>>,
}

impl Hints {
    pub(crate) fn new(link: Arc<Link>, key: Bytes, cluster: String) -> Self {
        Self {
            link,
            key,
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
            let (key, cluster) = (self.key.clone(), self.cluster.clone());
            let listening = runtime.spawn(async move {
                loop {
                    tokio::select! {
                        () = watch_on(&link, &bell, &key, &cluster) => {}
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

/// What the watches before have left.
struct Mood {
    /// How long until the next one.
    pause: Duration,
    /// Whether the last one was refused.
    denied: bool,
}

impl Mood {
    const NEW: Self = Self {
        pause: PAUSE,
        denied: false,
    };
}

/// Watches for ever, one watch after the other.
async fn watch_on(link: &Link, bell: &watch::Sender<u64>, key: &Bytes, cluster: &str) {
    let (mut mood, mut warned) = (Mood::NEW, false);
    loop {
        let result = one_watch(link, bell, key, &mut mood).await;
        let denied = result.kind() == TableErrorKind::PermissionDenied;
        if denied {
            // A token that is not known any more is refused in the same words as a user who may not: the first time another one is had.
            link.forget_token();
        } else {
            link.distrust();
        }
        if denied && mood.denied {
            if !warned {
                tracing::warn!(cluster, error = %result, "no hints: changes are noticed by reading only");
                warned = true;
            }
            tokio::time::sleep(DENIED_PAUSE).await;
        } else {
            tracing::debug!(cluster, error = %result, "hints are interrupted");
            tokio::time::sleep(mood.pause).await;
        }
        mood = Mood {
            pause: (mood.pause * 2).min(LONGEST_PAUSE),
            denied,
        };
    }
}

/// Watches until the watch ends, and says why it did.
async fn one_watch(
    link: &Link,
    bell: &watch::Sender<u64>,
    key: &Bytes,
    mood: &mut Mood,
) -> TableError {
    let unavailable = |why: String| error(TableErrorKind::Unavailable, why);
    let mut response = match link
        .watch(&Watch {
            create_request: Range::one(key.clone()),
        })
        .await
    {
        Ok(response) => response,
        Err(e) => return e,
    };
    let mut lines = Lines::default();
    loop {
        match response.chunk().await {
            Ok(Some(chunk)) => {
                for line in lines.of(&chunk) {
                    match read(&line) {
                        Ok(Line::Begun) => {
                            *mood = Mood::NEW;
                            // What was changed before this is past.
                            ring(bell);
                        }
                        Ok(Line::Changed) => ring(bell),
                        Ok(Line::Nothing) => {}
                        Err(e) => return e,
                    }
                }
                if lines.rest.len() > LONGEST_LINE {
                    return unavailable("what comes is no watch of etcd".to_owned());
                }
            }
            Ok(None) => return unavailable("the watch has ended".to_owned()),
            Err(e) => return unavailable(format!("the watch has broken off ({})", innermost(&e))),
        }
    }
}

/// What comes in pieces, as lines.
#[derive(Default)]
struct Lines {
    rest: Vec<u8>,
}

impl Lines {
    fn of(&mut self, chunk: &[u8]) -> Vec<Vec<u8>> {
        self.rest.extend_from_slice(chunk);
        let Some(end) = self.rest.iter().rposition(|&byte| byte == b'\n') else {
            return Vec::new();
        };
        let rest = self.rest.split_off(end + 1);
        let whole = std::mem::replace(&mut self.rest, rest);
        whole
            .split(|&byte| byte == b'\n')
            .filter(|line| !line.is_empty())
            .map(<[u8]>::to_vec)
            .collect()
    }
}

enum Line {
    Begun,
    Changed,
    Nothing,
}

fn read(line: &[u8]) -> Result<Line, TableError> {
    let read: WatchLine = serde_json::from_slice(line).map_err(|_| {
        error(
            TableErrorKind::Unavailable,
            "what comes is no watch of etcd",
        )
    })?;
    if let Some(said) = read.error {
        return Err(match refused(&said) {
            Failure::Elsewhere(e) | Failure::Token(e) | Failure::Refused(e) => e,
            Failure::Lost(why) => error(TableErrorKind::Unavailable, why),
        });
    }
    let result = read.result.unwrap_or_default();
    if result.canceled {
        let denied = ["permission denied", "auth token", "user name is empty"]
            .iter()
            .any(|why| result.cancel_reason.contains(why));
        let kind = if denied {
            TableErrorKind::PermissionDenied
        } else {
            TableErrorKind::Unavailable
        };
        return Err(error(
            kind,
            format!("etcd has ended the watch ({})", result.cancel_reason),
        ));
    }
    Ok(if !result.events.is_empty() {
        Line::Changed
    } else if result.created {
        Line::Begun
    } else {
        Line::Nothing
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_come_in_any_pieces() {
        let text = b"one\ntwo\n\nthree\n";
        for size in 1..=text.len() {
            let mut lines = Lines::default();
            let all: Vec<Vec<u8>> = text
                .chunks(size)
                .flat_map(|chunk| lines.of(chunk))
                .collect();
            assert_eq!(
                all,
                [b"one".to_vec(), b"two".to_vec(), b"three".to_vec()],
                "in pieces of {size}"
            );
            assert!(lines.rest.is_empty());
        }
        let mut lines = Lines::default();
        assert!(lines.of(b"no end").is_empty() && lines.rest == b"no end");
    }

    #[test]
    fn ends_of_a_watch_are_told_apart() {
        let kind = |line: &str| read(line.as_bytes()).err().map(|e| e.kind());
        assert!(matches!(
            read(br#"{"result":{"created":true}}"#),
            Ok(Line::Begun)
        ));
        assert!(matches!(
            read(br#"{"result":{"events":[{"kv":{}}]}}"#),
            Ok(Line::Changed)
        ));
        assert!(matches!(
            read(br#"{"result":{"header":{}}}"#),
            Ok(Line::Nothing)
        ));
        let denied = r#"{"result":{"created":true,"canceled":true,"cancel_reason":"rpc error: code = PermissionDenied desc = etcdserver: permission denied"}}"#;
        assert_eq!(kind(denied), Some(TableErrorKind::PermissionDenied));
        assert_eq!(
            kind(r#"{"result":{"canceled":true,"compact_revision":"9"}}"#),
            Some(TableErrorKind::Unavailable)
        );
        assert_eq!(
            kind(r#"{"error":{"grpc_code":14,"message":"etcdserver: no leader"}}"#),
            Some(TableErrorKind::Unavailable)
        );
        assert_eq!(
            kind(r#"{"error":{"grpc_code":16,"message":"etcdserver: invalid auth token"}}"#),
            Some(TableErrorKind::PermissionDenied)
        );
        assert_eq!(kind("<html>"), Some(TableErrorKind::Unavailable));
    }
}
