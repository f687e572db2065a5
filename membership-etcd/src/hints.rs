//! Hints from a watch of the version row, over a connection of its own.
//!
//! A watch begins with the next change and never with the past, so a compaction of etcd's history
//! does not end it. Every new watch notifies once.

use std::sync::Arc;

use async_trait::async_trait;
use membership_core::{TableError, TableErrorKind};
use membership_provider::{HintSource, Notifier, innermost};

use crate::client::Client;
use crate::error::{Failure, error, refused};
use crate::wire::{Bytes, Range, Watch, WatchLine};

/// A line holds what one commit did to the version row. A longer one is not from a watch.
const LONGEST_LINE: usize = 1 << 20;

/// Watches one key.
pub(crate) struct Watcher {
    client: Arc<Client>,
    key: Bytes,
}

impl Watcher {
    pub(crate) fn new(client: &Arc<Client>, key: Bytes) -> Self {
        Self {
            client: Arc::clone(client),
            key,
        }
    }

    /// Watches until the watch ends, and says why it did.
    async fn watch(&self, notifier: &Notifier) -> TableError {
        let unavailable = |why: String| error(TableErrorKind::Unavailable, why);
        let request = Watch {
            create_request: Range::one(self.key.clone()),
        };
        let mut response = match self.client.watch(&request).await {
            Ok(response) => response,
            Err(e) => return e,
        };
        let mut lines = Lines::default();
        loop {
            let chunk = match response.chunk().await {
                Ok(Some(chunk)) => chunk,
                Ok(None) => return unavailable("the watch has ended".to_owned()),
                Err(e) => return unavailable(format!("the watch broke ({})", innermost(&e))),
            };
            for line in lines.split(&chunk) {
                match read(&line) {
                    Ok(Line::Created) => notifier.connected(),
                    Ok(Line::Changed) => notifier.notify(),
                    Ok(Line::Nothing) => {}
                    Err(e) => return e,
                }
            }
            if lines.rest.len() > LONGEST_LINE {
                return unavailable("the answer is not a watch of etcd".to_owned());
            }
        }
    }
}

#[async_trait]
impl HintSource for Watcher {
    async fn listen(&self, notifier: &Notifier) -> TableError {
        let ended = self.watch(notifier).await;
        if ended.kind() == TableErrorKind::PermissionDenied {
            // A forgotten token and a missing permission are refused with the same text.
            self.client.forget_token();
        } else {
            self.client.ask_another();
        }
        ended
    }
}

/// Chunks of an answer, split into lines.
#[derive(Default)]
struct Lines {
    rest: Vec<u8>,
}

impl Lines {
    fn split(&mut self, chunk: &[u8]) -> Vec<Vec<u8>> {
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
    Created,
    Changed,
    Nothing,
}

fn read(line: &[u8]) -> Result<Line, TableError> {
    let read: WatchLine = serde_json::from_slice(line).map_err(|_| {
        error(
            TableErrorKind::Unavailable,
            "the answer is not a watch of etcd",
        )
    })?;
    if let Some(refusal) = read.error {
        return Err(match refused(&refusal) {
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
        Line::Created
    } else {
        Line::Nothing
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_may_be_split_anywhere() {
        let text = b"one\ntwo\n\nthree\n";
        for size in 1..=text.len() {
            let mut lines = Lines::default();
            let all: Vec<Vec<u8>> = text
                .chunks(size)
                .flat_map(|chunk| lines.split(chunk))
                .collect();
            assert_eq!(
                all,
                [b"one".to_vec(), b"two".to_vec(), b"three".to_vec()],
                "in pieces of {size}"
            );
            assert!(lines.rest.is_empty());
        }
        let mut lines = Lines::default();
        assert!(lines.split(b"no end").is_empty() && lines.rest == b"no end");
    }

    #[test]
    fn the_ends_of_a_watch_are_distinguished() {
        let kind = |line: &str| read(line.as_bytes()).err().map(|e| e.kind());
        assert!(matches!(
            read(br#"{"result":{"created":true}}"#),
            Ok(Line::Created)
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
