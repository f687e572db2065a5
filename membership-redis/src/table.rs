//! The contract: one call per method.

use std::sync::Arc;

use membership_core::{Baseline, ClusterName, Guarantees, HintStream, Recency, TableError};
use membership_provider::{Provider, StoreProvider, table_over_inner};

use crate::STORE;
use crate::baseline::RedisBaseline;
use crate::client::{Inner, LIMITS};
use crate::config::{RedisConfig, SCHEMES};

/// The membership table of one cluster in Redis or Valkey. Clones share one connection, which is
/// made when an operation needs it and again after it has ended. A second one exists while there is
/// a stream of [`hints`](membership_core::MembershipTable::hints).
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

table_over_inner!(RedisTable, STORE, LIMITS, {
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
});
