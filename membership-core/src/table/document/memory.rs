//! Documents in memory, for tests of document tables.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;

use super::store::{DocumentRead, DocumentStore, Revision, Stored};
use crate::table::{Durability, Guarantees, Recency, TableError, TableLimits};
use crate::{ClusterName, Heartbeat, Heartbeats, SiloAddress};

/// The limit of MongoDB: 16 MiB.
const DOCUMENT_BYTES: usize = 16 << 20;

#[derive(Debug, Default)]
struct Memory {
    revisions: u64,
    documents: BTreeMap<ClusterName, (u64, String)>,
    heartbeats: BTreeMap<ClusterName, Heartbeats>,
}

/// Documents of many clusters in one memory. Clones share it.
#[derive(Clone, Debug, Default)]
pub struct MemoryDocuments {
    memory: Arc<Mutex<Memory>>,
}

impl MemoryDocuments {
    /// Creates an empty memory.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// The document of one cluster in this memory.
    #[must_use]
    pub fn document(&self, cluster: &ClusterName) -> MemoryDocumentStore {
        MemoryDocumentStore {
            memory: self.memory.clone(),
            cluster: cluster.clone(),
        }
    }
}

/// The document of one cluster in memory.
#[derive(Clone, Debug)]
pub struct MemoryDocumentStore {
    memory: Arc<Mutex<Memory>>,
    cluster: ClusterName,
}

impl MemoryDocumentStore {
    fn lock(&self) -> MutexGuard<'_, Memory> {
        self.memory.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// For tests: the text of the document, if it exists.
    #[must_use]
    pub fn raw(&self) -> Option<String> {
        self.lock()
            .documents
            .get(&self.cluster)
            .map(|(_, text)| text.clone())
    }

    /// For tests: replaces the text of the document, or removes the document, without any check.
    /// Heartbeats stay.
    pub fn put_raw(&self, text: Option<String>) {
        let mut memory = self.lock();
        memory.revisions += 1;
        let revision = memory.revisions;
        match text {
            Some(text) => memory
                .documents
                .insert(self.cluster.clone(), (revision, text)),
            None => memory.documents.remove(&self.cluster),
        };
    }
}

#[async_trait]
impl DocumentStore for MemoryDocumentStore {
    fn store(&self) -> &'static str {
        "document"
    }

    async fn load(
        &self,
        known: Option<&Revision>,
        heartbeats: bool,
        _barrier: bool,
    ) -> Result<DocumentRead, TableError> {
        let memory = self.lock();
        let document = match memory.documents.get(&self.cluster) {
            None => Stored::None,
            Some((number, _)) if known == Some(&Revision::from(*number)) => Stored::Unchanged,
            Some((number, text)) => Stored::Document {
                revision: Revision::from(*number),
                text: text.clone(),
            },
        };
        let heartbeats = heartbeats.then(|| {
            memory
                .heartbeats
                .get(&self.cluster)
                .cloned()
                .unwrap_or_default()
        });
        Ok(DocumentRead::new(document, heartbeats))
    }

    async fn store_if_unchanged(
        &self,
        expected: Option<&Revision>,
        text: &str,
    ) -> Result<Option<Revision>, TableError> {
        let mut memory = self.lock();
        let now = memory
            .documents
            .get(&self.cluster)
            .map(|(number, _)| Revision::from(*number));
        if now.as_ref() != expected {
            return Ok(None);
        }
        memory.revisions += 1;
        let revision = memory.revisions;
        memory
            .documents
            .insert(self.cluster.clone(), (revision, text.to_owned()));
        Ok(Some(Revision::from(revision)))
    }

    async fn remove_if_unchanged(&self, expected: &Revision) -> Result<bool, TableError> {
        let mut memory = self.lock();
        let same = |(number, _): &(u64, String)| Revision::from(*number) == *expected;
        if !memory.documents.get(&self.cluster).is_some_and(same) {
            return Ok(false);
        }
        memory.documents.remove(&self.cluster);
        Ok(true)
    }

    async fn put_heartbeat(
        &self,
        silo: &SiloAddress,
        heartbeat: &Heartbeat,
    ) -> Result<(), TableError> {
        self.lock()
            .heartbeats
            .entry(self.cluster.clone())
            .or_default()
            .silos
            .insert(*silo, *heartbeat);
        Ok(())
    }

    async fn put_cluster_cell(&self, text: &str) -> Result<(), TableError> {
        self.lock()
            .heartbeats
            .entry(self.cluster.clone())
            .or_default()
            .cluster = Some(text.to_owned());
        Ok(())
    }

    async fn remove_heartbeats(&self, silos: Option<&[SiloAddress]>) -> Result<(), TableError> {
        let mut memory = self.lock();
        match silos {
            None => {
                memory.heartbeats.remove(&self.cluster);
            }
            Some(silos) => {
                if let Some(heartbeats) = memory.heartbeats.get_mut(&self.cluster) {
                    for silo in silos {
                        heartbeats.silos.remove(silo);
                    }
                }
            }
        }
        Ok(())
    }

    fn document_bytes(&self) -> usize {
        DOCUMENT_BYTES
    }

    fn limits(&self) -> TableLimits {
        TableLimits::new(1000, 1 << 16, 1 << 23, 20_000)
    }

    fn guarantees(&self) -> Guarantees {
        Guarantees::new(Recency::Linearizable, Durability::Kept)
    }
}
