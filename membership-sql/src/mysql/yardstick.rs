//! What the server itself costs: one row by its primary key, over the connection that commits take and with its settings.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use async_trait::async_trait;
use membership_core::{Operation, TableError, TableErrorKind, Yardstick};

use super::error::{error, from_mysql};
use super::lane::{Doubt, Work};
use super::session::Session;
use super::table::{Inner, Place};

/// No cluster has this key: theirs begin with no tilde pair but that of a hash.
const ROW: &str = "'~~yardstick'";

/// One row, written and read by its primary key.
pub(super) struct MysqlYardstick {
    table: Arc<Inner>,
    turn: AtomicU64,
}

impl MysqlYardstick {
    pub(super) fn new(table: Arc<Inner>) -> Self {
        Self {
            table,
            turn: AtomicU64::new(0),
        }
    }
}

impl fmt::Debug for MysqlYardstick {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MysqlYardstick").finish_non_exhaustive()
    }
}

#[async_trait]
impl Yardstick for MysqlYardstick {
    fn write_is(&self) -> &'static str {
        "UPDATE of one row by primary key"
    }

    fn read_is(&self) -> &'static str {
        "SELECT of one row by primary key"
    }

    async fn write(&self) -> Result<(), TableError> {
        // Another value each time: the server writes nothing where nothing changes.
        let turn = self.turn.fetch_add(1, Ordering::Relaxed);
        let update =
            format!("UPDATE membership_cell SET text = '{turn:0100}' WHERE cluster = {ROW}");
        if self
            .table
            .write
            .run(&self.table.place, Statement(Operation::Commit, update))
            .await?
            == 0
        {
            let insert = format!(
                "INSERT INTO membership_cell (cluster, text) VALUES ({ROW}, '{turn:0101}') ON DUPLICATE KEY UPDATE text = '{turn:0101}'"
            );
            self.table
                .write
                .run(&self.table.place, Statement(Operation::Commit, insert))
                .await?;
        }
        Ok(())
    }

    async fn read(&self) -> Result<(), TableError> {
        let select = format!("SELECT text FROM membership_cell WHERE cluster = {ROW}");
        self.table
            .write
            .run(&self.table.place, Statement(Operation::Read, select))
            .await
            .map(|_| ())
    }

    async fn remove(&self) -> Result<(), TableError> {
        let delete = format!("DELETE FROM membership_cell WHERE cluster = {ROW}");
        self.table
            .write
            .run(&self.table.place, Statement(Operation::Delete, delete))
            .await
            .map(|_| ())
    }
}

/// A single statement is a transaction of its own.
struct Statement(Operation, String);

#[async_trait]
impl Work for Statement {
    type Answer = u64;
    const OPERATION: Operation = Operation::Commit;
    const IDEMPOTENT: bool = true;

    async fn run(&self, session: &mut Session, _: &Place, _: &Doubt) -> Result<u64, TableError> {
        if !session.look_at_schema().await? {
            return Err(error(
                TableErrorKind::NotInitialized,
                "the database does not have the tables",
            ));
        }
        let sets = session
            .begin(&self.1)
            .await
            .map_err(|t| from_mysql(t.error).during(self.0))?;
        Ok(sets.last().map_or(0, |set| set.affected))
    }
}
