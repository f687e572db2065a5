//! Hints: a persistent watch of the version row's znode, over the table's own session.
//!
//! A watch ends with the connection that it was set over. The driver sets watches of a single event
//! again over the next connection, but not persistent ones (ZOOKEEPER-4698). So the watch is set
//! again here, with a hint for what happened meanwhile.

use std::panic::AssertUnwindSafe;

use async_trait::async_trait;
use futures_util::FutureExt as _;
use membership_core::{TableError, TableErrorKind as Kind};
use membership_provider::{HintSource, Notifier};
use zookeeper_client::{AddWatchMode, EventType, PersistentWatcher, SessionState};

use crate::client::{Session, Watch};
use crate::error::{error, failed};

impl Watch {
    /// Watches until the session ends, or another one takes its place.
    async fn watch(&self, notifier: &Notifier) -> Result<TableError, TableError> {
        let session = self.client.session().await?;
        let mut watcher = self.set(&session).await?;
        notifier.connected();
        loop {
            let event = watcher.changed().await;
            if event.event_type == EventType::Session {
                match event.session_state {
                    // The old watcher is dropped after the new one is set: the driver removes the
                    // watch with its last watcher.
                    SessionState::SyncConnected => watcher = self.set(&session).await?,
                    state if state.is_terminated() => {
                        return Ok(error(Kind::Unavailable, "the session has ended"));
                    }
                    _ => {}
                }
            }
            // Changes before a watch is set are not reported.
            notifier.notify();
            if !session.is_current() {
                return Ok(error(Kind::Unavailable, "there is a newer session"));
            }
        }
    }

    /// Sets the watch; the znode need not exist yet.
    async fn set(&self, session: &Session<'_>) -> Result<PersistentWatcher, TableError> {
        let session = session.restarted();
        let set = session.driver().watch(&self.path, AddWatchMode::Persistent);
        session.answer(set).await?.map_err(failed)
    }
}

#[async_trait]
impl HintSource for Watch {
    async fn listen(&self, notifier: &Notifier) -> TableError {
        // A watcher panics if the task of its session ended.
        let watched = AssertUnwindSafe(self.watch(notifier)).catch_unwind().await;
        let lost = |_| Err(error(Kind::Unavailable, "the session's task ended"));
        watched.unwrap_or_else(lost).unwrap_or_else(|e| e)
    }
}
