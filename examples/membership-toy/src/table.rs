//! One cluster's document in the toy store, and the heartbeats in the cells beside it. The rest of
//! the contract is `DocumentTable`'s.

use async_trait::async_trait;
use membership_core::{
    ClusterName, DocumentRead, DocumentStore, DocumentTable, Durability, Guarantees, Heartbeat,
    Recency, Revision, SiloAddress, Stored, TableError, TableLimits,
};
use membership_provider::{Provider, Secret, StoreProvider, StoredHeartbeats, Timeouts};
use toy_store::{Client, Document, Error};

use crate::error::from_store;
use crate::{STORE, ToyConfig, config::SCHEMES};

/// The toy store's own limit.
const DOCUMENT_BYTES: usize = 16 << 20;
/// The cell of the cluster; the others have the names of silos, which begin otherwise.
const CLUSTER_CELL: &str = "cluster";

/// Opens tables by connection string: `toy:`. Nothing is written, and the client connects when it
/// is first used.
#[must_use]
pub fn provider() -> impl Provider {
    StoreProvider::new(SCHEMES, ToyConfig::from_url, |config, cluster| async move {
        let documents = ToyDocuments::new(config, &cluster);
        Ok(DocumentTable::new(cluster, documents))
    })
}

/// One cluster's place in the toy store.
pub struct ToyDocuments {
    /// The document's key: safe characters only. It may be a prefix of another cluster's.
    document: String,
    client: Client,
    timeouts: Timeouts,
}

impl ToyDocuments {
    /// The document of this cluster.
    #[must_use]
    pub fn new(config: ToyConfig, cluster: &ClusterName) -> Self {
        let password = config.password.map(Secret::into_text);
        Self {
            document: cluster.store_key(),
            client: Client::new(config.server.to_string(), password),
            timeouts: config.timeouts,
        }
    }

    /// The answer of a request, or an error when there is none in time.
    async fn ask<T>(&self, call: impl Future<Output = Result<T, Error>>) -> Result<T, TableError> {
        let answer = self.timeouts.limit(STORE, true, call).await?;
        answer.map_err(from_store)
    }

    /// Overwrites a cell beside the document.
    async fn set(&self, cell: &str, text: &str) -> Result<(), TableError> {
        self.ask(self.client.set(&self.document, cell, text)).await
    }
}

#[async_trait]
impl DocumentStore for ToyDocuments {
    fn store(&self) -> &'static str {
        STORE
    }

    async fn reconnect(&self) -> Result<(), TableError> {
        self.client.reconnect();
        Ok(())
    }

    async fn load(
        &self,
        known: Option<&Revision>,
        heartbeats: bool,
        _barrier: bool,
    ) -> Result<DocumentRead, TableError> {
        let known = known.and_then(Revision::number);
        let request = self.client.get(&self.document, known, heartbeats);
        let (document, cells) = self.ask(request).await?;
        let document = match document {
            Document::None => Stored::None,
            Document::Unchanged => Stored::Unchanged,
            Document::Is { revision, text } => Stored::document(revision, text),
        };
        let beats = || StoredHeartbeats::from_cells(cells, CLUSTER_CELL).shown(None);
        Ok(DocumentRead::new(document, heartbeats.then(beats)))
    }

    async fn store_if_unchanged(
        &self,
        expected: Option<&Revision>,
        text: &str,
    ) -> Result<Option<Revision>, TableError> {
        let expected = expected.and_then(Revision::number);
        let request = self.client.put(&self.document, expected, text);
        Ok(self.ask(request).await?.map(Revision::from))
    }

    async fn remove_if_unchanged(&self, expected: &Revision) -> Result<bool, TableError> {
        let Some(expected) = expected.number() else {
            return Ok(false);
        };
        self.ask(self.client.remove(&self.document, expected)).await
    }

    async fn put_heartbeat(
        &self,
        silo: &SiloAddress,
        heartbeat: &Heartbeat,
    ) -> Result<(), TableError> {
        self.set(&silo.to_string(), &heartbeat.to_string()).await
    }

    async fn put_cluster_cell(&self, text: &str) -> Result<(), TableError> {
        self.set(CLUSTER_CELL, text).await
    }

    async fn remove_heartbeats(&self, silos: Option<&[SiloAddress]>) -> Result<(), TableError> {
        let cells = silos.map(|silos| silos.iter().map(ToString::to_string).collect());
        self.ask(self.client.unset(&self.document, cells)).await
    }

    fn document_bytes(&self) -> usize {
        DOCUMENT_BYTES
    }

    fn limits(&self) -> TableLimits {
        TableLimits::new(1000, 1 << 16, DOCUMENT_BYTES / 4, 10_000)
    }

    fn guarantees(&self) -> Guarantees {
        Guarantees::new(Recency::Linearizable, Durability::Kept)
    }
}
