//! `read` and `read_row`: an atomic snapshot out of as many pages as it takes, while others commit.
//! Clause T6. [`fence`](crate::fence) says how.

use std::sync::Arc;
use std::time::Duration;

use membership_core::{
    Heartbeat, ReadAnswer, ReadRequest, Row, RowRead, Rows, SiloAddress, Snapshot, TableError,
    TableErrorKind, VersionToken,
};
use membership_provider::{FullRead, StoredHeartbeats, stored_heartbeat};
use tokio::time::{Instant, sleep};

use crate::batch::quoted;
use crate::client::{Client, Inner, Next, Read};
use crate::codec::{Base, Entity, Version, no_version_row};
use crate::error::error;
use crate::fence::{Draft, is_after, leads_to};
use crate::keys::{self, AFTER_HEARTBEATS, HEARTBEAT, VERSION, WRITTEN_AT, is_row};

/// How often a full read starts over. Each time rows were removed faster than a page was read.
const RESTARTS: usize = 8;
/// How many queries follow the last page until no row of a half-visible commit is left.
const REPAIRS: usize = 16;

/// What a read reads.
pub(crate) struct Reader<'a> {
    client: &'a Client,
    partition: &'a str,
    deadline: Instant,
    known: Option<&'a VersionToken>,
    heartbeats: bool,
    /// Rows that need not be decoded again.
    seen: Rows,
}

impl Inner {
    pub(crate) fn reader<'a>(
        &'a self,
        deadline: Instant,
        known: Option<&'a VersionToken>,
        heartbeats: bool,
    ) -> Reader<'a> {
        Reader {
            client: &self.client,
            partition: &self.partition,
            deadline,
            known,
            heartbeats,
            seen: self.cache.rows(),
        }
    }

    /// # Errors
    /// As [`MembershipTable::read`](membership_core::MembershipTable::read).
    pub(crate) async fn read(&self, request: &ReadRequest) -> Result<ReadAnswer, TableError> {
        if request.new_connection {
            self.client.reconnect()?;
        }
        let deadline = self.client.deadline();
        let reader = self.reader(deadline, request.known.as_ref(), request.heartbeats);
        if let Some(known) = &request.known {
            let (version, stored) = reader.version_and_heartbeats().await?;
            let base = self.base(known);
            let shown = |rows: Option<&Rows>| request.heartbeats.then(|| stored.shown(rows));
            if version.row.version == known.version() {
                let rows = base.as_ref().map(|base| &base.read.snapshot.rows);
                return Ok(ReadAnswer::Unchanged {
                    heartbeats: shown(rows),
                });
            }
            // A caller that knows a version gets the changes since, if this handle has it as well.
            if let Some(base) = base
                && let Some(read) = reader.since(&base.read).await?
            {
                self.remember(base.changed(read.clone()));
                let heartbeats = shown(Some(&read.snapshot.rows));
                return Ok(ReadAnswer::new(Some(known), read.snapshot, heartbeats));
            }
        }
        let begun = Instant::now();
        let read = reader.all().await?;
        self.remember(FullRead::begun(begun, read.clone()));
        let (known, snapshot) = (request.known.as_ref(), read.snapshot);
        let heartbeats = request.heartbeats.then_some(read.heartbeats);
        Ok(ReadAnswer::new(known, snapshot, heartbeats))
    }

    /// # Errors
    /// As [`MembershipTable::read_row`](membership_core::MembershipTable::read_row).
    pub(crate) async fn read_row(
        &self,
        silo: &SiloAddress,
        known: Option<&VersionToken>,
    ) -> Result<RowRead, TableError> {
        let reader = self.reader(self.client.deadline(), known, true);
        let (version, row, heartbeat) = reader.row(&silo.row_key()).await?;
        Ok(RowRead::new(version.token(), row, heartbeat).with_version_row(version.row))
    }
}

impl Reader<'_> {
    fn filter(&self, rest: &str) -> String {
        format!("PartitionKey eq '{}'{rest}", quoted(self.partition))
    }

    /// The part of a filter that leaves out heartbeats, unless they are wanted.
    fn rows_only(&self) -> &'static str {
        if self.heartbeats { "" } else { keys::ROWS_ONLY }
    }

    /// The version row and all rows that were written after a version, and what `more` adds.
    fn changes_since(&self, version: u64, more: &str) -> String {
        let since = keys::written_at(version);
        self.filter(&format!(
            " and (RowKey eq '{VERSION}' or {WRITTEN_AT} gt '{since}'{more})"
        ))
    }

    /// Everything.
    async fn all(&self) -> Result<Read, TableError> {
        let mut before = None;
        for _ in 0..RESTARTS {
            let Some(draft) = self.all_pages().await? else {
                continue;
            };
            let surplus = draft.surplus();
            // A difference comes from rows that were missed, or from changes by hand: then it is
            // the same again the next time.
            if surplus != 0 && (draft.unsure || before != Some(surplus)) {
                before = Some(surplus);
                continue;
            }
            if surplus < 0 {
                let why = format!(
                    "{} of {} rows are gone: were they removed by hand? restore a backup, or `membership delete` the cluster and restart all silos",
                    -surplus, draft.version.row_count
                );
                return Err(error(TableErrorKind::Damaged, why));
            }
            return Ok(finished(draft, surplus));
        }
        let why = "rows were removed faster than they could be read";
        Err(error(TableErrorKind::Busy, why))
    }

    /// All pages; none if the read must start over.
    async fn all_pages(&self) -> Result<Option<Draft>, TableError> {
        let filter = self.filter(self.rows_only());
        let query = self.client.query(self.deadline, &filter, None, None, None);
        let page = query.await?;
        let Some(version) = version_row(&page.entities) else {
            let mut rows = page
                .entities
                .iter()
                .filter(|entity| is_row(&entity.row_key));
            let stray = rows.next().map(|entity| keys::row_name(&entity.row_key));
            if page.next.is_some() {
                // The page ended before the version row, or before the first row.
                return self.all_pages_after_version().await;
            }
            return Err(no_version_row(stray.as_deref(), self.known));
        };
        let mut draft = Draft::new(version, self.known)?;
        draft.take(&page.entities, &self.seen);
        if draft.torn {
            return Ok(None);
        }
        if page.next.is_some() {
            let last = page.entities.last().map(|entity| entity.row_key.clone());
            if !self.go_on(&mut draft, last.unwrap_or_default()).await? {
                return Ok(None);
            }
        }
        Ok(Some(draft))
    }

    /// The same if the first page came without the version row, which is then read first.
    async fn all_pages_after_version(&self) -> Result<Option<Draft>, TableError> {
        let found = self.client.find(self.deadline, self.partition).await?;
        let Some(version) = found.version else {
            return Err(no_version_row(found.stray.as_deref(), self.known));
        };
        let mut draft = Draft::new(&version, self.known)?;
        let whole = self.go_on(&mut draft, String::new()).await?;
        Ok(whole.then_some(draft))
    }

    /// Reads the pages after `last`, each with the changes since the page before, and then the
    /// changes until no half-visible commit is left. False if the read must start over.
    async fn go_on(&self, draft: &mut Draft, mut last: String) -> Result<bool, TableError> {
        let mut repairs = 0;
        let mut done = false;
        while !done || draft.torn {
            repairs += usize::from(done);
            if repairs > REPAIRS {
                return Ok(false);
            }
            wait_for_commit(repairs).await;
            let more = match done {
                true => String::new(),
                false => format!(" or (RowKey gt '{}'{})", quoted(&last), self.rows_only()),
            };
            let filter = self.changes_since(draft.version.version, &more);
            let (entities, next) = self.followed(&filter, Some(&last)).await?;
            let Some(version) = version_row(&entities) else {
                return Ok(false);
            };
            draft.advance(Draft::new(version, self.known)?, &entities, &self.seen);
            done |= next.is_none();
            if let Some(entity) = entities.last().filter(|entity| entity.row_key > last) {
                last = entity.row_key.clone();
            }
        }
        Ok(true)
    }

    /// A query and its continuations, until an entity beyond `last` was found, or to its end.
    async fn followed(
        &self,
        filter: &str,
        last: Option<&str>,
    ) -> Result<(Vec<Entity>, Option<Next>), TableError> {
        let mut found: Vec<Entity> = Vec::new();
        let mut next = None;
        loop {
            let query = self
                .client
                .query(self.deadline, filter, None, None, next.as_ref());
            let page = query.await?;
            if page.no_table {
                return Ok((Vec::new(), None));
            }
            found.extend(page.entities);
            next = page.next;
            let is_beyond = |last: &str| found.last().is_some_and(|e| e.row_key.as_str() > last);
            if next.is_none() || last.is_some_and(is_beyond) {
                return Ok((found, next));
            }
        }
    }

    /// The table by the changes since a snapshot that this handle has, with the heartbeats of that
    /// snapshot. None where it is too old to show the changes: read everything.
    pub(crate) async fn since(&self, base: &Read) -> Result<Option<Read>, TableError> {
        let mut draft = Draft::of(base);
        for repair in 0..REPAIRS {
            wait_for_commit(repair).await;
            let filter = self.changes_since(draft.version.version, "");
            let (entities, _) = self.followed(&filter, None).await?;
            let Some(version) = version_row(&entities) else {
                return Err(no_version_row(None, self.known));
            };
            let now = Draft::new(version, self.known)?;
            if !leads_to(&draft.version, &now.version) {
                return Ok(None);
            }
            draft.advance(now, &entities, &self.seen);
            if draft.torn {
                continue;
            }
            if draft.unsure || draft.surplus() != base.surplus {
                return Ok(None);
            }
            return Ok(Some(finished(draft, base.surplus)));
        }
        Ok(None)
    }

    /// The version row, and all heartbeats if they are wanted; not the rows.
    pub(crate) async fn version_and_heartbeats(
        &self,
    ) -> Result<(Version, StoredHeartbeats), TableError> {
        let filter = self.filter(&match self.heartbeats {
            true => format!(" and RowKey lt '{AFTER_HEARTBEATS}'"),
            false => format!(" and RowKey eq '{VERSION}'"),
        });
        let (entities, _) = self.followed(&filter, None).await?;
        let version = version_row(&entities).ok_or_else(|| no_version_row(None, self.known))?;
        let mut draft = Draft::new(version, self.known)?;
        draft.take(&entities, &self.seen);
        let (row, base) = (draft.version, draft.base);
        Ok((Version { row, base }, draft.heartbeats))
    }

    /// The version row and one row with its heartbeat.
    async fn row(
        &self,
        key: &str,
    ) -> Result<(Version, Option<Row>, Option<Heartbeat>), TableError> {
        let stored = keys::row_key(key);
        let filter = self.filter(&format!(
            " and (RowKey eq '{VERSION}' or RowKey eq '{0}' or RowKey eq '{HEARTBEAT}{0}')",
            quoted(&stored)
        ));
        for attempt in 0..REPAIRS {
            let (entities, _) = self.followed(&filter, None).await?;
            let find = |key: &str| entities.iter().find(|entity| entity.row_key == key);
            let row = find(&stored).map(|entity| entity.row(&self.seen));
            let Some(version) = find(VERSION) else {
                return Err(no_version_row(row.as_ref().map(Row::key), self.known));
            };
            let version = Version::of(version, self.known)?;
            let torn = row
                .as_ref()
                .is_some_and(|row| is_after(row, version.row.version));
            if torn && attempt + 1 < REPAIRS {
                sleep(Duration::from_millis(2 << attempt.min(5))).await;
                continue;
            }
            let heartbeat = find(&keys::heartbeat(&stored)).and_then(Entity::heartbeat);
            let heartbeat = heartbeat.map(stored_heartbeat);
            return Ok((version, row, heartbeat));
        }
        let why = "the row changed under every attempt";
        Err(error(TableErrorKind::Busy, why))
    }
}

fn version_row(entities: &[Entity]) -> Option<&Entity> {
    entities.iter().find(|entity| entity.row_key == VERSION)
}

/// Waits for a half-visible commit, longer each time.
async fn wait_for_commit(repairs: usize) {
    if repairs > 2 {
        sleep(Duration::from_millis(5 << repairs.min(5))).await;
    }
}

fn finished(draft: Draft, surplus: i64) -> Read {
    let heartbeats = draft.heartbeats.shown(&draft.rows);
    let base = draft.base.as_ref().map(Base::to_bytes);
    let token = draft.version.token(&base.unwrap_or_default());
    Read {
        snapshot: Snapshot::new(token, Arc::new(draft.version), draft.rows),
        surplus,
        heartbeats,
    }
}
