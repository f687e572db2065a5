//! The contract over the transactions of `schema.rs`. Complete as it stands.

use std::fmt;

use async_trait::async_trait;
use membership_core::encoding::encode_version_row;
use membership_core::{
    ClusterName, CommitOutcome, CommitRequest, Conflict, Decision, Durability, Guarantees, HeartbeatWrite, InitializeRequest,
    MAX_CLUSTER_CELL_BYTES, MembershipTable, Operation, ReadAnswer, ReadRequest, Recency, Row, RowChange, RowRead, SiloAddress, Snapshot,
    TableError, TableErrorKind, TableLimits, VersionToken, usable_version_row,
};
use membership_provider::{Provider, StoreProvider};

use crate::error::error;
use crate::schema::{Access, LIMITS, Store};
use crate::config::SCHEMES;
use crate::{STORE, {{Title}}Config};

/// How often `initialize` starts over when somebody else was a moment faster.
const COLLISIONS: u32 = 16;
/// How many rows `delete` removes in one transaction.
const AT_ONCE: usize = 500;

/// The membership table of one cluster in {{Title}}.
pub struct {{Title}}Table {
    store: Store,
    cluster: ClusterName,
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
        Ok(Self { store: Store::open(&config, &cluster).await?, cluster })
    }

    /// Whether the version row was made, or found.
    async fn make(&self, request: &InitializeRequest) -> Result<bool, TableError> {
        let mut tx = self.store.begin(Access::Write).await?;
        let stored = tx.version_row().await?;
        let stray = if stored.is_none() { tx.any_row().await? } else { None };
        if stored.is_some() || stray.is_some() {
            return usable_version_row(stored.as_deref(), stray.as_deref(), None, Operation::Initialize, STORE).map(|_| true);
        }
        let row = request.version_row();
        if !tx.insert_version_row(&encode_version_row(&row)).await? {
            return Ok(false);
        }
        tx.commit().await.map(|()| true)
    }

    async fn commit_now(&self, request: &CommitRequest) -> Result<CommitOutcome, TableError> {
        let mut tx = self.store.begin(Access::Write).await?;
        let stored = tx.version_row().await?;
        let next = match request.decide(stored.as_deref(), &LIMITS, STORE)? {
            Decision::Write(next) => next,
            Decision::Committed(token) => return Ok(CommitOutcome::Committed(token)),
            Decision::Conflict(row) => return Ok(CommitOutcome::Conflict(Conflict::new(row.recent.last().cloned(), None))),
        };
        for change in &request.changes {
            let fits = match change {
                RowChange::Insert(row) => tx.insert_row(row).await?,
                RowChange::Update(row) => tx.update_row(row).await?,
                RowChange::Remove(key) => tx.remove_row(key).await?,
            };
            if !fits {
                // The newest commit is the one before this one, which does not happen.
                let newest = next.recent.iter().rev().nth(1).cloned();
                return Ok(CommitOutcome::Conflict(Conflict::new(newest, None)));
            }
        }
        tx.replace_version_row(&encode_version_row(&next)).await?;
        tx.commit().await?;
        Ok(CommitOutcome::Committed(request.next_token(&[])))
    }

    /// Marks the version row, so that an interrupted delete shows; then rows, some at a time; the
    /// version row last.
    async fn delete_now(&self) -> Result<(), TableError> {
        let mut marked = false;
        loop {
            let mut tx = self.store.begin(Access::Write).await?;
            match usable_version_row(tx.version_row().await?.as_deref(), None, None, Operation::Delete, STORE) {
                // Made anew since this delete has marked it: another delete was faster, and this
                // cluster is not ours to delete.
                Ok(_) if marked => return Ok(()),
                Ok(row) => {
                    tx.replace_version_row(&encode_version_row(&row.marked_as_deleting())).await?;
                    tx.commit().await?;
                    marked = true;
                    continue;
                }
                Err(e) if matches!(e.kind(), TableErrorKind::ForeignTable | TableErrorKind::NewerLayout) => return Err(e),
                // Marked, gone, or damaged.
                Err(_) => marked = true,
            }
            let removed = tx.remove_rows(AT_ONCE).await?;
            if removed < AT_ONCE {
                tx.remove_the_rest().await?;
            }
            tx.commit().await?;
            if removed < AT_ONCE {
                return Ok(());
            }
        }
    }
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
        let during = Operation::Initialize;
        self.store.prepare().await.map_err(|e| e.during(during))?;
        for _ in 0..COLLISIONS {
            match self.make(request).await {
                Ok(true) => return Ok(()),
                Ok(false) => {}
                Err(e) if e.kind() == TableErrorKind::Busy => {}
                Err(e) => return Err(e.during(during)),
            }
        }
        Err(error(TableErrorKind::Busy, "others kept making the same table").during(during))
    }

    async fn read(&self, request: &ReadRequest) -> Result<ReadAnswer, TableError> {
        let read = async {
            if request.new_connection {
                self.store.reconnect().await?;
            }
            let mut tx = self.store.begin(Access::Read { barrier: request.barrier }).await?;
            let stored = tx.version_row().await?;
            let stray = if stored.is_none() { tx.any_row().await? } else { None };
            let row = usable_version_row(stored.as_deref(), stray.as_deref(), request.known.as_ref(), Operation::Read, STORE)?;
            let unchanged = request.known.as_ref().is_some_and(|known| known.version() == row.version);
            let rows = if unchanged { Vec::new() } else { tx.rows().await? };
            let heartbeats = if request.heartbeats { Some(tx.heartbeats().await?) } else { None };
            if unchanged {
                return Ok(ReadAnswer::Unchanged { heartbeats });
            }
            let rows = rows.into_iter().map(|(key, body)| Row::decode(key, body)).collect();
            let snapshot = Snapshot::new(row.token(&[]), row, rows);
            Ok(ReadAnswer::Snapshot { snapshot, heartbeats })
        };
        read.await.map_err(|e: TableError| e.during(Operation::Read).of_a_read())
    }

    async fn read_row(&self, silo: &SiloAddress, known: Option<&VersionToken>) -> Result<RowRead, TableError> {
        let read = async {
            let mut tx = self.store.begin(Access::Read { barrier: false }).await?;
            let stored = tx.version_row().await?;
            let stray = if stored.is_none() { tx.any_row().await? } else { None };
            let version = usable_version_row(stored.as_deref(), stray.as_deref(), known, Operation::ReadRow, STORE)?;
            let key = silo.row_key();
            let row = tx.row(&key).await?.map(|body| Row::decode(key.as_str(), body));
            let heartbeat = if row.is_some() { tx.heartbeat(&key).await? } else { None };
            Ok(RowRead::new(version.token(&[]), row, heartbeat).with_version_row(version))
        };
        read.await.map_err(|e: TableError| e.during(Operation::ReadRow).of_a_read())
    }

    async fn commit(&self, request: &CommitRequest) -> Result<CommitOutcome, TableError> {
        request.validate(&LIMITS, STORE)?;
        self.commit_now(request).await.map_err(|e| e.during(Operation::Commit).of_commit(request.attempt))
    }

    async fn update_i_am_alive(&self, write: &HeartbeatWrite) -> Result<(), TableError> {
        let during = Operation::UpdateIAmAlive;
        match write {
            HeartbeatWrite::Silo { silo, heartbeat } => {
                let there = self.store.put_heartbeat(&silo.row_key(), heartbeat).await.map_err(|e| e.during(during))?;
                let missing = || error(TableErrorKind::NoSuchRow, "the silo has no row").with_key(silo.row_key()).during(during);
                if there { Ok(()) } else { Err(missing()) }
            }
            HeartbeatWrite::Cluster { text } if text.len() > MAX_CLUSTER_CELL_BYTES => {
                Err(error(TableErrorKind::LimitExceeded, "the cluster's cell takes 4096 bytes").during(during))
            }
            HeartbeatWrite::Cluster { text } => self.store.put_cluster_cell(text).await.map_err(|e| e.during(during)),
        }
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
