//! The whole contract over a store that can only compare-and-swap one document.
//!
//! Such a provider implements [`DocumentStore`]: load, store-if-unchanged, heartbeats.
//! [`DocumentTable`] does the rest. The document contains the version row and all rows as their
//! stored texts, so that fields that this build does not know are kept, and a commit replaces the
//! whole document. This has two consequences. A heartbeat must not change the document's revision,
//! or it would turn commits into collisions (clauses T4 and T7). And the size limit of the document
//! is the size limit of the table.

mod memory;
mod store;
mod text;

pub use memory::{MemoryDocumentStore, MemoryDocuments};
pub use store::{DocumentRead, DocumentStore, Revision, Stored};

use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;

use super::state::{Applied, TableState};
use super::{
    CommitOutcome, CommitRequest, Guarantees, HeartbeatWrite, HintStream, InitializeRequest,
    MembershipTable, Operation, ReadAnswer, ReadRequest, RowChange, RowRead, TableError,
    TableErrorKind, TableLimits,
};
use crate::{ClusterName, Heartbeat, Heartbeats, SiloAddress, VersionToken};

/// How many times a write that collided with another one is judged again. Each collision means that
/// another write succeeded. A commit seldom needs more than one, because the next judgement is a
/// conflict.
const COLLISIONS: u32 = 32;

/// A [`MembershipTable`] over a [`DocumentStore`].
///
/// Round trips: 1 for a read; 1 for a commit when this client has seen the version it is based on,
/// otherwise 2; 1 for a heartbeat. A commit that removes rows takes one more afterwards for their
/// heartbeats.
///
/// ```
/// use membership_core::{DocumentTable, MemoryDocuments, MembershipTable};
/// let store = MemoryDocuments::new();
/// let cluster: membership_core::ClusterName = "blue".parse()?;
/// let table = DocumentTable::new(cluster.clone(), store.document(&cluster));
/// assert_eq!(table.store(), "document");
/// # Ok::<(), membership_core::ParseClusterError>(())
/// ```
pub struct DocumentTable<D> {
    cluster: ClusterName,
    documents: D,
    /// The last document seen. A commit can be based on it, and a load need not transfer it again.
    seen: Mutex<Option<Loaded>>,
}

/// A document as it was loaded. Without a revision there is no document.
#[derive(Clone)]
struct Loaded {
    revision: Option<Revision>,
    state: Arc<TableState>,
}

impl<D: DocumentStore> std::fmt::Debug for DocumentTable<D> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // The store may contain secrets (clause T15): only its name is shown.
        f.debug_struct("DocumentTable")
            .field("store", &self.documents.store())
            .field("cluster", &self.cluster)
            .finish_non_exhaustive()
    }
}

impl<D: DocumentStore> DocumentTable<D> {
    /// Creates the table of this cluster over this document.
    #[must_use]
    pub fn new(cluster: ClusterName, documents: D) -> Self {
        Self {
            cluster,
            documents,
            seen: Mutex::new(None),
        }
    }

    /// The store of the document.
    #[must_use]
    pub const fn documents(&self) -> &D {
        &self.documents
    }

    fn fail(
        &self,
        kind: TableErrorKind,
        during: Operation,
        message: impl Into<String>,
    ) -> TableError {
        TableError::new(kind, during, self.documents.store(), message)
    }

    fn seen(&self) -> Option<Loaded> {
        self.seen
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    fn remember(&self, loaded: Option<Loaded>) {
        *self.seen.lock().unwrap_or_else(PoisonError::into_inner) = loaded;
    }

    async fn load(
        &self,
        heartbeats: bool,
        barrier: bool,
        during: Operation,
    ) -> Result<(Loaded, Option<Heartbeats>), TableError> {
        let seen = self.seen();
        let known = seen.as_ref().and_then(|s| s.revision.as_ref());
        let answer = self
            .documents
            .load(known, heartbeats, barrier)
            .await
            .map_err(|e| e.during(during).of_a_read())?;
        let loaded = match (answer.document, seen) {
            (Stored::Unchanged, Some(seen)) if seen.revision.is_some() => seen,
            (Stored::Unchanged, _) => {
                return Err(self.fail(
                    TableErrorKind::Damaged,
                    during,
                    "the store says unchanged of a document nobody knows",
                ));
            }
            (Stored::None, _) => Loaded {
                revision: None,
                state: Arc::default(),
            },
            (Stored::Document { revision, text }, _) => {
                let state = text::decode(&text)
                    .map_err(|why| self.fail(why.kind(), during, why.to_string()))?;
                Loaded {
                    revision: Some(revision),
                    state: Arc::new(state),
                }
            }
        };
        self.remember(Some(loaded.clone()));
        // Heartbeats without a row are orphans (clause T8).
        let heartbeats = answer.heartbeats.map(|h| {
            let has_row = |silo: &SiloAddress| loaded.state.rows.by_key(&silo.row_key()).is_some();
            let stored = h.silos.into_iter();
            let stored = stored.map(|(silo, beat)| (silo, beat, has_row(&silo)));
            Heartbeats::from_stored(stored, h.cluster)
        });
        Ok((loaded, heartbeats))
    }

    /// Stores `state` if the document still is `base`; returns whether it was stored.
    async fn put(
        &self,
        base: &Loaded,
        state: TableState,
        during: Operation,
    ) -> Result<bool, TableError> {
        let text = text::encode(&state);
        if text.len() > self.documents.document_bytes() {
            let message = format!(
                "the document would have {} bytes, the store takes {}",
                text.len(),
                self.documents.document_bytes()
            );
            return Err(self.fail(TableErrorKind::LimitExceeded, during, message));
        }
        // If this future is dropped or the answer is lost, the next call loads the document again.
        self.remember(None);
        let stored = self
            .documents
            .store_if_unchanged(base.revision.as_ref(), &text)
            .await
            .map_err(|e| e.during(during))?;
        let Some(revision) = stored else {
            return Ok(false);
        };
        self.remember(Some(Loaded {
            revision: Some(revision),
            state: Arc::new(state),
        }));
        Ok(true)
    }

    fn lost_every_race(&self, during: Operation) -> TableError {
        self.fail(
            TableErrorKind::Busy,
            during,
            "the document changed under every attempt",
        )
    }
}

#[async_trait]
impl<D: DocumentStore> MembershipTable for DocumentTable<D> {
    fn store(&self) -> &'static str {
        self.documents.store()
    }

    fn cluster(&self) -> &ClusterName {
        &self.cluster
    }

    async fn initialize(&self, request: &InitializeRequest) -> Result<(), TableError> {
        let during = Operation::Initialize;
        self.documents
            .prepare()
            .await
            .map_err(|e| e.during(during))?;
        for _ in 0..COLLISIONS {
            let (base, _) = self.load(false, true, during).await?;
            let mut state = TableState::clone(&base.state);
            if !state.initialize(request, self.store())? || self.put(&base, state, during).await? {
                return Ok(());
            }
        }
        Err(self.lost_every_race(during))
    }

    async fn read(&self, request: &ReadRequest) -> Result<ReadAnswer, TableError> {
        if request.new_connection {
            let reconnected = self.documents.reconnect().await;
            reconnected.map_err(|e| e.during(Operation::Read).of_a_read())?;
        }
        let (loaded, heartbeats) = self
            .load(request.heartbeats, request.barrier, Operation::Read)
            .await?;
        let row = loaded
            .state
            .current(request.known.as_ref(), Operation::Read, self.store())?;
        Ok(match &request.known {
            Some(known) if known.version() == row.version => ReadAnswer::Unchanged { heartbeats },
            _ => ReadAnswer::Snapshot {
                snapshot: loaded.state.snapshot(row),
                heartbeats,
            },
        })
    }

    async fn read_row(
        &self,
        silo: &SiloAddress,
        known: Option<&VersionToken>,
    ) -> Result<RowRead, TableError> {
        let (loaded, heartbeats) = self.load(true, false, Operation::ReadRow).await?;
        let version_row = loaded
            .state
            .current(known, Operation::ReadRow, self.store())?;
        let row = loaded.state.rows.by_key(&silo.row_key()).cloned();
        let stored = |h: Heartbeats| -> Option<Heartbeat> { h.silos.get(silo).copied() };
        let heartbeat = row.as_ref().and(heartbeats).and_then(stored);
        Ok(RowRead::new(version_row.token(&[]), row, heartbeat)
            .with_version_row(version_row.clone()))
    }

    async fn commit(&self, request: &CommitRequest) -> Result<CommitOutcome, TableError> {
        let during = Operation::Commit;
        let limits = self.limits();
        request.validate(&limits, self.store())?;
        let is_base = |l: &Loaded| matches!(&l.state.version_row, Some(Ok(row)) if !row.deleting && row.token(&[]).same_commit(&request.expected));
        // A remembered base is as good as a loaded one, because the store compares its revision.
        // Only a success is final; any other result is judged again on a loaded document.
        let mut base = self.seen().filter(is_base);
        // A collision can be with this commit itself, sent twice by a client library: from then on
        // the commit id is searched.
        let mut attempt = request.clone();
        for _ in 0..COLLISIONS {
            let from_memory = base.is_some();
            let from = match base.take() {
                Some(seen) => seen,
                None => {
                    self.load(false, true, during)
                        .await
                        .map_err(|e| e.of_commit(attempt.attempt))?
                        .0
                }
            };
            let mut state = TableState::clone(&from.state);
            match state.commit(&attempt, &limits, self.store()) {
                Ok(Applied::Now(token)) => {
                    if self
                        .put(&from, state, during)
                        .await
                        .map_err(|e| e.of_commit(attempt.attempt))?
                    {
                        self.forget_heartbeats(request).await;
                        return Ok(CommitOutcome::Committed(token));
                    }
                    attempt = request.again();
                }
                Ok(Applied::Not(_)) | Err(_) if from_memory => {}
                Ok(Applied::Not(answer)) => return Ok(answer),
                Err(e) => return Err(e.of_commit(attempt.attempt)),
            }
        }
        Err(self.lost_every_race(during).of_commit(attempt.attempt))
    }

    async fn update_i_am_alive(&self, write: &HeartbeatWrite) -> Result<(), TableError> {
        let during = Operation::UpdateIAmAlive;
        write.validate(self.store())?;
        match write {
            HeartbeatWrite::Silo { silo, heartbeat } => {
                self.documents.put_heartbeat(silo, heartbeat).await
            }
            HeartbeatWrite::Cluster { text } => self.documents.put_cluster_cell(text).await,
        }
        .map_err(|e| e.during(during))
    }

    async fn delete(&self) -> Result<(), TableError> {
        let during = Operation::Delete;
        let mut is_marked = false;
        for _ in 0..COLLISIONS {
            let (base, _) = self.load(false, true, during).await?;
            base.state.may_delete(self.store())?;
            let Some(revision) = &base.revision else {
                return self
                    .documents
                    .remove_heartbeats(None)
                    .await
                    .map_err(|e| e.during(during));
            };
            if let Some(Ok(row)) = &base.state.version_row
                && !row.deleting
            {
                if is_marked {
                    // Made anew since this delete marked it: the marked one is gone, removed by
                    // another delete or by a removal that was sent twice.
                    return Ok(());
                }
                let mut state = TableState::clone(&base.state);
                let mut marked = crate::VersionRow::clone(row);
                marked.deleting = true;
                state.version_row = Some(Ok(Arc::new(marked)));
                is_marked = self.put(&base, state, during).await?;
                continue;
            }
            is_marked = true;
            self.documents
                .remove_heartbeats(None)
                .await
                .map_err(|e| e.during(during))?;
            self.remember(None);
            if self
                .documents
                .remove_if_unchanged(revision)
                .await
                .map_err(|e| e.during(during))?
            {
                return Ok(());
            }
        }
        Err(self.lost_every_race(during))
    }

    fn limits(&self) -> TableLimits {
        self.documents.limits()
    }

    fn guarantees(&self) -> Guarantees {
        self.documents.guarantees()
    }

    fn hints(&self) -> Option<HintStream> {
        self.documents.hints()
    }
}

impl<D: DocumentStore> DocumentTable<D> {
    /// Removes the heartbeats of removed rows. If this fails they stay without a row, which is
    /// allowed, and the next `delete` removes them.
    async fn forget_heartbeats(&self, request: &CommitRequest) {
        let removed: Vec<SiloAddress> = request
            .changes
            .iter()
            .filter_map(|change| match change {
                RowChange::Remove(key) => key.parse().ok(),
                _ => None,
            })
            .collect();
        if !removed.is_empty()
            && let Err(error) = self.documents.remove_heartbeats(Some(&removed)).await
        {
            tracing::debug!(cluster = %self.cluster, %error, "heartbeats of removed rows stay as orphans");
        }
    }
}
