//! The service's own cheapest write and read, with the table's client: one entity, by its keys.

use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use membership_core::{Baseline, Operation, TableError, TableErrorKind};

use crate::batch::Properties;
use crate::client::Client;
use crate::error::error;
use crate::requests::Single;

/// Differs from all clusters, whose partitions contain `~-`.
const PARTITION: &str = "baseline";
const ROW: &str = "baseline";

pub(crate) struct AzureBaseline {
    client: Arc<Client>,
}

impl AzureBaseline {
    pub(crate) const fn new(client: Arc<Client>) -> Self {
        Self { client }
    }
}

impl fmt::Debug for AzureBaseline {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AzureBaseline")
            .field("endpoint", &self.client.endpoint)
            .finish_non_exhaustive()
    }
}

#[async_trait]
impl Baseline for AzureBaseline {
    fn write_is(&self) -> &'static str {
        "Insert Or Merge of one entity"
    }

    fn read_is(&self) -> &'static str {
        "Get of one entity"
    }

    async fn write(&self) -> Result<(), TableError> {
        // As much as a small row.
        let properties = Properties::from_iter([("Body".to_owned(), "x".repeat(100).into())]);
        let (client, during) = (&self.client, Operation::UpdateIAmAlive);
        let written = client.merge(client.deadline(), PARTITION, ROW, &properties, None);
        match written.await.map_err(|e| e.during(during))? {
            Single::Done(_) => Ok(()),
            _ => {
                Err(error(TableErrorKind::NotInitialized, "there is no such table").during(during))
            }
        }
    }

    async fn read(&self) -> Result<(), TableError> {
        let read = self.client.get(self.client.deadline(), PARTITION, ROW);
        let read = read.await.map(drop);
        read.map_err(|e| e.during(Operation::ReadRow))
    }

    async fn remove(&self) -> Result<(), TableError> {
        let client = &self.client;
        let removed = client.remove(client.deadline(), PARTITION, ROW, "*").await;
        removed.map(drop).map_err(|e| e.during(Operation::Delete))
    }
}
