//! Conditional writes of the document.

use std::time::Duration;

use async_nats::HeaderMap;
use async_nats::header::NATS_EXPECTED_LAST_SUBJECT_SEQUENCE;
use async_nats::jetstream::{ErrorCode, publish::PublishAck};
use bytes::Bytes;
use membership_core::{Revision, TableError, TableErrorKind};

use crate::NatsDocuments;
use crate::client::{Link, Refusal};
use crate::error::error;
use crate::keys::{Content, Identity, State};

/// The keys whose last sequence is compared, if they are not the one that is written.
const EXPECTED_SUBJECT: &str = "Nats-Expected-Last-Subject-Sequence-Subject";
/// The pause while another write of the same key is under way.
const PAUSE: Duration = Duration::from_millis(10);

impl NatsDocuments {
    /// Stores `text` if the document still has this revision, or if there is none.
    pub(crate) async fn store(
        &self,
        expected: Option<&Revision>,
        text: &str,
    ) -> Result<Option<Revision>, TableError> {
        let expected = expected.map(known).transpose()?;
        let deadline = self.client.config().timeouts.deadline();
        let link = self.client.ready(deadline).await?;
        let text = Bytes::copy_from_slice(text.as_bytes());
        let requests = async {
            match expected {
                Some(state) => self.replace(&link, state, text).await,
                None => self.create(&link, text).await,
            }
        };
        let stored = self.client.in_time(deadline, &link, true, requests).await?;
        if stored.is_some() {
            self.remember(stored);
        }
        Ok(stored.map(Revision::from))
    }

    /// Removes the document if it still has this revision.
    pub(crate) async fn remove(&self, expected: &Revision) -> Result<bool, TableError> {
        let state = known(expected)?;
        let deadline = self.client.config().timeouts.deadline();
        let link = self.client.ready(deadline).await?;
        let requests = async {
            // An empty value marks the removal: it is conditional as a commit is, and what lost
            // against it cannot come after it.
            let marked = self.replace(&link, state, Bytes::new()).await?;
            if marked.is_some() {
                self.remember(None);
                let document = self.keys.document(state.identity);
                link.purge(&self.keys.stream, &document).await?;
            }
            Ok(marked.is_some())
        };
        self.client.in_time(deadline, &link, true, requests).await
    }

    /// Writes over the document. Its key contains its identity, so a document of a later bucket
    /// never fits, whatever its sequence. What was seen over another connection may be of data that
    /// an older copy has replaced since: it counts as another document, and is loaded again.
    async fn replace(
        &self,
        link: &Link,
        state: State,
        text: Bytes,
    ) -> Result<Option<State>, TableError> {
        if state.over != link.connection() {
            return Ok(None);
        }
        // Its sequences may have come again, which the condition of a write does not tell.
        if self.may_go_back_unnoticed() && self.newest(link).await?.state() != Some(state) {
            return Ok(None);
        }
        let document = self.keys.document(state.identity);
        let written = self.write_if(link, &document, &document, state.sequence, &text);
        match written.await {
            Ok(written) => Ok(written.ok().map(|sequence| State {
                sequence,
                content: Content::of(&text),
                ..state
            })),
            // The document is gone with its bucket.
            Err(e) => self.is_without_bucket(link, e).await.map(|_| None),
        }
    }

    /// Writes a document of a new identity if the cluster has none.
    async fn create(&self, link: &Link, text: Bytes) -> Result<Option<State>, TableError> {
        let (identity, over) = (Identity::random()?, link.connection());
        let document = self.keys.document(identity);
        // The mark of a removal that was interrupted.
        let mut mark = 0;
        loop {
            let all = &self.keys.documents;
            let written = self.write_if(link, &document, all, mark, &text).await?;
            if let Ok(sequence) = written {
                if mark > 0 {
                    self.remove_marks(link, identity).await;
                }
                return Ok(Some(State {
                    identity,
                    sequence,
                    over,
                    content: Content::of(&text),
                }));
            }
            let found = self.newest(link).await?;
            if found.document.is_some() || found.last == mark {
                return Ok(None);
            }
            mark = found.last;
        }
    }

    /// Removes what interrupted removals left. They do no harm: the newest message counts.
    async fn remove_marks(&self, link: &Link, newest: Identity) {
        let own = self.keys.document(newest);
        let Ok(Some((_, subjects))) = self.names(link, &self.keys.documents).await else {
            return;
        };
        for mark in subjects.iter().filter(|it| **it != own) {
            let _left = link.purge(&self.keys.stream, mark).await;
        }
    }

    /// Writes a key if `expected` is the last sequence of the keys `compared`; returns the new
    /// sequence, or else the last one, as far as the server says it. While another write of those
    /// keys is under way the server refuses this one: that one decides.
    pub(crate) async fn write_if(
        &self,
        link: &Link,
        key: &str,
        compared: &str,
        expected: u64,
        value: &Bytes,
    ) -> Result<Result<u64, u64>, TableError> {
        loop {
            match self.try_write(link, key, compared, expected, value).await? {
                Attempt::Written(sequence) => return Ok(Ok(sequence)),
                Attempt::Refused(last) => return Ok(Err(last)),
                Attempt::Collided => tokio::time::sleep(PAUSE).await,
            }
        }
    }

    /// The same, once.
    pub(crate) async fn try_write(
        &self,
        link: &Link,
        key: &str,
        compared: &str,
        expected: u64,
        value: &Bytes,
    ) -> Result<Attempt, TableError> {
        let mut headers = HeaderMap::new();
        let expected = expected.to_string();
        headers.insert(NATS_EXPECTED_LAST_SUBJECT_SEQUENCE, expected.as_str());
        if key != compared {
            headers.insert(EXPECTED_SUBJECT, compared);
        }
        match self.publish(link, key, headers, value.clone()).await? {
            Ok(ack) => Ok(Attempt::Written(ack.sequence)),
            Err(Refusal::Api(e)) => match e.error_code() {
                ErrorCode::STREAM_WRONG_LAST_SEQUENCE => {
                    Ok(Attempt::Refused(last_sequence(&e.to_string())))
                }
                ErrorCode::STREAM_WRONG_LAST_SEQUENCE_CONSTANT
                | ErrorCode::STREAM_EXPECTED_LAST_SEQ_PER_SUBJECT_NOT_READY => {
                    Ok(Attempt::Collided)
                }
                _ => Err(Refusal::Api(e).into()),
            },
            Err(refusal) => Err(refusal.into()),
        }
    }

    /// Publishes a message. Not every server knows a bucket that was just made: where no stream
    /// takes the message, nothing was written, and it is sent again if there is a bucket.
    pub(crate) async fn publish(
        &self,
        link: &Link,
        key: &str,
        headers: HeaderMap,
        value: Bytes,
    ) -> Result<Result<PublishAck, Refusal>, TableError> {
        loop {
            match link.publish(key, headers.clone(), value.clone()).await? {
                Err(Refusal::NoStream) if self.check_bucket(link).await? => {
                    tokio::time::sleep(PAUSE).await;
                }
                answer => return Ok(answer),
            }
        }
    }
}

/// What a conditional write comes to.
pub(crate) enum Attempt {
    /// It has this sequence.
    Written(u64),
    /// The last sequence was this one.
    Refused(u64),
    /// Another write of the compared keys is under way.
    Collided,
}

/// The number in `wrong last sequence: 5 (code …)`; 0 if there is none.
fn last_sequence(text: &str) -> u64 {
    let digits = text.split(": ").nth(1).unwrap_or_default();
    let digits = digits.split(|c: char| !c.is_ascii_digit()).next();
    digits.and_then(|it| it.parse().ok()).unwrap_or_default()
}

fn known(revision: &Revision) -> Result<State, TableError> {
    State::of(revision).ok_or_else(|| {
        error(
            TableErrorKind::InvalidRequest,
            "the revision is one of another store",
        )
    })
}

#[cfg(test)]
mod tests {
    use super::last_sequence;

    #[test]
    fn a_refusal_tells_the_last_sequence() {
        let text = "wrong last sequence: 57 (code 400, error code 10071)";
        assert_eq!(last_sequence(text), 57);
        assert_eq!(last_sequence("wrong last sequence (code 400)"), 0);
    }
}
