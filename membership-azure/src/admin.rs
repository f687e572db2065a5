//! Making a cluster's table, and removing it. Clauses T1, T9, T12.

use std::time::Duration;

use membership_core::{InitializeRequest, TableError, TableErrorKind, VersionRow};

use crate::batch::{Action, Outcome, Properties, Step, quoted};
use crate::entity::{self, CELL, Entity, VERSION};
use crate::error::error;
use crate::link::{Deadline, Single};
use crate::read::{Version, is_row, no_version_row};
use crate::table::Inner;

/// How often it is tried again when somebody else was faster. Each time that is somebody's progress.
const COLLISIONS: u32 = 32;
/// Removed in one transaction, besides the version row.
const CHUNK: usize = 99;

/// What stands first in a partition.
#[derive(Default)]
struct First {
    version: Option<Entity>,
    /// A row, if one is there.
    stray: Option<String>,
    no_table: bool,
}

async fn first(inner: &Inner, by: Deadline) -> Result<First, TableError> {
    let filter = format!("PartitionKey eq '{}'", quoted(&inner.partition));
    let (mut first, mut next) = (First::default(), None);
    loop {
        // The cell, the version row, and one more: a row, if there is one.
        let page = inner
            .link
            .query(by, &filter, None, Some(3), next.as_ref())
            .await?;
        first.no_table = page.no_table;
        for entity in page.entities {
            if entity.row_key == VERSION {
                first.version = Some(entity);
            } else if is_row(&entity.row_key) {
                first.stray = Some(entity::row_name(&entity.row_key));
            }
        }
        next = page.next;
        if first.version.is_some() || first.stray.is_some() || next.is_none() {
            return Ok(first);
        }
    }
}

/// Waits a little, longer each time.
async fn pause(attempt: u32) {
    tokio::time::sleep(Duration::from_millis(1 << attempt.min(8))).await;
}

pub(crate) async fn initialize(
    inner: &Inner,
    request: &InitializeRequest,
) -> Result<(), TableError> {
    let by = inner.link.deadline();
    let row = VersionRow::initial(request.table_id, request.settings.clone());
    for attempt in 0..COLLISIONS {
        let found = first(inner, by).await?;
        if found.no_table {
            inner.link.create_table(by).await?;
        }
        match (&found.version, &found.stray) {
            (Some(version), _) => return Version::of(version, None).map(drop),
            // Several pages are several moments: a cluster that is founded between them shows its rows only.
            (None, Some(_)) if attempt == 0 => continue,
            (None, Some(stray)) => return Err(no_version_row(Some(stray), None)),
            (None, None) => {}
        }
        let steps = [
            // A beat needs no more than that it is there.
            Step {
                row_key: CELL.to_owned(),
                action: Action::InsertOrMerge(Properties::new()),
            },
            Step {
                row_key: VERSION.to_owned(),
                action: Action::Insert(entity::initial(&row)?),
            },
        ];
        match inner.link.transaction(by, &inner.partition, &steps).await {
            Ok(Outcome::Done(_)) => {
                tracing::info!(cluster = %inner.cluster, table_id = %request.table_id, "membership table created");
                return Ok(());
            }
            // Somebody else was first.
            Ok(_) => {}
            // The table was removed again.
            Err(e) if e.kind() == TableErrorKind::NotInitialized => {}
            Err(e) => return Err(e),
        }
        pause(attempt).await;
    }
    Err(error(
        TableErrorKind::Busy,
        "others kept making and removing the same table",
    ))
}

/// Marks the version row, so that an interrupted delete shows; then everything else, some at a time; the version row last.
///
/// Each request has its own time, and all of them as much as they need: thousands of rows are hundreds of transactions, and one that is not
/// answered ends it.
pub(crate) async fn delete(inner: &Inner) -> Result<(), TableError> {
    let by = || inner.link.deadline();
    let mut marked = false;
    for attempt in 0..COLLISIONS {
        let found = first(inner, by()).await?;
        let Some(version) = found.version else {
            if found.no_table || sweep(inner, None).await?.is_some() {
                return Ok(());
            }
            continue;
        };
        let Some(mut etag) = version.etag.clone() else {
            return Err(error(
                TableErrorKind::Configuration,
                "the service gives no ETag for the version row: is it a table service?",
            ));
        };
        match Version::of(&version, None) {
            // Made anew since this delete has marked it: another delete was faster, and this cluster is not ours to delete.
            Ok(_) if marked => return Ok(()),
            Ok(_) => {
                match inner
                    .link
                    .merge(by(), &inner.partition, VERSION, &mark(), Some(&etag))
                    .await?
                {
                    Single::Done(Some(next)) => etag = next,
                    _ => {
                        pause(attempt).await;
                        continue;
                    }
                }
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
        if let Some(last) = sweep(inner, Some(etag)).await? {
            match inner
                .link
                .remove(by(), &inner.partition, VERSION, &last)
                .await?
            {
                Single::Done(_) | Single::NoTable => {
                    tracing::info!(cluster = %inner.cluster, "membership table deleted");
                    return Ok(());
                }
                // Another delete is at work as well.
                Single::Missing | Single::Stale => {}
            }
        }
        pause(attempt).await;
    }
    Err(error(
        TableErrorKind::Busy,
        "the version row changed under every attempt",
    ))
}

fn mark() -> Properties {
    Properties::from_iter([("Deleting".to_owned(), true.into())])
}

/// Removes everything but the version row, under its ETag where there is one. The ETag it has then (empty without one); none when somebody else
/// was at work.
async fn sweep(inner: &Inner, mut etag: Option<String>) -> Result<Option<String>, TableError> {
    let filter = format!(
        "PartitionKey eq '{}' and RowKey ne '{VERSION}'",
        quoted(&inner.partition)
    );
    let mut next = None;
    loop {
        let page = inner
            .link
            .query(
                inner.link.deadline(),
                &filter,
                Some("RowKey"),
                None,
                next.as_ref(),
            )
            .await?;
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
            match inner
                .link
                .transaction(inner.link.deadline(), &inner.partition, &steps)
                .await?
            {
                Outcome::Done(etags) => match (&mut etag, etags.last().cloned().flatten()) {
                    (Some(etag), Some(now)) => *etag = now,
                    (None, _) => {}
                    (Some(_), None) => return Ok(None),
                },
                _ => return Ok(None),
            }
        }
        // Nothing comes back once the version row is marked.
        if page.next.is_none() {
            return Ok(Some(etag.unwrap_or_default()));
        }
        // What was removed is not found again: then the next page is the first one.
        next = if page.entities.is_empty() {
            page.next
        } else {
            None
        };
    }
}
