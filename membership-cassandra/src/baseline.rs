//! Cassandra's own cheapest write and read, with the table's session: one row by its key, at a
//! quorum.

use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use membership_core::{Baseline, Operation, TableError, TableErrorKind};
use membership_provider::baseline::{CONTENT, unique_name};

use crate::client::Client;
use crate::codec::text;

pub(crate) struct CassandraBaseline {
    client: Arc<Client>,
    /// Differs from all clusters, whose names contain a slash.
    partition: String,
}

impl CassandraBaseline {
    pub(crate) fn new(client: Arc<Client>) -> Self {
        let partition = format!("baseline {}", unique_name());
        Self { client, partition }
    }
}

impl fmt::Debug for CassandraBaseline {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CassandraBaseline").finish_non_exhaustive()
    }
}

#[async_trait]
impl Baseline for CassandraBaseline {
    fn write_is(&self) -> &'static str {
        "INSERT of one row at a quorum, without a condition"
    }

    fn read_is(&self) -> &'static str {
        "SELECT of one row at a quorum"
    }

    async fn write(&self) -> Result<(), TableError> {
        let values = (text(&self.partition), text("it"), text(CONTENT));
        let written = self
            .client
            .execute(
                self.client.deadline(),
                true,
                |all| &all.write_baseline,
                values,
            )
            .await;
        written
            .map(drop)
            .map_err(|failed| failed.error.during(Operation::Commit))
    }

    async fn read(&self) -> Result<(), TableError> {
        let values = (text(&self.partition), text("it"));
        let read = self
            .client
            .execute(self.client.deadline(), false, |all| &all.heartbeat, values)
            .await;
        read.map(drop)
            .map_err(|failed| failed.error.during(Operation::Read))
    }

    async fn remove(&self) -> Result<(), TableError> {
        let values = (text(&self.partition),);
        match self
            .client
            .execute(
                self.client.deadline(),
                true,
                |all| &all.remove_all_heartbeats,
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
