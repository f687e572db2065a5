//! The contract's methods, one call each.

use std::fmt;
use std::sync::Arc;

use membership_core::{Baseline, ClusterName, Durability, Guarantees, Recency, TableError};
use membership_provider::{Provider, StoreProvider, table_over_inner};

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

table_over_inner!(AzureTable, STORE, LIMITS, {
    fn guarantees(&self) -> Guarantees {
        Guarantees::new(Recency::Linearizable, Durability::Kept)
    }

    fn baseline(&self) -> Option<Box<dyn Baseline>> {
        let client = Arc::clone(&self.0.client);
        Some(Box::new(AzureBaseline::new(client)))
    }
});
