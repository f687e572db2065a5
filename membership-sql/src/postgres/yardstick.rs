//! What the server itself costs: one row by primary key, over the same connection and with the same settings as the membership table.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use async_trait::async_trait;
use membership_core::{Operation, TableError, Yardstick};

use super::error::Phase;
use super::schema::literal;
use super::sql::Statement;
use super::table::Inner;

/// About as much as the contract of a yardstick asks for.
const VALUE: &str = "0123456789012345678901234567890123456789012345678901234567890123456789012345678901234567890123456789";

/// One row in the table of the clusters' cells, under a key that no cluster can have.
pub(super) struct PostgresYardstick {
    inner: Arc<Inner>,
    key: String,
}

static COUNT: AtomicU64 = AtomicU64::new(0);

impl PostgresYardstick {
    pub(super) fn new(inner: &Arc<Inner>) -> Self {
        // After `~` a cluster's key has `-` or a hexadecimal digit.
        let key = format!(
            "~yardstick {} {}",
            std::process::id(),
            COUNT.fetch_add(1, Ordering::Relaxed)
        );
        Self {
            inner: Arc::clone(inner),
            key,
        }
    }
}

impl std::fmt::Debug for PostgresYardstick {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PostgresYardstick").finish_non_exhaustive()
    }
}

#[async_trait]
impl Yardstick for PostgresYardstick {
    fn write_is(&self) -> &'static str {
        "UPDATE of one row by primary key"
    }

    fn read_is(&self) -> &'static str {
        "SELECT of one row by primary key"
    }

    async fn write(&self) -> Result<(), TableError> {
        let key = self.key.clone();
        let work = |t: Arc<Inner>| async move {
            let deadline = t.line.deadline();
            for statement in [Statement::YardstickWrite, Statement::YardstickMake] {
                if !t
                    .line
                    .ask(statement, &[&key, &VALUE], Phase::Writing, deadline)
                    .await?
                    .is_empty()
                {
                    break;
                }
            }
            Ok(())
        };
        self.inner.call(Operation::Commit, work).await
    }

    async fn read(&self) -> Result<(), TableError> {
        let key = self.key.clone();
        let work = |t: Arc<Inner>| async move {
            t.line
                .ask(
                    Statement::YardstickRead,
                    &[&key],
                    Phase::Reading,
                    t.line.deadline(),
                )
                .await
                .map(|_| ())
        };
        self.inner.call(Operation::Read, work).await
    }

    async fn remove(&self) -> Result<(), TableError> {
        let sql = self.inner.line.names.put_into(&format!(
            "DELETE FROM {{cell}} WHERE cluster = {}",
            literal(&self.key)
        ));
        let work = |t: Arc<Inner>| async move {
            let deadline = t.line.deadline();
            t.line
                .run(
                    &t.line.link(deadline).await?,
                    &sql,
                    Phase::Writing,
                    deadline,
                )
                .await
                .map(|_| ())
        };
        self.inner.call(Operation::Delete, work).await
    }
}
