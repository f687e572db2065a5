//! `initialize` and `delete`.

use std::time::Duration;

use async_trait::async_trait;
use membership_core::{InitializeRequest, Operation, TableError, TableErrorKind as Kind};
use membership_provider::{VersionRowParts, json};

use super::client::Inner;
use super::codec::Found;
use super::connection::{Connection, Value};
use super::error::{PRINT, error};
use super::read::query;
use super::sql;
use crate::shared::pool::{Link as _, Work};

/// How many rows one step of `delete` removes.
const BATCH: i64 = 1000;
/// How often `initialize` starts again while other clients create the same table.
const ATTEMPTS: u32 = 16;

pub(super) struct Initialize<'a>(pub(super) &'a InitializeRequest);
pub(super) struct Delete;

/// Looks first: if the cluster exists, nothing is written.
#[async_trait]
impl Work<Inner> for Initialize<'_> {
    type Answer = ();
    const OPERATION: Operation = Operation::Initialize;

    async fn run(&self, table: &Inner, connection: &mut Connection) -> Result<(), TableError> {
        let message = "other clients changed the table before each attempt";
        let mut last = error(Kind::Busy, message);
        for round in 0..ATTEMPTS {
            match initialize_once(table, connection, self.0).await {
                Ok(true) => return Ok(()),
                // Another client was first: look again.
                Ok(false) => {}
                Err(e)
                    if matches!(e.kind(), Kind::Busy | Kind::NotInitialized)
                        && connection.is_usable() =>
                {
                    last = e;
                }
                Err(e) => return Err(e),
            }
            tokio::time::sleep(Duration::from_millis(u64::from(5 * round))).await;
        }
        Err(last)
    }
}

/// Whether the cluster exists now.
async fn initialize_once(
    table: &Inner,
    connection: &mut Connection,
    request: &InitializeRequest,
) -> Result<bool, TableError> {
    if connection.has_tables().await? {
        let found = query(connection, sql::READ_ROW, &[&table.key, &""], None).await?;
        match found.usable(&table.cache, None) {
            Err(e) if e.kind() == Kind::NotInitialized => {}
            found => return found.map(|_| true),
        }
    } else if table.config.creates() {
        connection.create_tables().await?;
    } else {
        let message =
            format!("the tables are missing, and create=false forbids to create them: {PRINT}");
        return Err(error(Kind::Configuration, message));
    }
    let row = request.version_row();
    let (name, id) = (table.cluster.to_string(), row.table_id.to_string());
    let (commit, settings) = (row.last_commit().to_string(), json(&row.settings));
    let core = json(row.core.stored());
    let columns = [
        "table_id",
        "version",
        "deleting",
        "row_count",
        "layout",
        "min_layout",
        "settings",
        "core",
        "recent",
    ];
    let extra = VersionRowParts::constant(&row, &columns);
    let values: [Value<'_>; 7] = [&table.key, &name, &id, &commit, &settings, &core, &extra];
    let lines = connection.write(sql::INITIALIZE, &values).await?;
    let made = Found::of(lines).done == Some(1);
    if made {
        tracing::info!(cluster = name, table_id = id, "membership table created");
    }
    Ok(made)
}

/// Each step is a transaction of its own. If `delete` dies between two steps, the next `delete`
/// continues, and other clients see that the cluster is being deleted.
#[async_trait]
impl Work<Inner> for Delete {
    type Answer = ();
    const OPERATION: Operation = Operation::Delete;

    async fn run(&self, table: &Inner, connection: &mut Connection) -> Result<(), TableError> {
        if !connection.has_tables().await? {
            return Ok(());
        }
        let found = query(connection, sql::READ_ROW, &[&table.key, &""], None).await?;
        match found.version(&table.cache) {
            Err(e) if e.kind() != Kind::Damaged => return Err(e),
            _ => {}
        }
        connection.write(sql::MARK, &[&table.key]).await?;
        loop {
            let lines = connection.write(sql::DELETE, &[&table.key]).await?;
            match Found::of(lines).done {
                Some(BATCH) => {}
                // Another `delete` has finished, and the cluster was created again: that one must
                // stay.
                Some(-1) => return Ok(()),
                Some(_) => break,
                None => return Err(error(Kind::Unavailable, "the server gave no answer")),
            }
        }
        tracing::info!(cluster = %table.cluster, "membership table deleted");
        Ok(())
    }
}
