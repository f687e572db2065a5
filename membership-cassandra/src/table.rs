//! The contract's methods, one call each.

use std::fmt;
use std::sync::Arc;

use membership_core::{Baseline, ClusterName, Guarantees, Recency, TableError};
use membership_provider::{Provider, StoreProvider, table_over_inner};

use crate::STORE;
use crate::baseline::CassandraBaseline;
use crate::client::{Inner, LIMITS};
use crate::config::{CassandraConfig, SCHEMES};

/// The membership table of one cluster in Cassandra or ScyllaDB. Clones share a session and a
/// snapshot cache.
///
/// Needs a tokio runtime with its time and network turned on.
#[derive(Clone)]
pub struct CassandraTable(Arc<Inner>);

/// Opens tables by connection string: `cassandra:`.
/// Its schema is keyspace and tables, for `cqlsh`.
#[must_use]
pub fn provider() -> impl Provider {
    StoreProvider::new(SCHEMES, CassandraConfig::from_url, CassandraTable::connect)
        .with_schema(CassandraConfig::schema)
}

/// Shows no secret (clause T15).
impl fmt::Debug for CassandraTable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CassandraTable")
            .field("endpoint", &self.0.client.endpoint)
            .field("keyspace", &self.0.client.config.keyspace)
            .field("cluster", &self.0.cluster)
            .finish_non_exhaustive()
    }
}

impl CassandraTable {
    /// Connects, and checks that the servers accept the credentials, and whether they flush what
    /// they acknowledge. Keyspace and tables need not exist yet. Changes nothing.
    ///
    /// # Errors
    /// `Configuration`, `PermissionDenied`, or `Unavailable` when no node answers. Cancel safe.
    pub async fn connect(
        config: CassandraConfig,
        cluster: ClusterName,
    ) -> Result<Self, TableError> {
        let mut inner = Inner::connect(config, cluster).await?;
        inner.inspect().await?;
        inner.durability = inner.client.durability().await;
        Ok(Self(Arc::new(inner)))
    }

    /// The configuration. Its `Debug` output shows no secret.
    #[must_use]
    pub fn config(&self) -> &CassandraConfig {
        &self.0.client.config
    }
}

table_over_inner!(CassandraTable, STORE, LIMITS, {
    fn guarantees(&self) -> Guarantees {
        Guarantees::new(Recency::Linearizable, self.0.durability)
    }

    fn baseline(&self) -> Option<Box<dyn Baseline>> {
        let client = Arc::clone(&self.0.client);
        Some(Box::new(CassandraBaseline::new(client)))
    }
});
