//! The contract: one call per method.

use std::sync::Arc;

use membership_core::{
    Baseline, ClusterName, Durability, Guarantees, HintStream, Recency, TableError,
};
use membership_provider::{Provider, StoreProvider, table_over_inner};

use crate::STORE;
use crate::baseline::EtcdBaseline;
use crate::client::{Inner, LIMITS};
use crate::config::{EtcdConfig, SCHEMES};

/// The membership table of one cluster in etcd. Clones share connections and the last snapshot. One
/// more connection exists while there is a stream of [`hints`](membership_core::MembershipTable::hints).
///
/// Needs a tokio runtime with time and network enabled.
#[derive(Clone)]
pub struct EtcdTable(Arc<Inner>);

/// Opens tables by connection string: `etcd:` and `etcd+https:`.
#[must_use]
pub fn provider() -> impl Provider {
    StoreProvider::new(SCHEMES, EtcdConfig::from_url, EtcdTable::connect)
}

/// Shows no secret (clause T15).
impl std::fmt::Debug for EtcdTable {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("EtcdTable")
            .field("config", &self.0.config)
            .field("cluster", &self.0.cluster)
            .finish_non_exhaustive()
    }
}

impl EtcdTable {
    /// Connects, authenticates where a user is named, and checks that etcd can be used. Changes
    /// nothing. One member that answers is enough, with or without a majority.
    ///
    /// # Errors
    /// `Configuration`, `PermissionDenied`, or `Unavailable` when no member answers. Cancel safe.
    pub async fn connect(config: EtcdConfig, cluster: ClusterName) -> Result<Self, TableError> {
        Ok(Self(Arc::new(Inner::connect(config, cluster).await?)))
    }

    /// The configuration that it was opened with. Its `Debug` output shows no secret.
    #[must_use]
    pub fn config(&self) -> &EtcdConfig {
        &self.0.config
    }
}

table_over_inner!(EtcdTable, STORE, LIMITS, {
    fn guarantees(&self) -> Guarantees {
        Guarantees::new(Recency::Linearizable, Durability::Kept)
    }

    fn hints(&self) -> Option<HintStream> {
        self.0.hints.listen()
    }

    fn baseline(&self) -> Option<Box<dyn Baseline>> {
        Some(Box::new(EtcdBaseline::new(&self.0)))
    }
});
