//! Reads from the stream's leader, never from a copy (no direct get).
//!
//! With several servers a leader that was deposed and does not know it yet may still answer. What a
//! client has seen it does not see again as it was before (T6): an answer that is older is confirmed
//! (`confirm.rs`), as every answer to a read with a barrier is.

use std::sync::PoisonError;

use async_nats::jetstream::stream::RawMessage;
use async_nats::jetstream::{ErrorCode, message::StreamMessage};
use futures_util::future::try_join;
use membership_core::{DocumentRead, Revision, Stored, TableError, TableErrorKind};
use serde::{Deserialize, Serialize};

use crate::NatsDocuments;
use crate::client::{Link, is_missing, path};
use crate::error::{error, of_answer};
use crate::keys::{Content, State};

/// The newest message of the cluster's documents.
#[derive(Clone, Debug)]
pub(crate) struct Found {
    /// Its sequence; 0 if there is none.
    pub(crate) last: u64,
    /// The document; `None` if there is none, or only the mark of its removal.
    pub(crate) document: Option<(State, String)>,
}

impl Found {
    const NOTHING: Self = Self {
        last: 0,
        document: None,
    };

    pub(crate) fn state(&self) -> Option<State> {
        self.document.as_ref().map(|(state, _)| *state)
    }

    /// Whether it comes before a state that was seen, or from another table.
    fn is_older_than(&self, seen: Option<State>) -> bool {
        let Some(seen) = seen else { return false };
        self.state()
            .is_none_or(|found| found.identity != seen.identity || found.sequence < seen.sequence)
    }
}

#[derive(Serialize)]
struct LastOf<'a> {
    last_by_subj: &'a str,
}

#[derive(Deserialize)]
struct Got {
    message: RawMessage,
}

impl NatsDocuments {
    pub(crate) async fn read(
        &self,
        known: Option<&Revision>,
        heartbeats: bool,
        barrier: bool,
    ) -> Result<DocumentRead, TableError> {
        let deadline = self.client.config().timeouts.deadline();
        let link = self.client.ready(deadline).await?;
        // What another task of this client sees meanwhile does not count.
        let seen = self.seen();
        let requests = async {
            // New cells do not wait until the document is confirmed.
            let cells = async {
                if !heartbeats {
                    return Ok(None);
                }
                let listed = self.known_cells(&link).await?;
                self.all_cells(&link, listed).await.map(Some)
            };
            let found = self.found(&link, seen, barrier);
            let (found, cells) = try_join(found, cells).await?;
            self.remember(found.state());
            Ok((found, cells))
        };
        let read = self.client.in_time(deadline, &link, false, requests);
        let (found, cells) = read.await?;
        let known = known.and_then(State::of);
        let document = match found.document {
            None => Stored::None,
            Some((state, _)) if known == Some(state) => Stored::Unchanged,
            Some((state, text)) => Stored::document(state, text),
        };
        Ok(DocumentRead::new(document, cells))
    }

    /// The newest message of the cluster's documents, confirmed where a leader that was deposed may
    /// have answered. A bucket on one server has no such leader, but may get more servers at any
    /// time: before a barrier or an older answer is taken for granted, the bucket is looked at.
    async fn found(
        &self,
        link: &Link,
        seen: Option<State>,
        barrier: bool,
    ) -> Result<Found, TableError> {
        let known = self.has_one_replica();
        if barrier && !known {
            return self.confirmed(link, seen, None).await;
        }
        let found = if barrier {
            try_join(self.newest(link), self.look_at_replicas(link))
                .await?
                .0
        } else {
            self.newest(link).await?
        };
        let is_older = found.is_older_than(seen);
        if known && is_older && !barrier {
            self.look_at_replicas(link).await?;
        }
        match !self.has_one_replica() && (barrier || is_older) {
            true => self.confirmed(link, found.state(), Some(found)).await,
            false => Ok(found),
        }
    }

    /// The newest message of the cluster's documents.
    pub(crate) async fn newest(&self, link: &Link) -> Result<Found, TableError> {
        let over = link.connection();
        let Some(message) = self.last_of(link, &self.keys.documents).await? else {
            return Ok(Found::NOTHING);
        };
        let identity = self.keys.identity(&message.subject)?;
        let last = message.sequence;
        if message.payload.is_empty() {
            return Ok(Found {
                last,
                document: None,
            });
        }
        let state = State {
            identity,
            sequence: last,
            over,
            content: Content::of(&message.payload),
        };
        let document = Some((state, text(message)?));
        Ok(Found { last, document })
    }

    /// The newest state that this client has seen.
    fn seen(&self) -> Option<State> {
        *self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Keeps the newest state that this client has seen.
    pub(crate) fn remember(&self, state: Option<State>) {
        *self.seen.lock().unwrap_or_else(PoisonError::into_inner) = state;
    }

    /// The newest message of these subjects, from the stream's leader.
    pub(crate) async fn last_of(
        &self,
        link: &Link,
        subjects: &str,
    ) -> Result<Option<StreamMessage>, TableError> {
        let get = path("MSG.GET", &self.client.config().bucket);
        let body = LastOf {
            last_by_subj: subjects,
        };
        match link.api::<Got>(&get, &body).await? {
            Ok(got) => StreamMessage::try_from(got.message).map(Some).map_err(|e| {
                let message = "a message that is not of JetStream";
                error(TableErrorKind::Unavailable, message).with_source(std::io::Error::other(e))
            }),
            Err(e) if e.error_code() == ErrorCode::NO_MESSAGE_FOUND || is_missing(&e) => Ok(None),
            Err(e) => Err(of_answer(&e)),
        }
    }
}

pub(crate) fn text(message: StreamMessage) -> Result<String, TableError> {
    String::from_utf8(message.payload.into()).map_err(|e| {
        let why = "a value is not UTF-8: another program wrote it";
        error(TableErrorKind::Damaged, why)
            .with_key(message.subject.as_str())
            .with_source(e.utf8_error())
    })
}
