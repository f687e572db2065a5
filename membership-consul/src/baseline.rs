//! Consul's own cheapest write and read, over the table's client: one key.

use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use membership_core::{Baseline, Operation, TableError};
use membership_provider::baseline::{CONTENT, next_number, unique_name};
use reqwest::Method;

use crate::client::{Client, Inner, Request};
use crate::keys::path;

pub(crate) struct ConsulBaseline {
    client: Arc<Client>,
    key: String,
}

impl ConsulBaseline {
    pub(crate) fn new(table: &Inner) -> Self {
        // No cluster's folder has such a name.
        let key = format!("{}/!baseline/{}", table.config.prefix, unique_name());
        Self {
            client: Arc::clone(&table.client),
            key,
        }
    }

    async fn change(
        &self,
        method: Method,
        body: Option<String>,
        during: Operation,
    ) -> Result<(), TableError> {
        let request = Request {
            method,
            path: format!("/v1/kv/{}", path(&self.key)),
            body,
            writes: true,
        };
        let by = self.client.deadline();
        let done = self.client.ask(&request, &[200], by).await;
        done.map(drop).map_err(|e| e.during(during))
    }
}

impl fmt::Debug for ConsulBaseline {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ConsulBaseline").finish_non_exhaustive()
    }
}

#[async_trait]
impl Baseline for ConsulBaseline {
    fn write_is(&self) -> &'static str {
        "PUT of one key"
    }

    fn read_is(&self) -> &'static str {
        "consistent GET of one key"
    }

    async fn write(&self) -> Result<(), TableError> {
        // Consul does less for a write that changes nothing.
        let content = format!("{CONTENT}{}", next_number());
        self.change(Method::PUT, Some(content), Operation::Commit)
            .await
    }

    async fn read(&self) -> Result<(), TableError> {
        let (request, by) = (Request::get(&self.key), self.client.deadline());
        let done = self.client.keys(&request, by).await;
        done.map(drop).map_err(|e| e.during(Operation::Read))
    }

    async fn remove(&self) -> Result<(), TableError> {
        self.change(Method::DELETE, None, Operation::Delete).await
    }
}
