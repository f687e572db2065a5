//! The contract: one call per method.

use std::sync::Arc;

use membership_core::{Baseline, ClusterName, Durability, Guarantees, Recency, TableError};
use membership_provider::{Provider, StoreProvider, table_over_inner};

use crate::STORE;
use crate::baseline::MongoBaseline;
use crate::client::{Deployment, Inner, LIMITS};
use crate::config::{MongoConfig, PROVIDED};

/// The membership table of one cluster in MongoDB. Clones share one client.
///
/// Needs a tokio runtime with its time and network turned on.
#[derive(Clone)]
pub struct MongoTable(Arc<Inner>);

/// Opens tables by connection string: `mongodb:` and, with the feature `srv`,
/// `mongodb+srv:`.
#[must_use]
pub fn provider() -> impl Provider {
    StoreProvider::new(PROVIDED, MongoConfig::from_url, MongoTable::connect)
}

/// Shows no secret (clause T15).
impl std::fmt::Debug for MongoTable {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("MongoTable")
            .field("cluster", &self.0.cluster)
            .field("config", &self.0.config)
            .finish_non_exhaustive()
    }
}

impl MongoTable {
    /// Finds the primary and checks that it can be used. Changes nothing.
    ///
    /// # Errors
    /// `Configuration`, `PermissionDenied`, or `Unavailable` when no primary answers. Cancel safe.
    pub async fn connect(config: MongoConfig, cluster: ClusterName) -> Result<Self, TableError> {
        Ok(Self(Arc::new(Inner::connect(config, cluster).await?)))
    }

    /// The configuration of this table. Its `Debug` output shows no secret.
    #[must_use]
    pub fn config(&self) -> &MongoConfig {
        &self.0.config
    }
}

table_over_inner!(MongoTable, STORE, LIMITS, {
    fn guarantees(&self) -> Guarantees {
        match self.0.deployment {
            // Others may have read what its journal does not have yet when it crashes.
            Deployment::Standalone => Guarantees::new(Recency::Linearizable, Durability::MayBeLost),
            Deployment::Set | Deployment::Sharded => {
                Guarantees::new(self.0.config.recency(), Durability::Kept)
            }
        }
    }

    fn baseline(&self) -> Option<Box<dyn Baseline>> {
        Some(Box::new(MongoBaseline(Arc::clone(&self.0))))
    }
});
