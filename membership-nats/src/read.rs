//! Reads from the stream's leader, never from a copy (no direct get).
//!
//! With several servers a leader that was deposed and does not know it yet may still answer. Two
//! rules make up for that: what a client has seen it does not see again as it was before (T6), and
//! a read with a barrier is confirmed by a write, which only a majority acknowledges.

use std::collections::{BTreeMap, HashMap};
use std::sync::PoisonError;
use std::sync::atomic::Ordering;

use async_nats::HeaderMap;
use async_nats::jetstream::stream::RawMessage;
use async_nats::jetstream::{ErrorCode, message::StreamMessage};
use bytes::Bytes;
use futures_util::StreamExt as _;
use futures_util::future::{try_join, try_join_all, try_join3};
use futures_util::stream;
use membership_core::{DocumentRead, Heartbeats, Revision, Stored, TableError, TableErrorKind};
use membership_provider::StoredHeartbeats;
use serde::{Deserialize, Serialize};

use crate::NatsDocuments;
use crate::client::{Link, is_missing, path};
use crate::commit::Attempt;
use crate::error::{error, of_answer};
use crate::keys::{CLUSTER_CELL, State, silo_of_cell};

/// How many requests for cells are under way at the same time. A server takes 10,000 of all clients.
const AT_ONCE: usize = 256;
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

/// A cell as this client has last seen or written it.
#[derive(Clone, Debug)]
pub(crate) struct Cell {
    pub(crate) sequence: u64,
    pub(crate) text: String,
}

/// The names of all cells, and when the bucket was made; the cells that were known; and the cells
/// that were got.
struct Listed {
    names: Option<(String, Vec<String>)>,
    known: BTreeMap<String, Cell>,
    got: BTreeMap<String, Cell>,
}

#[derive(Serialize)]
struct LastOf<'a> {
    last_by_subj: &'a str,
}

#[derive(Deserialize)]
struct Got {
    message: RawMessage,
}

#[derive(Serialize)]
struct Count<'a> {
    subjects_filter: &'a str,
}

#[derive(Deserialize)]
struct Counted {
    #[serde(default)]
    total: usize,
    created: String,
    state: Subjects,
}

#[derive(Deserialize)]
struct Subjects {
    #[serde(default)]
    subjects: Option<HashMap<String, u64>>,
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
        let one = self.replicas.load(Ordering::Relaxed) == 1;
        let requests = async {
            let cells = async {
                match heartbeats {
                    true => self.known_cells(&link).await.map(Some),
                    false => Ok(None),
                }
            };
            let found = async {
                match barrier && !one {
                    true => self.confirmed(&link, seen, None).await,
                    false => self.newest(&link).await,
                }
            };
            let (mut found, cells) = try_join(found, cells).await?;
            if !one && !barrier && found.is_older_than(seen) {
                found = self.confirmed(&link, found.state(), Some(found)).await?;
            }
            self.remember(found.state());
            let cells = match cells {
                Some(listed) => Some(self.all_cells(&link, listed).await?),
                None => None,
            };
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

    /// The newest message of the cluster's documents.
    pub(crate) async fn newest(&self, link: &Link) -> Result<Found, TableError> {
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

    /// The newest message, as a majority of the servers has it. `guess` is what it may be, and
    /// `found` what is known to be there. Two proofs are tried at the same time: that a sequence is
    /// the newest one, and, because commits may follow each other too fast for that, that a message
    /// comes after one that was written during this call.
    async fn confirmed(
        &self,
        link: &Link,
        guess: Option<State>,
        found: Option<Found>,
    ) -> Result<Found, TableError> {
        let mut document = guess.map(|it| self.keys.document(it.identity));
        let mut guess = guess.map_or(0, |it| it.sequence);
        let there = async {
            match found {
                Some(found) => Ok(found),
                None => self.newest(link).await,
            }
        };
        let confirm = self.confirm(link, document.as_deref(), guess);
        let (mut there, mut confirmed, floor) =
            try_join3(there, confirm, self.write_barrier(link)).await?;
        while let Err(last) = confirmed {
            if there.last > floor {
                return Ok(there);
            }
            // Otherwise that document is gone, or the server does not know it yet.
            document = document.filter(|_| last >= guess);
            guess = last;
            let confirm = self.confirm(link, document.as_deref(), guess);
            let (again, newer) = try_join(confirm, self.newest(link)).await?;
            confirmed = again;
            if newer.last > there.last {
                there = newer;
            }
        }
        // It was read before, or from a leader that was deposed.
        while confirmed.is_ok_and(|least| there.last < least) {
            there = self.newest(link).await?;
        }
        if there.document.is_none() {
            // A cluster that does not exist leaves nothing behind.
            link.purge(&self.keys.stream, &self.keys.barrier).await?;
        }
        Ok(there)
    }

    /// Whether `guess` is the newest sequence: a write beside the document is acknowledged on the
    /// condition that it is. If not, the newest one, as far as the server knows.
    async fn confirm(
        &self,
        link: &Link,
        document: Option<&str>,
        guess: u64,
    ) -> Result<Result<u64, u64>, TableError> {
        let compared = self.keys.another_name(document)?;
        let nothing = Bytes::new();
        let write = self.try_write(link, &self.keys.barrier, &compared, guess, &nothing);
        match write.await {
            Ok(Attempt::Written(_)) => Ok(Ok(guess)),
            Ok(Attempt::Refused(last)) => Ok(Err(last)),
            // Again, under another name.
            Ok(Attempt::Collided) => Ok(Err(guess)),
            Err(e) => self.is_without_bucket(link, e).await.map(|_| Ok(0)),
        }
    }

    /// The sequence of a write beside the document. Everything that was acknowledged before has a
    /// lower one. 0 without a bucket.
    async fn write_barrier(&self, link: &Link) -> Result<u64, TableError> {
        let written = self.publish(link, &self.keys.barrier, HeaderMap::new(), Bytes::new());
        match written.await? {
            Ok(written) => Ok(written.sequence),
            Err(refusal) => self
                .is_without_bucket(link, refusal.into())
                .await
                .map(|_| 0),
        }
    }

    /// That nothing was written because there is no bucket, in which case there is nothing to
    /// confirm: the leader of all servers says so. Otherwise the error.
    pub(crate) async fn is_without_bucket(
        &self,
        link: &Link,
        error: TableError,
    ) -> Result<bool, TableError> {
        match error.kind() {
            TableErrorKind::Unavailable if !self.check_bucket(link).await? => Ok(true),
            _ => Err(error),
        }
    }

    /// The names of all cells, and at the same time the cells whose names are known.
    async fn known_cells(&self, link: &Link) -> Result<Listed, TableError> {
        let known = self.seen_cells();
        let names: Vec<&String> = known.keys().collect();
        let (names, got) = try_join(self.cell_names(link), self.get_all(link, &names)).await?;
        Ok(Listed { names, known, got })
    }

    /// All cells: those that were got together with their names, and the new ones.
    async fn all_cells(&self, link: &Link, listed: Listed) -> Result<Heartbeats, TableError> {
        let Listed {
            names,
            known,
            mut got,
        } = listed;
        let Some((bucket, names)) = names else {
            return Ok(Heartbeats::default());
        };
        let fresh: Vec<&String> = names.iter().filter(|it| !known.contains_key(*it)).collect();
        got.extend(self.get_all(link, &fresh).await?);
        let cells = self.keep_cells(bucket, got);
        let parsed = cells.into_iter().filter_map(|(name, cell)| {
            if name == CLUSTER_CELL {
                return Some((name, cell.text));
            }
            Some((silo_of_cell(&name)?.row_key(), cell.text))
        });
        Ok(StoredHeartbeats::from_cells(parsed, CLUSTER_CELL).shown(None))
    }

    fn seen_cells(&self) -> BTreeMap<String, Cell> {
        let seen = self.cells.lock().unwrap_or_else(PoisonError::into_inner);
        seen.1.clone()
    }

    /// Remembers cells. With several servers a cell that this client has seen newer stays as it was
    /// seen, in the same bucket.
    fn keep_cells(&self, bucket: String, got: BTreeMap<String, Cell>) -> BTreeMap<String, Cell> {
        let one = self.replicas.load(Ordering::Relaxed) == 1;
        let mut seen = self.cells.lock().unwrap_or_else(PoisonError::into_inner);
        let known = std::mem::take(&mut seen.1);
        let same = seen.0 == bucket && !one;
        let newer = |name: &String, cell: Cell| match known.get(name) {
            Some(known) if same && known.sequence > cell.sequence => known.clone(),
            _ => cell,
        };
        let cells: BTreeMap<String, Cell> = got
            .into_iter()
            .map(|(name, cell)| {
                let cell = newer(&name, cell);
                (name, cell)
            })
            .collect();
        *seen = (bucket, cells.clone());
        let sequences = cells
            .iter()
            .map(|(name, cell)| (name.as_str(), cell.sequence));
        self.written.learn(sequences);
        cells
    }

    /// The names of all cells, and when the bucket was made; `None` if there is no bucket.
    async fn cell_names(&self, link: &Link) -> Result<Option<(String, Vec<String>)>, TableError> {
        let found = self.names(link, &self.keys.cells).await?;
        Ok(found.map(|(bucket, subjects)| {
            let names = subjects.iter().filter_map(|it| self.keys.cell_name(it));
            (bucket, names.map(str::to_owned).collect())
        }))
    }

    /// The subjects that have messages, of those with these names, and when the bucket was made.
    pub(crate) async fn names(
        &self,
        link: &Link,
        subjects: &str,
    ) -> Result<Option<(String, Vec<String>)>, TableError> {
        let body = Count {
            subjects_filter: subjects,
        };
        let info = path("INFO", &self.client.config().bucket);
        let counted: Counted = match link.api(&info, &body).await? {
            Ok(counted) => counted,
            Err(e) if is_missing(&e) => return Ok(None),
            Err(e) => return Err(of_answer(&e)),
        };
        let subjects = counted.state.subjects.unwrap_or_default();
        if counted.total > subjects.len() {
            let message = format!("the cluster has {} heartbeats: delete it", counted.total);
            return Err(error(TableErrorKind::LimitExceeded, message));
        }
        Ok(Some((counted.created, subjects.into_keys().collect())))
    }

    /// Those of these cells that exist.
    async fn get_all(
        &self,
        link: &Link,
        names: &[&String],
    ) -> Result<BTreeMap<String, Cell>, TableError> {
        let get = |name: &String| {
            let (name, subject) = (name.clone(), self.keys.cell(name));
            async move {
                let message = self.last_of(link, &subject).await?;
                let cell = message.map(|message| {
                    let sequence = message.sequence;
                    text(message).map(|text| (name, Cell { sequence, text }))
                });
                cell.transpose()
            }
        };
        let got: Vec<Option<(String, Cell)>> = if names.len() <= AT_ONCE {
            try_join_all(names.iter().map(|name| get(name))).await?
        } else {
            let all: Vec<_> = names.iter().map(|name| get(name)).collect();
            let mut answers = stream::iter(all).buffer_unordered(AT_ONCE);
            let mut got = Vec::with_capacity(names.len());
            while let Some(answer) = answers.next().await {
                got.push(answer?);
            }
            got
        };
        Ok(got.into_iter().flatten().collect())
    }

    /// The newest message of these subjects, from the stream's leader.
    async fn last_of(
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

fn text(message: StreamMessage) -> Result<String, TableError> {
    String::from_utf8(message.payload.into()).map_err(|e| {
        let why = "a value is not UTF-8: another program wrote it";
        error(TableErrorKind::Damaged, why)
            .with_key(message.subject.as_str())
            .with_source(e.utf8_error())
    })
}
