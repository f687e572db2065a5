//! What the server itself costs: one row by primary key, over the same connection and with the same
//! settings as the membership table.

use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use membership_core::{Baseline, Operation, TableError};
use membership_provider::baseline::{CONTENT, unique_name};

use super::client::{Call, Inner};
use super::error::Phase;
use super::keys::literal;
use super::sql::Statement;

/// One row in the table of the clusters' cells.
pub(super) struct PostgresBaseline {
    inner: Arc<Inner>,
    key: String,
}

impl PostgresBaseline {
    pub(super) fn new(inner: &Arc<Inner>) -> Self {
        Self {
            inner: Arc::clone(inner),
            // No cluster has this key: after `~` there is a `-` or a hexadecimal digit.
            key: format!("~baseline {}", unique_name()),
        }
    }
}

impl fmt::Debug for PostgresBaseline {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PostgresBaseline").finish_non_exhaustive()
    }
}

#[async_trait]
impl Baseline for PostgresBaseline {
    fn write_is(&self) -> &'static str {
        "UPDATE of one row by primary key"
    }

    fn read_is(&self) -> &'static str {
        "SELECT of one row by primary key"
    }

    async fn write(&self) -> Result<(), TableError> {
        let key = self.key.clone();
        let write = |call: Call| async move {
            let written = call
                .ask(Statement::BaselineWrite, &[&key, &CONTENT])
                .await?;
            if written.is_empty() {
                call.ask(Statement::BaselineInsert, &[&key, &CONTENT])
                    .await?;
            }
            Ok(())
        };
        self.inner.run(Operation::Commit, write).await
    }

    async fn read(&self) -> Result<(), TableError> {
        let key = self.key.clone();
        let read = |call: Call| async move {
            let answer = call.ask(Statement::BaselineRead, &[&key]).await;
            answer.map(drop)
        };
        self.inner.run(Operation::Read, read).await
    }

    async fn remove(&self) -> Result<(), TableError> {
        let delete = format!(
            "DELETE FROM {{cell}} WHERE cluster = {}",
            literal(&self.key)
        );
        let delete = self.inner.client.names.put_into(&delete);
        let remove = |call: Call| async move {
            let answer = call.execute(&delete, Phase::Writing).await;
            answer.map(drop)
        };
        self.inner.run(Operation::Delete, remove).await
    }
}
