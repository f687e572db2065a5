//! etcd's own cheapest write and read, over the table's connections: one key.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use async_trait::async_trait;
use membership_core::{Operation, TableError, Yardstick};

use crate::keys::Keys;
use crate::link::{Link, Purpose};
use crate::wire::{Bytes, DELETE, Done, PUT, Put, RANGE, Range};

/// As much as a small row.
const CONTENT: &str = "0123456789012345678901234567890123456789012345678901234567890123456789012345678901234567890123456789";

static COUNT: AtomicU64 = AtomicU64::new(0);

pub(crate) struct EtcdYardstick {
    link: Arc<Link>,
    key: Bytes,
}

impl EtcdYardstick {
    pub(crate) fn new(link: Arc<Link>, keys: &Keys, cluster: &str) -> Self {
        let name = format!(
            "{cluster} {} {}",
            std::process::id(),
            COUNT.fetch_add(1, Ordering::Relaxed)
        );
        Self {
            link,
            key: keys.yardstick(&name),
        }
    }
}

impl fmt::Debug for EtcdYardstick {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EtcdYardstick").finish_non_exhaustive()
    }
}

#[async_trait]
impl Yardstick for EtcdYardstick {
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
        self.link
            .call::<Done>(PUT, &put, Purpose::Write, self.link.deadline())
            .await
            .map(drop)
            .map_err(|e| e.during(Operation::Commit))
    }

    async fn read(&self) -> Result<(), TableError> {
        let range = Range::one(self.key.clone());
        self.link
            .call::<Done>(RANGE, &range, Purpose::Read, self.link.deadline())
            .await
            .map(drop)
            .map_err(|e| e.during(Operation::Read))
    }

    async fn remove(&self) -> Result<(), TableError> {
        let range = Range::one(self.key.clone());
        self.link
            .call::<Done>(DELETE, &range, Purpose::Write, self.link.deadline())
            .await
            .map(drop)
            .map_err(|e| e.during(Operation::Delete))
    }
}
