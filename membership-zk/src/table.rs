//! The contract: one call per method.

use std::sync::Arc;

use membership_core::{
    Baseline, ClusterName, Durability, Guarantees, HintStream, Recency, TableError,
};
use membership_provider::{Provider, StoreProvider, table_over_inner};

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

table_over_inner!(ZkTable, STORE, LIMITS, {
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
});
