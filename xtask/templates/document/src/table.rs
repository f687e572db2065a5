//! One cluster's document in {{Title}}, and the heartbeats beside it. The rest of the contract is
//! `DocumentTable`'s.
#![allow(dead_code, unused_imports, clippy::unused_async, reason = "until the functions are written")]

use async_trait::async_trait;
use membership_core::{
    ClusterName, DocumentRead, DocumentStore, DocumentTable, Durability, Guarantees, Heartbeat, Heartbeats, Recency, Revision, SiloAddress, Stored,
    TableError, TableLimits,
};
use membership_provider::{Provider, StoreProvider, Timeouts};

use crate::config::SCHEMES;
use crate::error::{from_store, not_written};
use crate::{STORE, {{Title}}Config};

/// The largest document that the store takes, in bytes.
const DOCUMENT_BYTES: usize = 1 << 20;

/// Opens tables by connection string: `{{name}}:`.
#[must_use]
pub fn provider() -> impl Provider {
    StoreProvider::new(SCHEMES, {{Title}}Config::from_url, connect)
}

/// The table of a cluster. Nothing is written.
///
/// # Errors
/// What the store says. Cancel safe.
pub async fn connect(config: {{Title}}Config, cluster: ClusterName) -> Result<DocumentTable<{{Title}}Documents>, TableError> {
    let documents = {{Title}}Documents::open(&config, &cluster).await?;
    Ok(DocumentTable::new(cluster, documents))
}

/// One cluster's place in {{Title}}.
pub struct {{Title}}Documents {
    /// The document's key: safe characters only. It may be a prefix of another cluster's.
    document: String,
    timeouts: Timeouts,
}

impl {{Title}}Documents {
    /// The document of this cluster. Nothing is written.
    ///
    /// # Errors
    /// What the store says.
    pub async fn open(config: &{{Title}}Config, cluster: &ClusterName) -> Result<Self, TableError> {
        Ok(Self { document: cluster.store_key(), timeouts: config.timeouts })
    }
}

#[async_trait]
impl DocumentStore for {{Title}}Documents {
    fn store(&self) -> &'static str {
        STORE
    }

    async fn prepare(&self) -> Result<(), TableError> {
        Err(not_written("prepare"))
    }

    async fn reconnect(&self) -> Result<(), TableError> {
        Err(not_written("reconnect"))
    }

    async fn load(&self, _known: Option<&Revision>, _heartbeats: bool, _barrier: bool) -> Result<DocumentRead, TableError> {
        Err(not_written("load"))
    }

    async fn store_if_unchanged(&self, _expected: Option<&Revision>, _text: &str) -> Result<Option<Revision>, TableError> {
        Err(not_written("store_if_unchanged"))
    }

    async fn remove_if_unchanged(&self, _expected: &Revision) -> Result<bool, TableError> {
        Err(not_written("remove_if_unchanged"))
    }

    async fn put_heartbeat(&self, _silo: &SiloAddress, _heartbeat: &Heartbeat) -> Result<(), TableError> {
        Err(not_written("put_heartbeat"))
    }

    async fn put_cluster_cell(&self, _text: &str) -> Result<(), TableError> {
        Err(not_written("put_cluster_cell"))
    }

    async fn remove_heartbeats(&self, _silos: Option<&[SiloAddress]>) -> Result<(), TableError> {
        Err(not_written("remove_heartbeats"))
    }

    fn document_bytes(&self) -> usize {
        DOCUMENT_BYTES
    }

    fn limits(&self) -> TableLimits {
        TableLimits::new(500, 1 << 16, DOCUMENT_BYTES / 2, 1000)
    }

    fn guarantees(&self) -> Guarantees {
        Guarantees::new(Recency::Linearizable, Durability::Kept)
    }
}
