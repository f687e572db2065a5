//! The contract: one call per method.

use std::sync::Arc;

use async_trait::async_trait;
use membership_core::{
    Baseline, ClusterName, CommitOutcome, CommitRequest, Durability, Guarantees, HeartbeatWrite,
    HintStream, InitializeRequest, MembershipTable, Operation, ReadAnswer, ReadRequest, Recency,
    RowRead, SiloAddress, TableError, TableLimits, VersionToken,
};
use membership_provider::{Provider, StoreProvider};

use crate::STORE;
use crate::baseline::ZkBaseline;
use crate::client::{Inner, LIMITS};
use crate::config::{SCHEMES, ZkConfig};

/// The membership table of one cluster in ZooKeeper. Clones share one session and the last
/// snapshot.
///
/// Needs a tokio runtime with its time and network turned on. The runtime in which the table was
/// connected serves its session: after that runtime was shut down, operations in another one fail
/// until the first failure has replaced the session.
#[derive(Clone)]
pub struct ZkTable(Arc<Inner>);

/// Opens tables by connection string: `zk:`.
#[must_use]
pub fn provider() -> impl Provider {
    StoreProvider::new(SCHEMES, ZkConfig::from_url, ZkTable::connect)
}

/// Shows no secret (clause T15).
impl std::fmt::Debug for ZkTable {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ZkTable")
            .field("cluster", &self.0.cluster)
            .field("config", self.config())
            .finish_non_exhaustive()
    }
}

impl ZkTable {
    /// Opens a session. Changes nothing.
    ///
    /// # Errors
    /// `Configuration`, `PermissionDenied`, or `Unavailable` when no server gives a session; the
    /// error says of each server what is wrong. Cancel safe.
    pub async fn connect(config: ZkConfig, cluster: ClusterName) -> Result<Self, TableError> {
        Ok(Self(Arc::new(Inner::connect(config, cluster).await?)))
    }

    /// The configuration of this table. Its `Debug` output shows no secret.
    #[must_use]
    pub fn config(&self) -> &ZkConfig {
        &self.0.client.config
    }
}

#[async_trait]
impl MembershipTable for ZkTable {
    fn store(&self) -> &'static str {
        STORE
    }

    fn cluster(&self) -> &ClusterName {
        &self.0.cluster
    }

    async fn initialize(&self, request: &InitializeRequest) -> Result<(), TableError> {
        let table = &self.0;
        table
            .run(Operation::Initialize, table.initialize(request))
            .await
    }

    async fn read(&self, request: &ReadRequest) -> Result<ReadAnswer, TableError> {
        let table = &self.0;
        table.run(Operation::Read, table.read(request)).await
    }

    async fn read_row(
        &self,
        silo: &SiloAddress,
        known: Option<&VersionToken>,
    ) -> Result<RowRead, TableError> {
        let table = &self.0;
        table
            .run(Operation::ReadRow, table.read_row(silo, known))
            .await
    }

    async fn commit(&self, request: &CommitRequest) -> Result<CommitOutcome, TableError> {
        let table = &self.0;
        table.run(Operation::Commit, table.commit(request)).await
    }

    async fn update_i_am_alive(&self, write: &HeartbeatWrite) -> Result<(), TableError> {
        let table = &self.0;
        table
            .run(Operation::UpdateIAmAlive, table.update_i_am_alive(write))
            .await
    }

    async fn delete(&self) -> Result<(), TableError> {
        self.0.run(Operation::Delete, self.0.delete()).await
    }

    fn limits(&self) -> TableLimits {
        LIMITS
    }

    fn guarantees(&self) -> Guarantees {
        // A follower may be behind the ensemble; a session sees what it has seen.
        Guarantees::new(Recency::MonotonicPerClient, Durability::Kept)
    }

    fn hints(&self) -> Option<HintStream> {
        self.0.hints.listen()
    }

    fn baseline(&self) -> Option<Box<dyn Baseline>> {
        Some(Box::new(ZkBaseline(Arc::clone(&self.0))))
    }
}
