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
const ROW: &str = "N'~~baseline'";

pub(super) struct MssqlBaseline(pub(super) Arc<Inner>);

impl MssqlBaseline {
    async fn execute(&self, statement: String) -> Result<u64, TableError> {
        self.0.run(&self.0.pool.writes, Statement(statement)).await
    }
}

impl fmt::Debug for MssqlBaseline {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MssqlBaseline").finish_non_exhaustive()
    }
}

#[async_trait]
impl Baseline for MssqlBaseline {
    fn write_is(&self) -> &'static str {
        "UPDATE of one row by primary key"
    }

    fn read_is(&self) -> &'static str {
        "SELECT of one row by primary key"
    }

    async fn write(&self) -> Result<(), TableError> {
        // A new value each time: the server does not write an unchanged row.
        let value = format!("{:0100}", next_number());
        let update = format!("UPDATE membership_cell SET text = N'{value}' WHERE cluster = {ROW};");
        let insert =
            format!("INSERT INTO membership_cell (cluster, text) VALUES ({ROW}, N'{value}');");
        let (first, done) = ("DECLARE @n int;", "SET @n = @@ROWCOUNT;");
        let last = "SELECT 5, CAST(@n AS bigint);";
        if self
            .execute(format!("{first} {update} {done} {last}"))
            .await?
            == 0
        {
            self.execute(format!("{first} {insert} {done} {last}"))
                .await?;
        }
        Ok(())
    }

    async fn read(&self) -> Result<(), TableError> {
        let select = format!(
            "SELECT 1, CAST(NULL AS nvarchar(128)), text, CAST(NULL AS bigint), CAST(NULL AS nvarchar(64)) FROM membership_cell WHERE cluster = {ROW};"
        );
        self.execute(select).await.map(drop)
    }

    async fn remove(&self) -> Result<(), TableError> {
        let delete = format!("DELETE FROM membership_cell WHERE cluster = {ROW};");
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
        let lines = connection.write(&self.0, &[]).await?;
        let number = lines.last().and_then(|line| line.number);
        Ok(number.and_then(|n| u64::try_from(n).ok()).unwrap_or(0))
    }
}
