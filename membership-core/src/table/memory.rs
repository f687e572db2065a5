//! A table in memory: for tests, for the virtual-time harness, and as the reference for other
//! stores.
//!
//! It is deterministic and never reads a clock. Every operation also exists without `async`,
//! because the harness calls it from one thread in virtual time. Tests can also stage faults of a
//! real store: a deleted, restored or damaged table.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;

use super::state::{Applied, TableState};
use super::{
    CommitOutcome, CommitRequest, Durability, Guarantees, HeartbeatWrite, InitializeRequest,
    MembershipTable, Operation, ReadAnswer, ReadRequest, Recency, RowRead, TableError,
    TableErrorKind, TableLimits,
};
use crate::encoding::decode_version_row;
use crate::{ClusterName, Heartbeat, Heartbeats, Row, SiloAddress, VersionToken};

const STORE: &str = "memory";

/// Default limits: larger than those of any real store.
const LIMITS: TableLimits = TableLimits::new(10_000, 1 << 20, 1 << 26, 1_000_000);

type Clusters = Arc<Mutex<BTreeMap<ClusterName, MemoryState>>>;

/// Tables of many clusters in one memory. Clones share it.
///
/// ```
/// use membership_core::{
///     ClusterName, ClusterKey, InitializeRequest, MemoryStore, ReadAnswer, ReadRequest, SharedSettings,
///     TableId,
/// };
/// let store = MemoryStore::new();
/// let cluster: ClusterName = "blue".parse()?;
/// let (one, two) = (store.table(cluster.clone()), store.table(cluster));
/// let cluster_key = ClusterKey::new([9; 32]); // random
/// one.initialize_sync(&InitializeRequest::new(TableId::new(7), SharedSettings::default(), cluster_key))?;
/// let ReadAnswer::Snapshot { snapshot, .. } = two.read_sync(&ReadRequest::all())? else {
///     unreachable!()
/// };
/// assert_eq!(snapshot.table_id(), TableId::new(7));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Default)]
pub struct MemoryStore {
    clusters: Clusters,
}

impl MemoryStore {
    /// Creates an empty store.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// A client of one cluster's table in this store.
    #[must_use]
    pub fn table(&self, cluster: ClusterName) -> MemoryTable {
        MemoryTable {
            clusters: self.clusters.clone(),
            cluster,
            limits: LIMITS,
        }
    }
}

impl std::fmt::Debug for MemoryStore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let names: Vec<String> = lock(&self.clusters)
            .keys()
            .map(ToString::to_string)
            .collect();
        f.debug_struct("MemoryStore")
            .field("clusters", &names)
            .finish()
    }
}

fn lock(clusters: &Clusters) -> MutexGuard<'_, BTreeMap<ClusterName, MemoryState>> {
    // Every change replaces whole values, so a panic elsewhere leaves a legal state.
    clusters.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Everything that is stored for one cluster, as in a backup. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct MemoryState {
    table: TableState,
    beats: BTreeMap<SiloAddress, Heartbeat>,
    cell: Option<String>,
}

impl MemoryState {
    /// How many records this is: rows, heartbeats, the version row and the cluster's own cell.
    #[must_use]
    pub fn records(&self) -> usize {
        let single =
            usize::from(self.table.version_row.is_some()) + usize::from(self.cell.is_some());
        self.table.rows.len() + self.beats.len() + single
    }

    fn heartbeats(&self) -> Heartbeats {
        let stored = self.beats.iter();
        let stored = stored.map(|(silo, beat)| (*silo, *beat, self.table.has_silo(silo)));
        Heartbeats::from_stored(stored, self.cell.clone())
    }
}

impl TableState {
    fn has_silo(&self, silo: &SiloAddress) -> bool {
        self.rows.row(silo).is_some() || self.rows.by_key(&silo.row_key()).is_some()
    }
}

/// One cluster's table in memory. Clones share the store; each clone is a separate client.
#[derive(Clone)]
pub struct MemoryTable {
    clusters: Clusters,
    cluster: ClusterName,
    limits: TableLimits,
}

impl std::fmt::Debug for MemoryTable {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("MemoryTable")
            .field("cluster", &self.cluster)
            .finish_non_exhaustive()
    }
}

impl MemoryTable {
    /// Creates a table in a store of its own.
    #[must_use]
    pub fn new(cluster: ClusterName) -> Self {
        MemoryStore::new().table(cluster)
    }

    /// The same client with other limits.
    #[must_use]
    pub fn with_limits(mut self, limits: TableLimits) -> Self {
        self.limits = limits;
        self
    }

    fn with<T>(&self, f: impl FnOnce(Option<&MemoryState>) -> T) -> T {
        f(lock(&self.clusters).get(&self.cluster))
    }

    fn change<T>(&self, f: impl FnOnce(&mut MemoryState) -> T) -> T {
        let mut clusters = lock(&self.clusters);
        let state = clusters.entry(self.cluster.clone()).or_default();
        f(state)
    }

    /// [`MembershipTable::initialize`] without `async`.
    ///
    /// # Errors
    /// The errors of that method.
    pub fn initialize_sync(&self, request: &InitializeRequest) -> Result<(), TableError> {
        self.change(|state| state.table.initialize(request, STORE).map(|_| ()))
    }

    /// [`MembershipTable::read`] without `async`.
    ///
    /// # Errors
    /// The errors of that method.
    pub fn read_sync(&self, request: &ReadRequest) -> Result<ReadAnswer, TableError> {
        self.with(|state| {
            let none = MemoryState::default();
            let state = state.unwrap_or(&none);
            let row = state
                .table
                .current(request.known.as_ref(), Operation::Read, STORE)?;
            let heartbeats = request.heartbeats.then(|| state.heartbeats());
            Ok(match &request.known {
                Some(known) if known.version() == row.version => {
                    ReadAnswer::Unchanged { heartbeats }
                }
                _ => ReadAnswer::Snapshot {
                    snapshot: state.table.snapshot(row),
                    heartbeats,
                },
            })
        })
    }

    /// [`MembershipTable::read_row`] without `async`.
    ///
    /// # Errors
    /// The errors of that method.
    pub fn read_row_sync(
        &self,
        silo: &SiloAddress,
        known: Option<&VersionToken>,
    ) -> Result<RowRead, TableError> {
        self.with(|state| {
            let none = MemoryState::default();
            let state = state.unwrap_or(&none);
            let version_row = state.table.current(known, Operation::ReadRow, STORE)?;
            let row = state.table.rows.by_key(&silo.row_key()).cloned();
            let heartbeat = row.as_ref().and_then(|_| state.beats.get(silo).copied());
            Ok(RowRead::new(version_row.token(&[]), row, heartbeat)
                .with_version_row(version_row.clone()))
        })
    }

    /// [`MembershipTable::commit`] without `async`.
    ///
    /// # Errors
    /// The errors of that method.
    pub fn commit_sync(&self, request: &CommitRequest) -> Result<CommitOutcome, TableError> {
        request.validate(&self.limits, STORE)?;
        self.change(
            |state| match state.table.commit(request, &self.limits, STORE)? {
                Applied::Not(answer) => Ok(answer),
                Applied::Now(token) => {
                    for change in &request.changes {
                        if let super::RowChange::Remove(key) = change
                            && let Ok(silo) = key.parse()
                        {
                            state.beats.remove(&silo);
                        }
                    }
                    Ok(CommitOutcome::Committed(token))
                }
            },
        )
    }

    /// [`MembershipTable::update_i_am_alive`] without `async`.
    ///
    /// # Errors
    /// The errors of that method; `NoSuchRow` for a silo without a row.
    pub fn update_i_am_alive_sync(&self, write: &HeartbeatWrite) -> Result<(), TableError> {
        let during = Operation::UpdateIAmAlive;
        write.validate(STORE)?;
        self.change(|state| {
            state.table.current(None, during, STORE)?;
            match write {
                HeartbeatWrite::Silo { silo, heartbeat } if state.table.has_silo(silo) => {
                    state.beats.insert(*silo, *heartbeat);
                    Ok(())
                }
                HeartbeatWrite::Silo { silo, .. } => {
                    let (kind, message) = (TableErrorKind::NoSuchRow, "the silo has no row");
                    Err(TableError::new(kind, during, STORE, message).with_key(silo.row_key()))
                }
                HeartbeatWrite::Cluster { text } => {
                    state.cell = Some(text.clone());
                    Ok(())
                }
            }
        })
    }

    /// [`MembershipTable::delete`] without `async`.
    ///
    /// # Errors
    /// The errors of that method.
    pub fn delete_sync(&self) -> Result<(), TableError> {
        let mut clusters = lock(&self.clusters);
        if let Some(state) = clusters.get(&self.cluster) {
            state.table.may_delete(STORE)?;
        }
        clusters.remove(&self.cluster);
        Ok(())
    }

    /// For tests: removes the cluster, as if the store had been emptied.
    pub fn wipe(&self) {
        lock(&self.clusters).remove(&self.cluster);
    }

    /// For tests: returns a backup of the cluster.
    #[must_use]
    pub fn snapshot_state(&self) -> MemoryState {
        self.with(|state| state.cloned().unwrap_or_default())
    }

    /// For tests: restores a backup, whatever happened since.
    pub fn restore_state(&self, state: MemoryState) {
        self.change(|now| *now = state);
    }

    /// For tests: stores any text under any key without any check; the version does not change.
    pub fn put_raw_row(&self, key: impl Into<String>, body: impl Into<String>) {
        self.change(|state| state.table.rows.insert(Row::decode(key, body)));
    }

    /// For tests: removes a row and leaves its heartbeat; the version does not change.
    pub fn drop_raw_row(&self, key: &str) {
        self.change(|state| state.table.rows.remove(key));
    }

    /// For tests: replaces the version row by any text.
    pub fn put_raw_version_row(&self, text: &str) {
        self.change(|state| state.table.version_row = Some(decode_version_row(text).map(Arc::new)));
    }

    /// For tests: removes the version row and leaves the rows.
    pub fn drop_version_row(&self) {
        self.change(|state| state.table.version_row = None);
    }
}

#[async_trait]
impl MembershipTable for MemoryTable {
    fn store(&self) -> &'static str {
        STORE
    }

    fn cluster(&self) -> &ClusterName {
        &self.cluster
    }

    async fn initialize(&self, request: &InitializeRequest) -> Result<(), TableError> {
        self.initialize_sync(request)
    }

    async fn read(&self, request: &ReadRequest) -> Result<ReadAnswer, TableError> {
        self.read_sync(request)
    }

    async fn read_row(
        &self,
        silo: &SiloAddress,
        known: Option<&VersionToken>,
    ) -> Result<RowRead, TableError> {
        self.read_row_sync(silo, known)
    }

    async fn commit(&self, request: &CommitRequest) -> Result<CommitOutcome, TableError> {
        self.commit_sync(request)
    }

    async fn update_i_am_alive(&self, write: &HeartbeatWrite) -> Result<(), TableError> {
        self.update_i_am_alive_sync(write)
    }

    async fn delete(&self) -> Result<(), TableError> {
        self.delete_sync()
    }

    fn limits(&self) -> TableLimits {
        self.limits
    }

    fn guarantees(&self) -> Guarantees {
        Guarantees::new(Recency::Linearizable, Durability::Kept)
    }
}
