//! The contract's methods, one call each.

use std::fmt;

use membership_core::{Baseline, ClusterName, Durability, Guarantees, Recency, TableError};
use membership_provider::{Provider, StoreProvider};

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

membership_provider::table_over_inner!(DynamoTable, STORE, LIMITS, {
    fn guarantees(&self) -> Guarantees {
        Guarantees::new(Recency::Linearizable, Durability::Kept)
    }

    fn baseline(&self) -> Option<Box<dyn Baseline>> {
        Some(Box::new(DynamoBaseline::new(self.0.client.clone())))
    }
});
