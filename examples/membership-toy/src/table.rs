//! One cluster's document in the toy store, and the heartbeats in the cells beside it. The rest of the contract is `DocumentTable`'s.

use std::time::Duration;

use async_trait::async_trait;
use membership_core::{
    ClusterName, DocumentRead, DocumentStore, Durability, Guarantees, Heartbeat, Heartbeats,
    Recency, Revision, SiloAddress, Stored, TableError, TableLimits,
};
use toy_store::{Client, Document};

use crate::error::in_time;
use crate::{STORE, ToyConfig};

/// The toy store's own limit.
const DOCUMENT_BYTES: usize = 16 << 20;
/// The cell of the cluster; the others have the names of silos, which begin otherwise.
const CLUSTER_CELL: &str = "cluster";

/// One cluster's place in the toy store.
pub struct ToyDocuments {
    /// The document's key: safe characters only. It may be a prefix of another cluster's.
    document: String,
    client: Client,
    timeout: Duration,
}

impl ToyDocuments {
    /// The document of this cluster. Connects when it is first used.
    ///
    /// # Errors
    /// None; a store that connects here says what is wrong.
    pub async fn open(config: &ToyConfig, cluster: &ClusterName) -> Result<Self, TableError> {
        let client = Client::new(config.address.clone(), config.password.clone());
        Ok(Self {
            document: cluster.store_key(),
            client,
            timeout: config.timeout,
        })
    }
}

#[async_trait]
impl DocumentStore for ToyDocuments {
    fn store(&self) -> &'static str {
        STORE
    }

    async fn load(
        &self,
        known: Option<&Revision>,
        heartbeats: bool,
        _barrier: bool,
    ) -> Result<DocumentRead, TableError> {
        let known = known.and_then(Revision::number);
        let (document, mut cells) = in_time(
            self.timeout,
            self.client.get(&self.document, known, heartbeats),
        )
        .await?;
        let document = match document {
            Document::None => Stored::None,
            Document::Unchanged => Stored::Unchanged,
            Document::Is { revision, text } => Stored::Document {
                revision: Revision::from(revision),
                text,
            },
        };
        let cluster = cells.remove(CLUSTER_CELL);
        let silos = cells
            .iter()
            .filter_map(|(silo, heartbeat)| Some((silo.parse().ok()?, heartbeat.parse().ok()?)))
            .collect();
        Ok(DocumentRead::new(
            document,
            heartbeats.then_some(Heartbeats::new(silos, cluster)),
        ))
    }

    async fn store_if_unchanged(
        &self,
        expected: Option<&Revision>,
        text: &str,
    ) -> Result<Option<Revision>, TableError> {
        let expected = expected.and_then(Revision::number);
        let revision = in_time(
            self.timeout,
            self.client.put(&self.document, expected, text),
        )
        .await?;
        Ok(revision.map(Revision::from))
    }

    async fn remove_if_unchanged(&self, expected: &Revision) -> Result<bool, TableError> {
        let Some(expected) = expected.number() else {
            return Ok(false);
        };
        in_time(self.timeout, self.client.remove(&self.document, expected)).await
    }

    async fn put_heartbeat(
        &self,
        silo: &SiloAddress,
        heartbeat: &Heartbeat,
    ) -> Result<(), TableError> {
        in_time(
            self.timeout,
            self.client
                .set(&self.document, &silo.to_string(), &heartbeat.to_string()),
        )
        .await
    }

    async fn put_cluster_cell(&self, text: &str) -> Result<(), TableError> {
        in_time(
            self.timeout,
            self.client.set(&self.document, CLUSTER_CELL, text),
        )
        .await
    }

    async fn remove_heartbeats(&self, silos: Option<&[SiloAddress]>) -> Result<(), TableError> {
        let cells = silos.map(|silos| silos.iter().map(ToString::to_string).collect());
        in_time(self.timeout, self.client.unset(&self.document, cells)).await
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
