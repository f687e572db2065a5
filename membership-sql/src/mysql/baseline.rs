//! What the server itself costs: one row by primary key, over the connection of commits.

use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use membership_core::{Baseline, Operation, TableError, TableErrorKind};
use membership_provider::baseline::next_number;

use super::client::Inner;
use super::connection::Connection;
use super::error::error;
use crate::shared::pool::{Client as _, Work};

/// No cluster has this key: a key starts with `~~` only before a hash.
const ROW: &str = "'~~baseline'";

pub(super) struct MysqlBaseline(pub(super) Arc<Inner>);

impl MysqlBaseline {
    async fn execute(&self, statement: String) -> Result<u64, TableError> {
        self.0.run(&self.0.pool.writes, Statement(statement)).await
    }
}

impl fmt::Debug for MysqlBaseline {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MysqlBaseline").finish_non_exhaustive()
    }
}

#[async_trait]
impl Baseline for MysqlBaseline {
    fn write_is(&self) -> &'static str {
        "UPDATE of one row by primary key"
    }

    fn read_is(&self) -> &'static str {
        "SELECT of one row by primary key"
    }

    async fn write(&self) -> Result<(), TableError> {
        // A new value each time: the server does not write an unchanged row.
        let value = format!("{:0100}", next_number());
        let update = format!("UPDATE membership_cell SET text = '{value}' WHERE cluster = {ROW}");
        if self.execute(update).await? == 0 {
            let insert = format!(
                "INSERT INTO membership_cell (cluster, text) VALUES ({ROW}, '{value}') ON DUPLICATE KEY UPDATE text = '{value}'"
            );
            self.execute(insert).await?;
        }
        Ok(())
    }

    async fn read(&self) -> Result<(), TableError> {
        let select = format!("SELECT text FROM membership_cell WHERE cluster = {ROW}");
        self.execute(select).await.map(drop)
    }

    async fn remove(&self) -> Result<(), TableError> {
        let delete = format!("DELETE FROM membership_cell WHERE cluster = {ROW}");
        self.execute(delete).await.map(drop)
    }
}

/// A statement that is a transaction of its own; the answer is the number of changed rows.
struct Statement(String);

#[async_trait]
impl Work<Inner> for Statement {
    type Answer = u64;
    const OPERATION: Operation = Operation::Commit;

    async fn run(&self, _: &Inner, connection: &mut Connection) -> Result<u64, TableError> {
        if !connection.has_tables().await? {
            let message = "the database does not have the tables";
            return Err(error(TableErrorKind::NotInitialized, message));
        }
        let sets = connection.begin(&self.0).await?;
        Ok(sets.last().map_or(0, |set| set.affected))
    }
}
