//! DynamoDB's own cheapest write and read, with the table's client: one item by its key.

use std::fmt;

use async_trait::async_trait;
use membership_core::{Baseline, Operation, TableError, TableErrorKind};
use membership_provider::baseline::{CONTENT, unique_name};

use crate::client::{Client, Item};
use crate::codec;
use crate::keys;

/// Differs from all clusters, whose names contain a slash.
const PARTITION: &str = "baseline";

pub(crate) struct DynamoBaseline {
    client: Client,
    key: Item,
}

impl DynamoBaseline {
    pub(crate) fn new(client: Client) -> Self {
        let mut key = client.key(format!("{} {}", client.cluster, unique_name()));
        key.insert(keys::CLUSTER.to_owned(), codec::text(PARTITION));
        Self { client, key }
    }
}

impl fmt::Debug for DynamoBaseline {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DynamoBaseline").finish_non_exhaustive()
    }
}

#[async_trait]
impl Baseline for DynamoBaseline {
    fn write_is(&self) -> &'static str {
        "PutItem of one item"
    }

    fn read_is(&self) -> &'static str {
        "consistent GetItem of one item"
    }

    async fn write(&self) -> Result<(), TableError> {
        let mut item = self.key.clone();
        item.insert(keys::TEXT.to_owned(), codec::text(CONTENT));
        let client = &self.client;
        let put = client.sdk().put_item().table_name(&client.table);
        let put = put.set_item(Some(item));
        let written = client.send(true, || put.clone().send()).await;
        written
            .map(drop)
            .map_err(|failed| failed.error.during(Operation::Commit))
    }

    async fn read(&self) -> Result<(), TableError> {
        let client = &self.client;
        let get = client.sdk().get_item().table_name(&client.table);
        let get = get.consistent_read(true).set_key(Some(self.key.clone()));
        let read = client.send(false, || get.clone().send()).await;
        read.map(drop)
            .map_err(|failed| failed.error.during(Operation::Read))
    }

    async fn remove(&self) -> Result<(), TableError> {
        let client = &self.client;
        let delete = client.sdk().delete_item().table_name(&client.table);
        let delete = delete.set_key(Some(self.key.clone()));
        match client.send(true, || delete.clone().send()).await {
            Err(failed) if failed.error.kind() != TableErrorKind::NotInitialized => {
                Err(failed.error.during(Operation::Delete))
            }
            _ => Ok(()),
        }
    }
}
