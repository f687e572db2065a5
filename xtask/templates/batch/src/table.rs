//! The contract over the batches of `codec.rs`. Complete as it stands.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use membership_core::encoding::encode_version_row;
use membership_core::{
    ClusterName, CommitOutcome, CommitRequest, Conflict, Decision, Durability, Guarantees, HeartbeatWrite, InitializeRequest,
    MAX_CLUSTER_CELL_BYTES, MembershipTable, Operation, ReadAnswer, ReadRequest, Recency, Row, RowChange, RowRead, Rows, SiloAddress,
    Snapshot, TableError, TableErrorKind, TableLimits, VersionRow, VersionToken, usable_version_row,
};
use membership_provider::{Provider, StoreProvider, StoredHeartbeats};

use crate::codec::{Batch, LIMITS, Store, Stored, Tag};
use crate::error::error;
use crate::config::SCHEMES;
use crate::{STORE, {{Title}}Config};

/// How often a batch that was refused is judged anew. Each refusal is somebody's progress.
const COLLISIONS: u32 = 32;

/// The membership table of one cluster in {{Title}}.
pub struct {{Title}}Table {
    store: Store,
    cluster: ClusterName,
    /// The last version row seen: a commit that is based on it takes one request.
    seen: Mutex<Option<(Tag, String)>>,
}

/// Opens tables by connection string: `{{name}}:`.
#[must_use]
pub fn provider() -> impl Provider {
    StoreProvider::new(SCHEMES, {{Title}}Config::from_url, {{Title}}Table::connect)
}

impl fmt::Debug for {{Title}}Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("{{Title}}Table").field("cluster", &self.cluster).finish_non_exhaustive()
    }
}

impl {{Title}}Table {
    /// The table of this cluster. Nothing is written.
    ///
    /// # Errors
    /// What the store says. Cancel safe.
    pub async fn connect(config: {{Title}}Config, cluster: ClusterName) -> Result<Self, TableError> {
        Ok(Self { store: Store::open(&config, &cluster).await?, cluster, seen: Mutex::default() })
    }

    fn remember(&self, version_row: Option<(Tag, String)>) {
        *self.seen.lock().unwrap_or_else(PoisonError::into_inner) = version_row;
    }

    async fn load(&self, heartbeats: bool, barrier: bool) -> Result<Stored, TableError> {
        let stored = self.store.read(heartbeats, barrier).await.map_err(TableError::of_a_read)?;
        self.remember(stored.version_row.clone());
        Ok(stored)
    }

    /// Sends a batch. If its future is dropped, or its answer lost, the next one looks anew.
    async fn write(&self, base: Option<&Tag>, version_row: Option<&str>, changes: &[RowChange]) -> Result<bool, TableError> {
        self.remember(None);
        match self.store.batch(base, version_row, changes).await? {
            Batch::Refused => Ok(false),
            Batch::Applied(tag) => {
                self.remember(version_row.map(|text| (tag, text.to_owned())));
                Ok(true)
            }
        }
    }

    async fn commit_now(&self, request: &CommitRequest) -> Result<CommitOutcome, TableError> {
        // What was seen is as good as what is loaded, because the store compares the tag; but only
        // its word on success counts.
        let mut base = self.seen.lock().unwrap_or_else(PoisonError::into_inner).clone();
        // A refusal may be this very commit, sent twice by a client library: from then on the
        // commit id is looked for.
        let mut attempt = request.clone();
        for _ in 0..COLLISIONS {
            let (from_memory, (tag, text), rows) = match base.take() {
                Some(seen) => (true, seen, Rows::new()),
                None => {
                    let stored = self.load(false, true).await?;
                    let rows = decode(stored.rows);
                    let version_row = stored.version_row.ok_or_else(|| {
                        error(TableErrorKind::TableReplaced, "the version row that was known is gone")
                    })?;
                    (false, version_row, rows)
                }
            };
            let next = match attempt.decide(Some(&text), &LIMITS, STORE) {
                Ok(Decision::Write(next)) => next,
                Ok(_) | Err(_) if from_memory => continue,
                Ok(Decision::Committed(token)) => return Ok(CommitOutcome::Committed(token)),
                Ok(Decision::Conflict(row)) => return Ok(conflict(&row, rows)),
                Err(e) => return Err(e),
            };
            let fits = |change: &RowChange| matches!(change, RowChange::Insert(_)) != rows.by_key(change.key()).is_some();
            if !from_memory && !request.changes.iter().all(fits) {
                let current = usable_version_row(Some(&text), None, None, Operation::Commit, STORE)?;
                return Ok(conflict(&current, rows));
            }
            if self.write(Some(&tag), Some(&encode_version_row(&next)), &request.changes).await? {
                self.forget_heartbeats(request).await;
                return Ok(CommitOutcome::Committed(request.next_token(&[])));
            }
            attempt = attempt.again();
        }
        Err(error(TableErrorKind::Busy, "the version row changed under every attempt"))
    }

    /// Heartbeats of removed rows go too. Where that fails they stay as orphans, which is allowed,
    /// and go with the next `delete`.
    async fn forget_heartbeats(&self, request: &CommitRequest) {
        let removed = request.changes.iter().filter(|change| matches!(change, RowChange::Remove(_)));
        let keys: Vec<String> = removed.map(|change| change.key().to_owned()).collect();
        if !keys.is_empty() {
            let _ = self.store.remove_heartbeats(Some(&keys)).await;
        }
    }

    async fn initialize_now(&self, request: &InitializeRequest) -> Result<(), TableError> {
        self.store.prepare().await?;
        let row = request.version_row();
        for _ in 0..COLLISIONS {
            let stored = self.load(false, true).await?;
            let (text, stray) = (stored.version_row.as_ref().map(|(_, text)| text.as_str()), stored.rows.first().map(|(key, _)| key.as_str()));
            if text.is_some() || stray.is_some() {
                return usable_version_row(text, stray, None, Operation::Initialize, STORE).map(|_| ());
            }
            if self.write(None, Some(&encode_version_row(&row)), &[]).await? {
                return Ok(());
            }
        }
        Err(error(TableErrorKind::Busy, "others kept making the same table"))
    }

    /// Marks the version row, so that an interrupted delete shows; then rows, some at a time; the
    /// version row last.
    async fn delete_now(&self) -> Result<(), TableError> {
        let mut marked = false;
        for _ in 0..COLLISIONS {
            let stored = self.load(false, true).await?;
            let Some((mut tag, mut text)) = stored.version_row else {
                // Rows without a version row cannot be guarded by it; each batch removes what is
                // there.
                for rows in stored.rows.chunks(LIMITS.rows_per_commit) {
                    let removes: Vec<RowChange> = rows.iter().map(|(key, _)| RowChange::Remove(key.clone())).collect();
                    self.store.batch(None, None, &removes).await?;
                }
                return self.store.remove_heartbeats(None).await;
            };
            match usable_version_row(Some(&text), None, None, Operation::Delete, STORE) {
                // Made anew since this delete has marked it: another delete was faster, and this
                // cluster is not ours to delete.
                Ok(_) if marked => return Ok(()),
                Ok(row) => {
                    text = encode_version_row(&row.marked_as_deleting());
                    marked = self.write(Some(&tag), Some(&text), &[]).await?;
                    continue;
                }
                Err(e) if matches!(e.kind(), TableErrorKind::ForeignTable | TableErrorKind::NewerLayout) => return Err(e),
                // Marked, or damaged.
                Err(_) => marked = true,
            }
            let mut whole = true;
            for rows in stored.rows.chunks(LIMITS.rows_per_commit) {
                let removes: Vec<RowChange> = rows.iter().map(|(key, _)| RowChange::Remove(key.clone())).collect();
                match self.store.batch(Some(&tag), Some(&text), &removes).await? {
                    Batch::Applied(next) => tag = next,
                    // Another delete is at work as well.
                    Batch::Refused => whole = false,
                }
            }
            self.store.remove_heartbeats(None).await?;
            if whole && self.write(Some(&tag), None, &[]).await? {
                return Ok(());
            }
        }
        Err(error(TableErrorKind::Busy, "the version row changed under every attempt"))
    }
}

fn decode(rows: Vec<(String, String)>) -> Rows {
    rows.into_iter().map(|(key, body)| Row::decode(key, body)).collect()
}

fn conflict(row: &VersionRow, rows: Rows) -> CommitOutcome {
    let snapshot = Snapshot::new(row.token(&[]), Arc::new(row.clone()), rows);
    CommitOutcome::Conflict(Conflict::new(row.recent.last().cloned(), Some(snapshot)))
}

#[async_trait]
impl MembershipTable for {{Title}}Table {
    fn store(&self) -> &'static str {
        STORE
    }

    fn cluster(&self) -> &ClusterName {
        &self.cluster
    }

    async fn initialize(&self, request: &InitializeRequest) -> Result<(), TableError> {
        self.initialize_now(request).await.map_err(|e| e.during(Operation::Initialize))
    }

    async fn read(&self, request: &ReadRequest) -> Result<ReadAnswer, TableError> {
        if request.new_connection {
            self.store.reconnect().await.map_err(|e| e.during(Operation::Read).of_a_read())?;
        }
        let stored = self.load(request.heartbeats, request.barrier).await.map_err(|e| e.during(Operation::Read))?;
        let (text, stray) = (stored.version_row.as_ref().map(|(_, text)| text.as_str()), stored.rows.first().map(|(key, _)| key.as_str()));
        let row = usable_version_row(text, stray, request.known.as_ref(), Operation::Read, STORE)?;
        let rows = decode(stored.rows);
        // Those without a row are told apart (clause T8).
        let heartbeats = request.heartbeats.then(|| StoredHeartbeats::from(&stored.heartbeats).shown(&rows));
        Ok(match &request.known {
            Some(known) if known.version() == row.version => ReadAnswer::Unchanged { heartbeats },
            _ => ReadAnswer::Snapshot { snapshot: Snapshot::new(row.token(&[]), row, rows), heartbeats },
        })
    }

    async fn read_row(&self, silo: &SiloAddress, known: Option<&VersionToken>) -> Result<RowRead, TableError> {
        let (during, key) = (Operation::ReadRow, silo.row_key());
        let stored = self.store.read_row(&key).await.map_err(|e| e.during(during).of_a_read())?;
        let (text, stray) = (stored.version_row.as_ref().map(|(_, text)| text.as_str()), stored.row.as_ref().map(|_| key.as_str()));
        let version = usable_version_row(text, stray, known, during, STORE)?;
        let row = stored.row.map(|body| Row::decode(key, body));
        Ok(RowRead::new(version.token(&[]), row, stored.heartbeat).with_version_row(version))
    }

    async fn commit(&self, request: &CommitRequest) -> Result<CommitOutcome, TableError> {
        request.validate(&LIMITS, STORE)?;
        self.commit_now(request).await.map_err(|e| e.during(Operation::Commit).of_commit(request.attempt))
    }

    async fn update_i_am_alive(&self, write: &HeartbeatWrite) -> Result<(), TableError> {
        match write {
            HeartbeatWrite::Silo { silo, heartbeat } => self.store.put_heartbeat(&silo.row_key(), heartbeat).await,
            HeartbeatWrite::Cluster { text } if text.len() > MAX_CLUSTER_CELL_BYTES => {
                Err(error(TableErrorKind::LimitExceeded, "the cluster's cell takes 4096 bytes"))
            }
            HeartbeatWrite::Cluster { text } => self.store.put_cluster_cell(text).await,
        }
        .map_err(|e| e.during(Operation::UpdateIAmAlive))
    }

    async fn delete(&self) -> Result<(), TableError> {
        self.delete_now().await.map_err(|e| e.during(Operation::Delete))
    }

    fn limits(&self) -> TableLimits {
        LIMITS
    }

    fn guarantees(&self) -> Guarantees {
        Guarantees::new(Recency::Linearizable, Durability::Kept)
    }
}
