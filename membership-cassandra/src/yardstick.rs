//! Cassandra's own cheapest write and read, over the table's session: one row by its key, at a quorum.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use async_trait::async_trait;
use membership_core::{Operation, TableError, TableErrorKind, Yardstick};

use crate::codec::text;
use crate::link::Link;

/// As much as a small row.
const CONTENT: &str = "0123456789012345678901234567890123456789012345678901234567890123456789012345678901234567890123456789";

static COUNT: AtomicU64 = AtomicU64::new(0);

pub(crate) struct CassandraYardstick {
    link: Arc<Link>,
    /// No cluster's name is without a slash.
    partition: String,
}

impl CassandraYardstick {
    pub(crate) fn new(link: Arc<Link>) -> Self {
        let partition = format!(
            "yardstick {} {}",
            std::process::id(),
            COUNT.fetch_add(1, Ordering::Relaxed)
        );
        Self { link, partition }
    }
}

impl fmt::Debug for CassandraYardstick {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CassandraYardstick").finish_non_exhaustive()
    }
}

#[async_trait]
impl Yardstick for CassandraYardstick {
    fn write_is(&self) -> &'static str {
        "INSERT of one row at a quorum, without a condition"
    }

    fn read_is(&self) -> &'static str {
        "SELECT of one row at a quorum"
    }

    async fn write(&self) -> Result<(), TableError> {
        let values = (text(&self.partition), text("it"), text(CONTENT));
        let written = self
            .link
            .execute(self.link.deadline(), true, |all| &all.write_cell, values)
            .await;
        written
            .map(drop)
            .map_err(|failed| failed.error.during(Operation::Commit))
    }

    async fn read(&self) -> Result<(), TableError> {
        let values = (text(&self.partition), text("it"));
        let read = self
            .link
            .execute(self.link.deadline(), false, |all| &all.beat, values)
            .await;
        read.map(drop)
            .map_err(|failed| failed.error.during(Operation::Read))
    }

    async fn remove(&self) -> Result<(), TableError> {
        let values = (text(&self.partition),);
        match self
            .link
            .execute(
                self.link.deadline(),
                true,
                |all| &all.remove_all_beats,
                values,
            )
            .await
        {
            Err(failed) if failed.error.kind() != TableErrorKind::NotInitialized => {
                Err(failed.error.during(Operation::Delete))
            }
            _ => Ok(()),
        }
    }
}
