//! Backends of the two stores in memory: to run, and as examples.

use std::sync::Arc;

use async_trait::async_trait;
use membership_core::{
    ClusterName, DocumentStore, DocumentTable, MembershipTable, MemoryDocuments, MemoryState,
    MemoryStore, TableError,
};

use crate::{Backend, Capability, Checkpoint, Reason, Stop};

/// What a store in the memory of one process cannot stage.
const IN_MEMORY: &[(Capability, Reason)] = &[
    (Capability::Restart, Reason::InMemory),
    (Capability::Unavailable, Reason::InMemory),
    (Capability::Depose, Reason::InMemory),
    (Capability::Recreate, Reason::InMemory),
    (Capability::Reader, Reason::InMemory),
    (Capability::Child, Reason::InMemory),
    (Capability::Secret, Reason::NoSecret),
    (Capability::Proxy, Reason::InMemory),
    (Capability::Hints, Reason::NoHints),
];

const DOCUMENT: &[(Capability, Reason)] = &[
    (Capability::Restart, Reason::InMemory),
    (Capability::Unavailable, Reason::InMemory),
    (Capability::Depose, Reason::InMemory),
    (Capability::Recreate, Reason::InMemory),
    (Capability::Reader, Reason::InMemory),
    (Capability::Child, Reason::InMemory),
    (Capability::Secret, Reason::NoSecret),
    (Capability::Proxy, Reason::InMemory),
    (Capability::Hints, Reason::NoHints),
    (Capability::RefusesOrphanHeartbeats, Reason::SecondRoundTrip),
];

/// The in-memory table.
#[derive(Clone, Debug, Default)]
pub struct Memory {
    store: MemoryStore,
}

#[async_trait]
impl Backend for Memory {
    fn name(&self) -> String {
        "memory".to_owned()
    }

    async fn client(&self, cluster: &ClusterName) -> Result<Arc<dyn MembershipTable>, TableError> {
        Ok(Arc::new(self.store.table(cluster.clone())))
    }

    fn not_applicable(&self) -> &'static [(Capability, Reason)] {
        IN_MEMORY
    }

    async fn put_row(&self, cluster: &ClusterName, key: &str, body: &str) -> Result<(), Stop> {
        self.store.table(cluster.clone()).put_raw_row(key, body);
        Ok(())
    }

    async fn put_version_row(&self, cluster: &ClusterName, text: &str) -> Result<(), Stop> {
        self.store.table(cluster.clone()).put_raw_version_row(text);
        Ok(())
    }

    async fn drop_row(&self, cluster: &ClusterName, key: &str) -> Result<(), Stop> {
        self.store.table(cluster.clone()).drop_raw_row(key);
        Ok(())
    }

    async fn drop_version_row(&self, cluster: &ClusterName) -> Result<(), Stop> {
        self.store.table(cluster.clone()).drop_version_row();
        Ok(())
    }

    async fn count(&self, cluster: &ClusterName) -> Result<usize, Stop> {
        Ok(self.store.table(cluster.clone()).snapshot_state().records())
    }

    async fn wipe(&self, cluster: &ClusterName) -> Result<(), Stop> {
        self.store.table(cluster.clone()).wipe();
        Ok(())
    }

    async fn save(&self, cluster: &ClusterName) -> Result<Checkpoint, Stop> {
        Ok(Box::new(self.store.table(cluster.clone()).snapshot_state()))
    }

    async fn restore(&self, cluster: &ClusterName, saved: &Checkpoint) -> Result<(), Stop> {
        let state = saved
            .downcast_ref::<MemoryState>()
            .ok_or_else(|| Stop::failed("another backend's checkpoint"))?;
        self.store
            .table(cluster.clone())
            .restore_state(state.clone());
        Ok(())
    }
}

/// The table over one document, over documents in memory.
#[derive(Clone, Debug, Default)]
pub struct Document {
    documents: MemoryDocuments,
}

#[async_trait]
impl Backend for Document {
    fn name(&self) -> String {
        "document".to_owned()
    }

    async fn client(&self, cluster: &ClusterName) -> Result<Arc<dyn MembershipTable>, TableError> {
        Ok(Arc::new(DocumentTable::new(
            cluster.clone(),
            self.documents.document(cluster),
        )))
    }

    fn not_applicable(&self) -> &'static [(Capability, Reason)] {
        DOCUMENT
    }

    async fn documents(
        &self,
        cluster: &ClusterName,
    ) -> Result<Option<Box<dyn DocumentStore>>, TableError> {
        Ok(Some(Box::new(self.documents.document(cluster))))
    }
}
