//! Hints from blocking queries: Consul answers when the version's mark changes, or after a while.
//!
//! Each query states the index that it has seen, so a change between two queries is not missed. An
//! index that decreased belongs to another store or to a restored one, and means nothing.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use membership_core::TableError;
use membership_provider::{HintSource, Notifier};
use tokio::time::Instant;

use crate::client::{Client, Request};
use crate::keys::path;

/// How long a query stays open. Consul adds up to a sixteenth, so that not all end at once.
const WAIT: Duration = Duration::from_secs(60);
const WAIT_AND_MORE: Duration = Duration::from_secs(64);
/// The pause after a query that changed nothing: one that is answered at once must not make a busy
/// loop.
const PAUSE: Duration = Duration::from_millis(50);

/// Queries one folder.
pub(crate) struct BlockingQuery {
    client: Arc<Client>,
    /// The folder whose index changes with each commit.
    folder: String,
}

impl BlockingQuery {
    pub(crate) fn new(client: &Arc<Client>, folder: String) -> Self {
        Self {
            client: Arc::clone(client),
            folder,
        }
    }

    /// Waits for an index other than `since`; returns the index at the end.
    async fn wait(&self, since: u64) -> Result<u64, TableError> {
        let (folder, wait) = (&self.folder, WAIT.as_secs());
        let query = format!(
            "/v1/kv/{}?recurse=&index={since}&wait={wait}s",
            path(folder)
        );
        let request = Request {
            path: query,
            ..Request::get(folder)
        };
        let by = Instant::now() + WAIT_AND_MORE + self.client.timeout;
        let (_, index) = self.client.keys(&request, by).await?;
        Ok(index)
    }
}

#[async_trait]
impl HintSource for BlockingQuery {
    async fn listen(&self, notifier: &Notifier) -> TableError {
        let mut since = 0;
        loop {
            match self.wait(since).await {
                Ok(index) if index != since => {
                    since = next(since, index);
                    notifier.connected();
                }
                Ok(_) => tokio::time::sleep(PAUSE).await,
                Err(e) => return e,
            }
        }
    }
}

/// The index of the next query: from the beginning if the index went back.
fn next(since: u64, index: u64) -> u64 {
    if index < since { 0 } else { index }
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
