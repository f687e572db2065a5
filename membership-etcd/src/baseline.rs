//! etcd's own cheapest write and read, over the table's connections: one key.

use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use membership_core::{Baseline, Operation, TableError};
use membership_provider::baseline::{CONTENT, unique_name};
use serde::Serialize;

use crate::client::{Client, Inner, Purpose};
use crate::wire::{Bytes, DELETE, Done, PUT, Put, RANGE, Range};

pub(crate) struct EtcdBaseline {
    client: Arc<Client>,
    key: Bytes,
}

impl EtcdBaseline {
    pub(crate) fn new(table: &Inner) -> Self {
        let name = format!("{} {}", table.cluster.store_key(), unique_name());
        Self {
            client: Arc::clone(&table.client),
            key: table.keys.baseline(&name),
        }
    }

    async fn call(
        &self,
        path: &'static str,
        request: &impl Serialize,
        during: Operation,
    ) -> Result<(), TableError> {
        let purpose = match during {
            Operation::Read => Purpose::Read,
            _ => Purpose::Write,
        };
        let by = self.client.deadline();
        let done = self.client.call::<Done>(path, request, purpose, by).await;
        done.map(drop).map_err(|e| e.during(during))
    }
}

impl fmt::Debug for EtcdBaseline {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EtcdBaseline").finish_non_exhaustive()
    }
}

#[async_trait]
impl Baseline for EtcdBaseline {
    fn write_is(&self) -> &'static str {
        "put of one key"
    }

    fn read_is(&self) -> &'static str {
        "linearizable range of one key"
    }

    async fn write(&self) -> Result<(), TableError> {
        let put = Put {
            key: self.key.clone(),
            value: CONTENT.into(),
        };
        self.call(PUT, &put, Operation::Commit).await
    }

    async fn read(&self) -> Result<(), TableError> {
        let range = Range::one(self.key.clone());
        self.call(RANGE, &range, Operation::Read).await
    }

    async fn remove(&self) -> Result<(), TableError> {
        let range = Range::one(self.key.clone());
        self.call(DELETE, &range, Operation::Delete).await
    }
}
