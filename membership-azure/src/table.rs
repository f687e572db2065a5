//! The contract's methods, one call each.

use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use membership_core::{
    Baseline, ClusterName, CommitOutcome, CommitRequest, Durability, Guarantees, HeartbeatWrite,
    InitializeRequest, MembershipTable, Operation, ReadAnswer, ReadRequest, Recency, RowRead,
    SiloAddress, TableError, TableLimits, VersionToken,
};
use membership_provider::{Provider, StoreProvider};

use crate::STORE;
use crate::baseline::AzureBaseline;
use crate::client::{Inner, LIMITS};
use crate::config::{AzureTableConfig, SCHEMES};

/// The membership table of one cluster in Azure Table storage. Clones share their connections.
///
/// Needs a tokio runtime with its time and network turned on.
#[derive(Clone)]
pub struct AzureTable(Arc<Inner>);

/// Opens tables by connection string: `azure-table:`.
#[must_use]
pub fn provider() -> impl Provider {
    StoreProvider::new(SCHEMES, AzureTableConfig::from_url, AzureTable::connect)
}

/// Shows no secret (clause T15).
impl fmt::Debug for AzureTable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AzureTable")
            .field("config", &self.0.config)
            .field("cluster", &self.0.cluster)
            .finish_non_exhaustive()
    }
}

impl AzureTable {
    /// The table of this cluster. Sends nothing: the service has no connections to open, and the
    /// first operation shows whether the credential is accepted.
    ///
    /// # Errors
    /// `Configuration`, with what to write instead.
    pub async fn connect(
        config: AzureTableConfig,
        cluster: ClusterName,
    ) -> Result<Self, TableError> {
        Ok(Self(Arc::new(Inner::open(config, cluster)?)))
    }

    /// The configuration. Its `Debug` output shows no secret.
    #[must_use]
    pub fn config(&self) -> &AzureTableConfig {
        &self.0.config
    }
}

#[async_trait]
impl MembershipTable for AzureTable {
    fn store(&self) -> &'static str {
        STORE
    }

    fn cluster(&self) -> &ClusterName {
        &self.0.cluster
    }

    async fn initialize(&self, request: &InitializeRequest) -> Result<(), TableError> {
        let done = self.0.initialize(request).await;
        done.map_err(|e| e.during(Operation::Initialize))
    }

    async fn read(&self, request: &ReadRequest) -> Result<ReadAnswer, TableError> {
        // Reads within one region are linearizable: a barrier adds nothing.
        let read = self.0.read(request).await;
        read.map_err(|e| e.during(Operation::Read).of_a_read())
    }

    async fn read_row(
        &self,
        silo: &SiloAddress,
        known: Option<&VersionToken>,
    ) -> Result<RowRead, TableError> {
        let read = self.0.read_row(silo, known).await;
        read.map_err(|e| e.during(Operation::ReadRow).of_a_read())
    }

    async fn commit(&self, request: &CommitRequest) -> Result<CommitOutcome, TableError> {
        request.validate(&LIMITS, STORE)?;
        let done = self.0.commit(request).await;
        done.map_err(|e| e.during(Operation::Commit).of_commit(request.attempt))
    }

    async fn update_i_am_alive(&self, write: &HeartbeatWrite) -> Result<(), TableError> {
        write.validate(STORE)?;
        let written = self.0.update_i_am_alive(write).await;
        written.map_err(|e| e.during(Operation::UpdateIAmAlive))
    }

    async fn delete(&self) -> Result<(), TableError> {
        let deleted = self.0.delete().await;
        deleted.map_err(|e| e.during(Operation::Delete))
    }

    fn limits(&self) -> TableLimits {
        LIMITS
    }

    fn guarantees(&self) -> Guarantees {
        Guarantees::new(Recency::Linearizable, Durability::Kept)
    }

    fn baseline(&self) -> Option<Box<dyn Baseline>> {
        let client = Arc::clone(&self.0.client);
        Some(Box::new(AzureBaseline::new(client)))
    }
}
