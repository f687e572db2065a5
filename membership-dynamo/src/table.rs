//! The contract's methods, one call each.

use std::fmt;

use async_trait::async_trait;
use membership_core::{
    Baseline, ClusterName, CommitOutcome, CommitRequest, Durability, Guarantees, HeartbeatWrite,
    InitializeRequest, MembershipTable, Operation, ReadAnswer, ReadRequest, Recency, RowRead,
    SiloAddress, TableError, TableLimits, VersionToken,
};
use membership_provider::{Provider, StoreProvider, gone_since};

use crate::STORE;
use crate::baseline::DynamoBaseline;
use crate::client::{Inner, LIMITS};
use crate::config::{DynamoConfig, SCHEMES};

/// The membership table of one cluster in DynamoDB. Clones share a client and a snapshot cache.
///
/// Needs a tokio runtime with its time and network turned on.
#[derive(Clone)]
pub struct DynamoTable(Inner);

/// Opens tables by connection string: `dynamodb:`.
/// Its schema is the input of `aws dynamodb create-table --cli-input-json`.
#[must_use]
pub fn provider() -> impl Provider {
    StoreProvider::new(SCHEMES, DynamoConfig::from_url, DynamoTable::connect)
        .with_schema(DynamoConfig::schema)
}

/// Shows no secret (clause T15).
impl fmt::Debug for DynamoTable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DynamoTable")
            .field("endpoint", &self.0.client.endpoint)
            .field("table", &self.0.client.table)
            .field("cluster", &self.0.cluster)
            .finish_non_exhaustive()
    }
}

impl DynamoTable {
    /// Finds region and credentials, and inspects the table, which need not exist yet. Changes
    /// nothing.
    ///
    /// # Errors
    /// `Configuration`, `PermissionDenied`, `ForeignTable` where a table of this name has other
    /// keys, or `Unavailable` when no server answers. Cancel safe.
    pub async fn connect(config: DynamoConfig, cluster: ClusterName) -> Result<Self, TableError> {
        let inner = Inner::open(config, cluster).await?;
        inner.inspect().await?;
        Ok(Self(inner))
    }

    /// The configuration. Its `Debug` output shows no secret.
    #[must_use]
    pub fn config(&self) -> &DynamoConfig {
        &self.0.config
    }
}

#[async_trait]
impl MembershipTable for DynamoTable {
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
        let read = self.0.begin().read(request).await;
        read.map_err(|e| gone_since(e, request.known.as_ref()).during(Operation::Read))
    }

    async fn read_row(
        &self,
        silo: &SiloAddress,
        known: Option<&VersionToken>,
    ) -> Result<RowRead, TableError> {
        let read = self.0.begin().read_row(silo, known).await;
        read.map_err(|e| gone_since(e, known).during(Operation::ReadRow))
    }

    async fn commit(&self, request: &CommitRequest) -> Result<CommitOutcome, TableError> {
        request.validate(&LIMITS, STORE)?;
        self.0.begin().commit(request).await.map_err(|e| {
            gone_since(e, Some(&request.expected))
                .during(Operation::Commit)
                .of_commit(request.attempt)
        })
    }

    async fn update_i_am_alive(&self, write: &HeartbeatWrite) -> Result<(), TableError> {
        write.validate(STORE)?;
        let written = self.0.begin().update_i_am_alive(write).await;
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
        Some(Box::new(DynamoBaseline::new(self.0.client.clone())))
    }
}
