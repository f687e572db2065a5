//! The contract: one call per method.

use std::sync::Arc;

use membership_core::{
    Baseline, ClusterName, Durability, Guarantees, HintStream, Recency, TableError,
};
use membership_provider::{Provider, StoreProvider, table_over_inner};

use crate::STORE;
use crate::baseline::ConsulBaseline;
use crate::client::{Inner, LIMITS};
use crate::config::{ConsulConfig, SCHEMES};

/// The membership table of one cluster in Consul. Clones share an HTTP client and the last
/// snapshot.
///
/// Needs a tokio runtime with time and network enabled.
#[derive(Clone)]
pub struct ConsulTable(Arc<Inner>);

/// Opens tables by connection string: `consul:` and `consul+https:`.
/// Its schema is the policy that silos need.
#[must_use]
pub fn provider() -> impl Provider {
    StoreProvider::new(SCHEMES, ConsulConfig::from_url, ConsulTable::connect)
        .with_schema(ConsulConfig::schema)
}

/// Shows no secret (clause T15).
impl std::fmt::Debug for ConsulTable {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ConsulTable")
            .field("at", &self.0.client.at())
            .field("folder", &self.0.keys.root())
            .finish_non_exhaustive()
    }
}

impl ConsulTable {
    /// Reads the environment for what the configuration leaves out, and asks for one key of the
    /// cluster's folder, which need not exist. Changes nothing.
    ///
    /// # Errors
    /// `Configuration`, `PermissionDenied`, or `Unavailable` when no server answers or leads.
    /// Cancel safe.
    pub async fn connect(config: ConsulConfig, cluster: ClusterName) -> Result<Self, TableError> {
        Ok(Self(Arc::new(Inner::connect(config, cluster).await?)))
    }

    /// The configuration that it was opened with. Its `Debug` output shows no secret.
    #[must_use]
    pub fn config(&self) -> &ConsulConfig {
        &self.0.config
    }
}

table_over_inner!(ConsulTable, STORE, LIMITS, {
    fn guarantees(&self) -> Guarantees {
        Guarantees::new(Recency::Linearizable, Durability::Kept)
    }

    fn hints(&self) -> Option<HintStream> {
        self.0.hints.listen()
    }

    fn baseline(&self) -> Option<Box<dyn Baseline>> {
        Some(Box::new(ConsulBaseline::new(&self.0)))
    }
});
