//! One cluster's document in a bucket, and the heartbeats beside it. The rest of the contract is
//! `DocumentTable`'s.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use async_trait::async_trait;
use membership_core::{
    ClusterName, DocumentRead, DocumentStore, DocumentTable, Durability, Guarantees, Heartbeat,
    Recency, Revision, SiloAddress, TableError, TableLimits,
};
use membership_provider::{LastWritten, Provider, StoreProvider};

use crate::cells::Cell;
use crate::client::Client;
use crate::config::SCHEMES;
use crate::keys::{CLUSTER_CELL, Keys, State, silo_cell};
use crate::{NatsConfig, STORE};

/// What a message has beside the document: its headers.
const HEADERS: usize = 1024;
/// The bytes that one row takes in a document, and its heartbeat in an answer.
const ROW: usize = 1024;

/// More silos than any document holds.
const MOST_ROWS: usize = 10_000;

/// Opens tables by connection string: `nats:`.
#[must_use]
pub fn provider() -> impl Provider {
    StoreProvider::new(SCHEMES, NatsConfig::from_url, connect)
}

/// The table of a cluster. Connects; nothing is written.
///
/// # Errors
/// `Unavailable` if no server answers, `PermissionDenied`, and `Configuration` if the servers are
/// too old or the bucket does not fit. Cancel safe.
pub async fn connect(
    config: NatsConfig,
    cluster: ClusterName,
) -> Result<DocumentTable<NatsDocuments>, TableError> {
    let documents = NatsDocuments::open(&config, &cluster).await?;
    Ok(DocumentTable::new(cluster, documents))
}

/// One cluster's place in a bucket.
#[derive(Debug)]
pub struct NatsDocuments {
    pub(crate) client: Client,
    pub(crate) keys: Keys,
    /// On how many servers the bucket is.
    pub(crate) replicas: AtomicUsize,
    /// Whether the bucket's server is one of several.
    pub(crate) in_cluster: AtomicBool,
    /// The newest state of the document that this client has seen.
    pub(crate) seen: Mutex<Option<State>>,
    /// When the bucket was made, and the cells that this client has seen, by their names.
    pub(crate) cells: Mutex<(String, BTreeMap<String, Cell>)>,
    /// The sequences of cells, for the next write.
    pub(crate) written: LastWritten<u64>,
    document_bytes: usize,
}

impl NatsDocuments {
    /// The document of this cluster. Connects; nothing is written.
    ///
    /// # Errors
    /// As [`connect`].
    pub async fn open(config: &NatsConfig, cluster: &ClusterName) -> Result<Self, TableError> {
        let client = Client::open(config.clone()).await?;
        let deadline = config.timeouts.deadline();
        let link = client.ready(deadline).await?;
        let documents = Self {
            keys: Keys::new(&config.bucket, cluster),
            replicas: AtomicUsize::new(config.replicas.unwrap_or(1)),
            in_cluster: AtomicBool::default(),
            seen: Mutex::default(),
            cells: Mutex::default(),
            written: LastWritten::new(MOST_ROWS),
            document_bytes: link.max_payload().saturating_sub(HEADERS),
            client,
        };
        let check = documents.check_bucket(&link);
        documents
            .client
            .in_time(deadline, &link, false, check)
            .await?;
        Ok(documents)
    }
}

#[async_trait]
impl DocumentStore for NatsDocuments {
    fn store(&self) -> &'static str {
        STORE
    }

    async fn prepare(&self) -> Result<(), TableError> {
        self.make_bucket().await
    }

    async fn reconnect(&self) -> Result<(), TableError> {
        self.client.reconnect().await
    }

    async fn load(
        &self,
        known: Option<&Revision>,
        heartbeats: bool,
        barrier: bool,
    ) -> Result<DocumentRead, TableError> {
        self.read(known, heartbeats, barrier).await
    }

    async fn store_if_unchanged(
        &self,
        expected: Option<&Revision>,
        text: &str,
    ) -> Result<Option<Revision>, TableError> {
        self.store(expected, text).await
    }

    async fn remove_if_unchanged(&self, expected: &Revision) -> Result<bool, TableError> {
        self.remove(expected).await
    }

    async fn put_heartbeat(
        &self,
        silo: &SiloAddress,
        heartbeat: &Heartbeat,
    ) -> Result<(), TableError> {
        self.put_cell(&silo_cell(silo), &heartbeat.to_string())
            .await
    }

    async fn put_cluster_cell(&self, text: &str) -> Result<(), TableError> {
        self.put_cell(CLUSTER_CELL, text).await
    }

    async fn remove_heartbeats(&self, silos: Option<&[SiloAddress]>) -> Result<(), TableError> {
        self.remove_cells(self.cells_of(silos)).await
    }

    fn document_bytes(&self) -> usize {
        self.document_bytes
    }

    fn limits(&self) -> TableLimits {
        let bytes = self.document_bytes;
        TableLimits::new(500, bytes / 16, bytes / 2, bytes / ROW)
    }

    fn guarantees(&self) -> Guarantees {
        let recency = match self.replicas.load(Ordering::Relaxed) {
            1 => Recency::Linearizable,
            _ => Recency::MonotonicPerClient,
        };
        let durability = match self.client.config().flushes {
            true => Durability::Kept,
            false => Durability::MayBeLost,
        };
        Guarantees::new(recency, durability)
    }
}
