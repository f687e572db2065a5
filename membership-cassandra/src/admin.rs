//! Creating and deleting a cluster. Clauses T1, T8, T12.

pub(crate) mod schema;

use std::hash::{BuildHasher as _, RandomState};
use std::time::Duration;

use futures_util::future::try_join;
use membership_core::{
    InitializeRequest, Operation, TableError, TableErrorKind, VersionRow, encoding::LAYOUT,
};
use membership_provider::json;
use scylla::response::query_result::QueryResult;
use tokio::time::sleep;

use crate::client::Inner;
use crate::codec::{self, Partition, Stored, Value, big, int, text};
use crate::error::{Doubt, Failed, error, still_unknown};
use crate::keys::VERSION;
use crate::statements::Statements;

/// How often a request is tried that others may be making at the same time. Each failure means that
/// another caller succeeded.
const COLLISIONS: u64 = 20;
/// How many rows are removed at once.
const BATCH: usize = 100;

impl Inner {
    /// # Errors
    /// As [`MembershipTable::initialize`](membership_core::MembershipTable::initialize).
    pub(crate) async fn initialize(&self, request: &InitializeRequest) -> Result<(), TableError> {
        let row = request.version_row();
        let mut unknown = None;
        self.create_cluster(&row, &mut unknown)
            .await
            .map_err(|e| match unknown {
                Some(ours) => still_unknown(ours.error.message(), e).at(&self.client.endpoint),
                None => e,
            })
    }

    /// Returns when there is a version row. `unknown` is set while the outcome of our own request
    /// is unknown.
    async fn create_cluster(
        &self,
        row: &VersionRow,
        unknown: &mut Option<Failed>,
    ) -> Result<(), TableError> {
        for turn in 0..COLLISIONS {
            let partition = match self.find().await.map_err(TableError::from) {
                Ok(partition) => partition,
                Err(e) if e.kind() == TableErrorKind::NotInitialized => {
                    self.client.create_tables().await?;
                    continue;
                }
                Err(e) => return Err(self.client.explained(e).await),
            };
            match partition.usable(None, Operation::Initialize, &self.decided_by) {
                // A request that no server works on any more, and left no row, did not happen.
                Err(e) if e.kind() == TableErrorKind::NotInitialized => {
                    drop(unknown.take_if(|ours| ours.doubt == Doubt::Settled))
                }
                other => {
                    *unknown = None;
                    return other.map(drop);
                }
            }
            match self.insert_version_row(row).await {
                Ok(true) => {
                    tracing::info!(cluster = %self.cluster, table_id = %row.table_id, "membership table created");
                    return Ok(());
                }
                Ok(false) => {}
                Err(failed) if failed.doubt != Doubt::None => {
                    tracing::debug!(error = %failed.error, "checks whether the version row was created");
                    unknown.get_or_insert(failed);
                }
                Err(failed)
                    if matches!(
                        failed.error.kind(),
                        TableErrorKind::Busy | TableErrorKind::NotInitialized
                    ) =>
                {
                    tracing::debug!(error = %failed.error, "the version row is not created yet");
                }
                Err(failed) => return Err(failed.error),
            }
            let pause = RandomState::new().hash_one(turn) % (20 * (turn + 1));
            sleep(Duration::from_millis(pause)).await;
        }
        let why = "other callers create the same table at the same time";
        Err(error(TableErrorKind::Busy, why))
    }

    /// The version row; if there is none, all rows. An answer that tables are missing is that of
    /// one node: they are inspected before any are created.
    async fn find(&self) -> Result<Partition, Failed> {
        let client = &self.client;
        let cluster = || text(&client.cluster);
        let version = (cluster(), codec::keys([VERSION]));
        let answer = client.execute_unconfirmed(client.deadline(), false, |all| &all.some, version);
        let found = Partition::of(answer.await?).map_err(Failed::certain)?;
        if found.version.is_some() {
            return Ok(found);
        }
        let answer =
            client.execute_unconfirmed(client.deadline(), false, |all| &all.all, (cluster(),));
        Partition::of(answer.await?).map_err(Failed::certain)
    }

    /// Writes the version row of a new cluster; false where there was one.
    async fn insert_version_row(&self, row: &VersionRow) -> Result<bool, Failed> {
        let values = vec![
            text(&self.client.cluster),
            text(row.table_id.to_string()),
            big(row.version),
            text(row.last_commit().to_string()),
            big(row.row_count),
            int(row.layout),
            int(row.min_layout),
            text(json(&row.settings)),
            text(row.core.stored()),
            text(&self.decided_by),
        ];
        let deadline = self.client.deadline();
        let answer = self
            .client
            .execute_unconfirmed(deadline, true, |all| &all.begin, values);
        match codec::named(answer.await?) {
            Ok(rows) => Ok(codec::verdict(rows).0),
            Err(e) => Err(Failed {
                doubt: Doubt::Settled,
                ..Failed::certain(e)
            }),
        }
    }

    /// # Errors
    /// As [`MembershipTable::delete`](membership_core::MembershipTable::delete).
    pub(crate) async fn delete(&self) -> Result<(), TableError> {
        let client = &self.client;
        for turn in 0..COLLISIONS {
            let (rows, times) = (
                self.snapshot_read(client.deadline()),
                client.heartbeat_times(client.deadline()),
            );
            let (partition, times) = match try_join(rows, times).await {
                // No table: nothing to delete.
                Err(e) if e.kind() == TableErrorKind::NotInitialized => return Ok(()),
                other => other?,
            };
            if let Some(stored) = &partition.version {
                codec::check_serial(stored.serial.as_deref(), &self.decided_by)?;
                let readable = match codec::any_version(stored, &self.decided_by) {
                    Err(e) if e.kind() != TableErrorKind::Damaged => return Err(e),
                    read => read.is_ok(),
                };
                if !stored.deleting {
                    self.mark_deleting(stored, readable).await?;
                    continue;
                }
            }
            let mut gone = true;
            for rows in partition.rows.chunks(BATCH) {
                let values: Vec<_> = rows
                    .iter()
                    .map(|(key, _)| vec![text(&client.cluster), text(key)])
                    .collect();
                let statements = |all: &Statements| vec![all.remove.clone(); rows.len()];
                let removed = client.batch(client.deadline(), statements, &values);
                gone &= applied(removed.await)?;
            }
            if !gone {
                sleep(Duration::from_millis(10 * (turn + 1))).await;
                continue;
            }
            client.remove_heartbeats(&times).await?;
            if partition.version.is_none() {
                return Ok(());
            }
            // Refused if another caller has removed it, and perhaps created a new one.
            let version = (text(&client.cluster),);
            let removed = client.execute(client.deadline(), true, |all| &all.unmark, version);
            if applied(removed.await)? {
                tracing::info!(cluster = %self.cluster, "membership table deleted");
                return Ok(());
            }
            match self.version(client.deadline()).await? {
                None => return Ok(()),
                Some(stored)
                    if !stored.deleting
                        && codec::any_version(&stored, &self.decided_by).is_ok() =>
                {
                    return Ok(());
                }
                // The marked row is still there, or a damaged one is.
                Some(_) => {}
            }
        }
        let why = "somebody writes to the cluster that is being deleted";
        Err(error(TableErrorKind::Busy, why))
    }

    /// Marks the version row as being deleted; the next turn checks it. A readable row may change
    /// meanwhile. A damaged row must be exactly the one that was read, because nothing in its
    /// successor would say that this build may change it.
    async fn mark_deleting(&self, stored: &Stored, readable: bool) -> Result<(), TableError> {
        let (client, partition) = (&self.client, text(&self.client.cluster));
        let marked = if readable {
            let values = (partition, int(LAYOUT), text(&self.decided_by));
            let deadline = client.deadline();
            client
                .execute(deadline, true, |all| &all.mark, values)
                .await
        } else {
            let mut values = vec![partition];
            values.extend(stored.fence.iter().cloned().map(Value::Set));
            let deadline = client.deadline();
            client
                .execute(deadline, true, |all| &all.mark_damaged, values)
                .await
        };
        applied(marked).map(drop)
    }
}

/// Whether a transaction was applied; false if that is unknown and must be read.
fn applied(answer: Result<QueryResult, Failed>) -> Result<bool, TableError> {
    match answer {
        Ok(answer) => Ok(codec::verdict(codec::named(answer)?).0),
        Err(failed) if failed.doubt == Doubt::Settled => Ok(false),
        Err(failed) => Err(failed.error),
    }
}
