//! Creating and deleting a cluster. Clauses T1, T9, T12.

use std::time::Duration;

use membership_core::{InitializeRequest, TableError, TableErrorKind};
use tokio::time::{Instant, sleep};

use crate::batch::{Action, Outcome, Properties, Step, quoted};
use crate::client::{Client, Inner};
use crate::codec::{self, Entity, Version, no_version_row};
use crate::error::{error, no_etag};
use crate::keys::{self, CELL, ROWS_ONLY, VERSION};
use crate::requests::Single;

/// How often a request is tried that others may be making at the same time. Each failure means that
/// another caller succeeded.
const COLLISIONS: u32 = 32;
/// How many entities are removed in one transaction, besides the version row.
const CHUNK: usize = 99;

/// The beginning of a partition.
#[derive(Default)]
pub(crate) struct Found {
    pub(crate) version: Option<Entity>,
    /// The key of any row.
    pub(crate) stray: Option<String>,
    no_table: bool,
}

/// Waits a little, longer each time.
async fn pause(attempt: u32) {
    sleep(Duration::from_millis(1 << attempt.min(8))).await;
}

impl Inner {
    /// # Errors
    /// As [`MembershipTable::initialize`](membership_core::MembershipTable::initialize).
    pub(crate) async fn initialize(&self, request: &InitializeRequest) -> Result<(), TableError> {
        let client = &self.client;
        let deadline = client.deadline();
        let row = request.version_row();
        for attempt in 0..COLLISIONS {
            let found = client.find(deadline, &self.partition).await?;
            if found.no_table {
                client.create_table(deadline).await?;
            }
            match (&found.version, &found.stray) {
                (Some(version), _) => return Version::of(version, None).map(drop),
                // Several pages are of several moments: a cluster that is created between them
                // shows only its rows.
                (None, Some(_)) if attempt == 0 => continue,
                (None, Some(stray)) => return Err(no_version_row(Some(stray), None)),
                (None, None) => {}
            }
            let steps = [
                // A heartbeat of the cluster needs the entity to exist.
                Step {
                    row_key: CELL.to_owned(),
                    action: Action::InsertOrMerge(Properties::new()),
                },
                Step {
                    row_key: VERSION.to_owned(),
                    action: Action::Insert(codec::initial(&row)),
                },
            ];
            match client.transaction(deadline, &self.partition, &steps).await {
                Ok(Outcome::Done(_)) => {
                    tracing::info!(cluster = %self.cluster, table_id = %request.table_id, "membership table created");
                    return Ok(());
                }
                // Another caller was faster.
                Ok(_) => {}
                // The table was removed again.
                Err(e) if e.kind() == TableErrorKind::NotInitialized => {}
                Err(e) => return Err(e),
            }
            pause(attempt).await;
        }
        let why = "other callers keep creating and removing the same table";
        Err(error(TableErrorKind::Busy, why))
    }

    /// Marks the version row, so that an interrupted delete is visible; then removes everything
    /// else in chunks, and the version row last.
    ///
    /// Each request has a deadline of its own, because thousands of rows are hundreds of
    /// transactions. The first request without an answer ends the deletion.
    ///
    /// # Errors
    /// As [`MembershipTable::delete`](membership_core::MembershipTable::delete).
    pub(crate) async fn delete(&self) -> Result<(), TableError> {
        self.cache.clear();
        let (client, partition) = (&self.client, &self.partition);
        let mut marked = false;
        for attempt in 0..COLLISIONS {
            let found = client.find(client.deadline(), partition).await?;
            let Some(version) = found.version else {
                if found.no_table || self.sweep(None).await?.is_some() {
                    return Ok(());
                }
                continue;
            };
            let mut etag = version.etag.clone().ok_or_else(no_etag)?;
            match Version::of(&version, None) {
                // Created again since this call marked it: another delete was faster, and the new
                // cluster must stay.
                Ok(_) if marked => return Ok(()),
                Ok(_) => {
                    let (mark, deadline) = (mark(), client.deadline());
                    let marked_row = client.merge(deadline, partition, VERSION, &mark, Some(&etag));
                    let Single::Done(Some(next)) = marked_row.await? else {
                        pause(attempt).await;
                        continue;
                    };
                    etag = next;
                    marked = true;
                }
                Err(e)
                    if matches!(
                        e.kind(),
                        TableErrorKind::ForeignTable | TableErrorKind::NewerLayout
                    ) =>
                {
                    return Err(e);
                }
                // Marked, or damaged.
                Err(_) => marked = true,
            }
            if let Some(last) = self.sweep(Some(etag)).await? {
                let removed = client.remove(client.deadline(), partition, VERSION, &last);
                match removed.await? {
                    Single::Done(_) | Single::NoTable => {
                        tracing::info!(cluster = %self.cluster, "membership table deleted");
                        return Ok(());
                    }
                    // Another delete runs as well.
                    Single::Missing | Single::Stale => {}
                }
            }
            pause(attempt).await;
        }
        let why = "the version row changed under every attempt";
        Err(error(TableErrorKind::Busy, why))
    }

    /// Removes everything but the version row, on the condition of its ETag if one is given.
    /// Returns the ETag after that (empty without one); none if another caller changed the version
    /// row.
    async fn sweep(&self, mut etag: Option<String>) -> Result<Option<String>, TableError> {
        let client = &self.client;
        let filter = format!(
            "PartitionKey eq '{}' and RowKey ne '{VERSION}'",
            quoted(&self.partition)
        );
        let mut next = None;
        loop {
            let deadline = client.deadline();
            let page = client.query(deadline, &filter, Some("RowKey"), None, next.as_ref());
            let page = page.await?;
            for entities in page.entities.chunks(CHUNK) {
                let delete = |entity: &Entity| Step {
                    row_key: entity.row_key.clone(),
                    action: Action::Delete("*".to_owned()),
                };
                let mut steps: Vec<Step> = entities.iter().map(delete).collect();
                if let Some(etag) = &etag {
                    steps.push(Step {
                        row_key: VERSION.to_owned(),
                        action: Action::Merge(mark(), etag.clone()),
                    });
                }
                let sent = client.transaction(client.deadline(), &self.partition, &steps);
                let Outcome::Done(etags) = sent.await? else {
                    return Ok(None);
                };
                match (&mut etag, etags.last().cloned().flatten()) {
                    (Some(etag), Some(now)) => *etag = now,
                    (None, _) => {}
                    (Some(_), None) => return Ok(None),
                }
            }
            // Nothing is inserted while the version row is marked.
            if page.next.is_none() {
                return Ok(Some(etag.unwrap_or_default()));
            }
            // Removed entities are not found again: after a page with entities the next page is the
            // first one.
            next = page.next.filter(|_| page.entities.is_empty());
        }
    }
}

impl Client {
    /// The version row, or any row.
    pub(crate) async fn find(
        &self,
        deadline: Instant,
        partition: &str,
    ) -> Result<Found, TableError> {
        let filter = format!("PartitionKey eq '{}'{ROWS_ONLY}", quoted(partition));
        let (mut found, mut next) = (Found::default(), None);
        loop {
            // The cell, the version row, and one more: a row, if there is one.
            let query = self.query(deadline, &filter, None, Some(3), next.as_ref());
            let page = query.await?;
            found.no_table = page.no_table;
            for entity in page.entities {
                if entity.row_key == VERSION {
                    found.version = Some(entity);
                } else if keys::is_row(&entity.row_key) {
                    found.stray = Some(keys::row_name(&entity.row_key));
                }
            }
            next = page.next;
            if found.version.is_some() || found.stray.is_some() || next.is_none() {
                return Ok(found);
            }
        }
    }
}

fn mark() -> Properties {
    Properties::from_iter([("Deleting".to_owned(), true.into())])
}
