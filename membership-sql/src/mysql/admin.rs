//! `initialize` and `delete`.

use std::time::Duration;

use async_trait::async_trait;
use membership_core::encoding::encode_version_row;
use membership_core::{
    InitializeRequest, Operation, TableError, TableErrorKind as Kind, VersionRow,
};

use super::client::Inner;
use super::codec::Found;
use super::columns::number;
use super::connection::Connection;
use super::error::{DUPLICATE_KEY, PRINT, code, error, from_mysql};
use super::read::query;
use super::sql::{self, text};
use crate::shared::pool::{Link as _, Work};

/// How many rows `delete` removes in one transaction.
const BATCH: u64 = 1000;
/// How often `initialize` starts again while other clients create the same table.
const ATTEMPTS: u32 = 16;

pub(super) struct Initialize<'a>(pub(super) &'a InitializeRequest);
pub(super) struct Delete;

/// Looks first: if the cluster exists, nothing is written and nothing waits.
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
    let cluster = &table.key;
    if connection.has_tables().await? {
        let found = query(table, connection, &sql::probe(cluster), None).await?;
        if found.version.is_some() || !found.rows.is_empty() {
            return found.usable(None).map(|_| true);
        }
    } else if table.config.creates() {
        connection.create_tables(!table.config.is_pooled()).await?;
        connection.has_tables().await?;
    } else {
        let message =
            format!("the tables are missing, and create=false forbids to create them: {PRINT}");
        return Err(error(Kind::Configuration, message));
    }

    let row = request.version_row();
    // A second client waits for the first one, and then the key exists.
    let insert = format!(
        "INSERT INTO membership_version (cluster, name, version, token, deleting, body) \
         SELECT {cluster}, {}, 0, '{}', 0, {} FROM DUAL WHERE NOT EXISTS (SELECT 1 FROM membership_silo WHERE cluster = {cluster})",
        text(&table.cluster.to_string()),
        sql::token(&row.token(&[])),
        text(&encode_version_row(&row)),
    );
    let sets = match connection.begin_read_committed(&insert).await {
        Err(failure) if code(&failure.error) == Some(DUPLICATE_KEY) => return Ok(false),
        sets => sets?,
    };
    if sets.last().is_none_or(|set| set.affected != 1) {
        connection.roll_back().await;
        return Ok(false);
    }
    // Orphans of an earlier cluster, left by hand, go.
    let orphans = ["membership_heartbeat", "membership_cell"];
    finish(
        connection,
        &orphans.map(|table| delete_from(table, cluster)),
    )
    .await?;
    tracing::info!(cluster = %table.cluster, table_id = %request.table_id, "membership table created");
    Ok(true)
}

fn delete_from(table: &str, cluster: &str) -> String {
    format!("DELETE FROM {table} WHERE cluster = {cluster}")
}

/// Commits; rolls back if a statement failed.
async fn finish(connection: &mut Connection, statements: &[String]) -> Result<(), TableError> {
    match connection.commit(statements).await? {
        Ok(()) => Ok(()),
        Err(e) => {
            connection.roll_back().await;
            Err(from_mysql(e))
        }
    }
}

/// Each step is a transaction of its own. If `delete` dies between two steps, the next `delete`
/// continues, and other clients see that the cluster is being deleted. The transactions also lock
/// the place of the version row: the cluster cannot be created again in the middle of a step.
#[async_trait]
impl Work<Inner> for Delete {
    type Answer = ();
    const OPERATION: Operation = Operation::Delete;

    async fn run(&self, table: &Inner, connection: &mut Connection) -> Result<(), TableError> {
        let cluster = &table.key;
        if !connection.has_tables().await? {
            return Ok(());
        }
        mark_deleting(table, connection).await?;
        loop {
            let step = format!(
                "SELECT deleting FROM membership_version WHERE cluster = {cluster} FOR UPDATE; \
                 DELETE FROM membership_silo WHERE cluster = {cluster} \
                 AND NOT EXISTS (SELECT 1 FROM membership_version v WHERE v.cluster = {cluster} AND v.deleting = 0) LIMIT {BATCH}"
            );
            let sets = connection.begin_transaction(&step).await?;
            let [.., mark, removed] = sets.as_slice() else {
                return Err(error(Kind::Unavailable, "the server gave no answer"));
            };
            if mark
                .rows
                .first()
                .is_some_and(|row| number(row, 0) == Some(0))
            {
                // Another `delete` has finished, and the cluster was created again: that one must
                // stay.
                connection.roll_back().await;
                return Ok(());
            }
            if removed.affected == BATCH {
                finish(connection, &[]).await?;
                continue;
            }
            let rest = [
                "membership_heartbeat",
                "membership_cell",
                "membership_version",
            ];
            finish(connection, &rest.map(|table| delete_from(table, cluster))).await?;
            tracing::info!(cluster = %table.cluster, "membership table deleted");
            return Ok(());
        }
    }
}

async fn mark_deleting(table: &Inner, connection: &mut Connection) -> Result<(), TableError> {
    let cluster = &table.key;
    let select = sql::lock_version(cluster);
    let sets = connection.begin_transaction(&select).await?;
    let found = Found::of(sets.last(), &table.cache);
    let mark = match found.version() {
        Ok(Some(row)) if !row.deleting => {
            let mut marked = VersionRow::clone(&row);
            marked.deleting = true;
            Some(format!(", body = {}", text(&encode_version_row(&marked))))
        }
        Err(e) if e.kind() != Kind::Damaged => {
            connection.roll_back().await;
            return Err(e);
        }
        // Marked already, maybe only in the body; or unreadable, where the column is enough.
        _ => found.version.is_some().then(String::new),
    };
    let update = |body| {
        format!("UPDATE membership_version SET deleting = 1{body} WHERE cluster = {cluster}")
    };
    let update: Vec<String> = mark.map(update).into_iter().collect();
    finish(connection, &update).await
}
