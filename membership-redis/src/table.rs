//! The contract: one call per method.

use std::sync::Arc;

use async_trait::async_trait;
use membership_core::{
    Baseline, ClusterName, CommitOutcome, CommitRequest, Guarantees, HeartbeatWrite, HintStream,
    InitializeRequest, MembershipTable, Operation, ReadAnswer, ReadRequest, Recency, RowRead,
    SiloAddress, TableError, TableLimits, VersionToken,
};
use membership_provider::{Provider, StoreProvider};

use crate::STORE;
use crate::baseline::RedisBaseline;
use crate::client::{Inner, LIMITS};
use crate::config::{RedisConfig, SCHEMES};

/// The membership table of one cluster in Redis or Valkey. Clones share one connection, which is
/// made when an operation needs it and again after it has ended. A second one exists while there is
/// a stream of [`hints`](MembershipTable::hints).
///
/// Needs a tokio runtime with time and network enabled.
#[derive(Clone)]
pub struct RedisTable(Arc<Inner>);

/// Opens tables by connection string: `redis:`, `rediss:`, `redis+sentinel:` and `redis+cluster:`.
#[must_use]
pub fn provider() -> impl Provider {
    StoreProvider::new(SCHEMES, RedisConfig::from_url, RedisTable::connect)
}

/// Shows no secret (clause T15).
impl std::fmt::Debug for RedisTable {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RedisTable")
            .field("servers", &self.0.config.shown())
            .field("cluster", &self.0.cluster)
            .field("prefix", &self.0.config.prefix)
            .finish_non_exhaustive()
    }
}

impl RedisTable {
    /// Connects and checks that the servers can be used. Changes nothing but their script cache.
    ///
    /// # Errors
    /// `Configuration`, `PermissionDenied`, or `Unavailable` when no server answers. Cancel safe.
    pub async fn connect(config: RedisConfig, cluster: ClusterName) -> Result<Self, TableError> {
        Ok(Self(Arc::new(Inner::connect(config, cluster).await?)))
    }

    /// The configuration that it was opened with. Its `Debug` output shows no secret.
    #[must_use]
    pub fn config(&self) -> &RedisConfig {
        &self.0.config
    }
}

#[async_trait]
impl MembershipTable for RedisTable {
    fn store(&self) -> &'static str {
        STORE
    }

    fn cluster(&self) -> &ClusterName {
        &self.0.cluster
    }

    async fn initialize(&self, request: &InitializeRequest) -> Result<(), TableError> {
        let done = self.0.initialize(request).await;
        done.map_err(|e| self.0.during(Operation::Initialize, e))
    }

    async fn read(&self, request: &ReadRequest) -> Result<ReadAnswer, TableError> {
        let answer = self.0.read(request).await;
        answer.map_err(|e| self.0.during(Operation::Read, e))
    }

    async fn read_row(
        &self,
        silo: &SiloAddress,
        known: Option<&VersionToken>,
    ) -> Result<RowRead, TableError> {
        let row = self.0.read_row(silo, known).await;
        row.map_err(|e| self.0.during(Operation::ReadRow, e))
    }

    async fn commit(&self, request: &CommitRequest) -> Result<CommitOutcome, TableError> {
        request.validate(&LIMITS, STORE)?;
        let outcome = self.0.commit(request).await;
        outcome.map_err(|e| {
            self.0
                .during(Operation::Commit, e)
                .of_commit(request.attempt)
        })
    }

    async fn update_i_am_alive(&self, write: &HeartbeatWrite) -> Result<(), TableError> {
        write.validate(STORE)?;
        let done = self.0.heartbeat(write).await;
        done.map_err(|e| self.0.during(Operation::UpdateIAmAlive, e))
    }

    async fn delete(&self) -> Result<(), TableError> {
        let done = self.0.delete().await;
        done.map_err(|e| self.0.during(Operation::Delete, e))
    }

    fn limits(&self) -> TableLimits {
        LIMITS
    }

    fn guarantees(&self) -> Guarantees {
        // After a failover, a master that does not know of it yet answers with old data.
        let reads = match self.0.client.is_linearizable() {
            true => Recency::Linearizable,
            false => Recency::MonotonicPerClient,
        };
        Guarantees::new(reads, self.0.config.durability)
    }

    fn hints(&self) -> Option<HintStream> {
        self.0.hints.listen()
    }

    fn baseline(&self) -> Option<Box<dyn Baseline>> {
        Some(Box::new(RedisBaseline::new(&self.0)))
    }
}
