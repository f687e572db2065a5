//! DynamoDB's own cheapest write and read, over the table's client: one item by its key.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use async_trait::async_trait;
use membership_core::{Operation, TableError, TableErrorKind, Yardstick};

use crate::codec;
use crate::link::{Item, Link};

/// As much as a small row.
const CONTENT: &str = "0123456789012345678901234567890123456789012345678901234567890123456789012345678901234567890123456789";
/// No cluster's name is without a slash.
const PARTITION: &str = "yardstick";

static COUNT: AtomicU64 = AtomicU64::new(0);

pub(crate) struct DynamoYardstick {
    link: Arc<Link>,
    key: Item,
}

impl DynamoYardstick {
    pub(crate) fn new(link: Arc<Link>) -> Self {
        let mut key = link.key(format!(
            "{} {} {}",
            link.cluster,
            std::process::id(),
            COUNT.fetch_add(1, Ordering::Relaxed)
        ));
        key.insert(codec::CLUSTER.to_owned(), codec::text(PARTITION));
        Self { link, key }
    }
}

impl fmt::Debug for DynamoYardstick {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DynamoYardstick").finish_non_exhaustive()
    }
}

#[async_trait]
impl Yardstick for DynamoYardstick {
    fn write_is(&self) -> &'static str {
        "PutItem of one item"
    }

    fn read_is(&self) -> &'static str {
        "consistent GetItem of one item"
    }

    async fn write(&self) -> Result<(), TableError> {
        let mut item = self.key.clone();
        item.insert(codec::TEXT.to_owned(), codec::text(CONTENT));
        let request = || {
            self.link
                .client
                .put_item()
                .table_name(&self.link.table)
                .set_item(Some(item.clone()))
                .send()
        };
        self.link
            .ask(true, request)
            .await
            .map(drop)
            .map_err(|failed| failed.error.during(Operation::Commit))
    }

    async fn read(&self) -> Result<(), TableError> {
        let request = || {
            let get = self
                .link
                .client
                .get_item()
                .table_name(&self.link.table)
                .consistent_read(true);
            get.set_key(Some(self.key.clone())).send()
        };
        self.link
            .ask(false, request)
            .await
            .map(drop)
            .map_err(|failed| failed.error.during(Operation::Read))
    }

    async fn remove(&self) -> Result<(), TableError> {
        let request = || {
            self.link
                .client
                .delete_item()
                .table_name(&self.link.table)
                .set_key(Some(self.key.clone()))
                .send()
        };
        match self.link.ask(true, request).await {
            Err(failed) if failed.error.kind() != TableErrorKind::NotInitialized => {
                Err(failed.error.during(Operation::Delete))
            }
            _ => Ok(()),
        }
    }
}
