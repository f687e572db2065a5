//! Reading a cluster: an atomic snapshot out of as many pages as it takes, while commits flow. Clause T6.
//!
//! What one answer of the service holds is of one moment; two answers are of two. So every query of a read asks for the version row too, and
//! besides for every row that was written after the version that is held already: the pages of a large table repair what they have read before
//! in the same request. A row that was changed since shows itself by its version; one that was removed is among the keys of the recent commits,
//! or missing in the count of rows, and then everything is read again.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use membership_core::{
    ChangedKeys, CommitId, Heartbeat, Heartbeats, Operation, Row, Rows, Snapshot, TableError,
    TableErrorKind, VersionRow, VersionToken, usable_version_row,
};

use crate::STORE;
use crate::batch::quoted;
use crate::entity::{self, AFTER_ROWS, Base, CELL, Entity, HEARTBEAT, VERSION, WRITTEN_AT};
use crate::error::error;
use crate::link::{Deadline, Link};

/// How often a read begins anew before it gives up. Each time somebody removed rows faster than a page was read.
const RESTARTS: usize = 8;
/// How many queries follow the last page until no row of a half-seen commit is left.
const REPAIRS: usize = 16;

/// A cluster as of one moment, with its heartbeats, which are as recent.
#[derive(Clone, Debug)]
pub(crate) struct Read {
    pub(crate) snapshot: Snapshot,
    /// Rows that are there and were never counted: put there by hand.
    pub(crate) surplus: i64,
    pub(crate) heartbeats: Heartbeats,
}

/// What an incremental read came to.
#[derive(Debug)]
pub(crate) enum Since {
    /// Nothing was committed since.
    Unchanged(Read),
    Changed(Read),
    /// It cannot be told from what is known: read everything.
    Unknown,
}

/// Where and how to look.
pub(crate) struct Reader<'a> {
    pub(crate) link: &'a Link,
    pub(crate) partition: &'a str,
    pub(crate) by: Deadline,
    pub(crate) known: Option<&'a VersionToken>,
    pub(crate) heartbeats: bool,
    /// Rows that need not be decoded again.
    pub(crate) seen: &'a Rows,
}

/// Rows that are right as of a version, up to a row key.
struct Gathered {
    version: VersionRow,
    base: Option<Base>,
    rows: Rows,
    beats: BTreeMap<String, Heartbeat>,
    cell: Option<String>,
    /// Removed rows may be among the rows: more commits than are recorded happened between two queries.
    unsure: bool,
    /// A row of a later version than the version row's was seen: the rows are not as of one version yet.
    torn: bool,
}

impl Reader<'_> {
    fn filter(&self, rest: &str) -> String {
        format!("PartitionKey eq '{}'{rest}", quoted(self.partition))
    }

    /// Everything.
    pub(crate) async fn whole(&self) -> Result<Read, TableError> {
        let mut before = None;
        for _ in 0..RESTARTS {
            let Some(gathered) = self.gather().await? else {
                continue;
            };
            let surplus = surplus(&gathered.rows, &gathered.version);
            // A number that does not fit comes from rows that were missed, or from somebody's hand: it is the same again then.
            if surplus != 0 && (gathered.unsure || before != Some(surplus)) {
                before = Some(surplus);
                continue;
            }
            if surplus < 0 {
                let message = format!(
                    "{} of {} rows are gone: were they removed by hand? restore a backup, or `membership delete` the cluster and restart all \
                     silos",
                    -surplus, gathered.version.row_count
                );
                return Err(error(TableErrorKind::Damaged, message));
            }
            return Ok(self.finished(gathered, surplus));
        }
        Err(error(
            TableErrorKind::Busy,
            "rows were removed faster than they could be read",
        ))
    }

    fn finished(&self, gathered: Gathered, surplus: i64) -> Read {
        let heartbeats = entity::heartbeats(&gathered.beats, gathered.cell, Some(&gathered.rows));
        let token = gathered.version.token(
            &gathered
                .base
                .map(|base| base.to_bytes())
                .unwrap_or_default(),
        );
        Read {
            snapshot: Snapshot {
                version_row: Arc::new(gathered.version),
                token,
                rows: gathered.rows,
            },
            surplus,
            heartbeats,
        }
    }

    /// All pages. None: to be begun anew.
    async fn gather(&self) -> Result<Option<Gathered>, TableError> {
        let upto = if self.heartbeats {
            String::new()
        } else {
            format!(" and RowKey lt '{AFTER_ROWS}'")
        };
        let page = self
            .link
            .query(self.by, &self.filter(&upto), None, None, None)
            .await?;
        let mut rows = page
            .entities
            .iter()
            .filter(|entity| is_row(&entity.row_key));
        let Some(version) = page
            .entities
            .iter()
            .find(|entity| entity.row_key == VERSION)
        else {
            let stray = rows.next().map(|entity| entity::row_name(&entity.row_key));
            if page.next.is_some() {
                // The service stopped looking before it found it.
                return self.gather_slowly(stray.as_deref()).await;
            }
            return Err(no_version_row(stray.as_deref(), self.known));
        };
        let mut gathered = Gathered::new(version, self.known)?;
        gathered.take(&page.entities, self.seen);
        if gathered.torn {
            return Ok(None);
        }
        if page.next.is_some() {
            let last = page
                .entities
                .last()
                .map(|entity| entity.row_key.clone())
                .unwrap_or_default();
            if !self.go_on(&mut gathered, last, &upto).await? {
                return Ok(None);
            }
        }
        Ok(Some(gathered))
    }

    /// The same where the first page came without the version row.
    async fn gather_slowly(&self, stray: Option<&str>) -> Result<Option<Gathered>, TableError> {
        let filter = self.filter(&format!(" and RowKey eq '{VERSION}'"));
        let (entities, _) = self.followed(&filter, None).await?;
        let Some(version) = entities.first() else {
            return Err(no_version_row(stray, self.known));
        };
        let mut gathered = Gathered::new(version, self.known)?;
        let upto = if self.heartbeats {
            String::new()
        } else {
            format!(" and RowKey lt '{AFTER_ROWS}'")
        };
        Ok(self
            .go_on(&mut gathered, String::new(), &upto)
            .await?
            .then_some(gathered))
    }

    /// The pages after `last`, each with what was committed since the page before; then until no half-seen commit is left.
    async fn go_on(
        &self,
        gathered: &mut Gathered,
        mut last: String,
        upto: &str,
    ) -> Result<bool, TableError> {
        let mut repairs = 0;
        let mut done = false;
        while !done || gathered.torn {
            repairs += usize::from(done);
            if repairs > REPAIRS {
                return Ok(false);
            }
            if repairs > 2 {
                // Somebody's transaction is on its way.
                tokio::time::sleep(std::time::Duration::from_millis(5 << repairs.min(5))).await;
            }
            let since = entity::written_at(gathered.version.version);
            let more = if done {
                String::new()
            } else {
                format!(" or (RowKey gt '{}'{upto})", quoted(&last))
            };
            let filter = self.filter(&format!(
                " and (RowKey eq '{VERSION}' or {WRITTEN_AT} gt '{since}'{more})"
            ));
            let (entities, next) = self.followed(&filter, Some(&last)).await?;
            let Some(version) = entities.iter().find(|entity| entity.row_key == VERSION) else {
                return Ok(false);
            };
            let now = Gathered::new(version, self.known)?;
            gathered.advance(now, &entities, self.seen);
            done |= next.is_none();
            if let Some(entity) = entities.last().filter(|entity| entity.row_key > last) {
                last = entity.row_key.clone();
            }
        }
        Ok(true)
    }

    /// A query, and its continuations until one has come to something beyond `last`, or to its end.
    async fn followed(
        &self,
        filter: &str,
        last: Option<&str>,
    ) -> Result<(Vec<Entity>, Option<crate::link::Next>), TableError> {
        let mut found = Vec::new();
        let mut next = None;
        loop {
            let page = self
                .link
                .query(self.by, filter, None, None, next.as_ref())
                .await?;
            if page.no_table {
                return Ok((Vec::new(), None));
            }
            found.extend(page.entities);
            next = page.next;
            let beyond = last.is_some_and(|last| {
                found
                    .last()
                    .is_some_and(|entity: &Entity| entity.row_key.as_str() > last)
            });
            if next.is_none() || beyond {
                return Ok((found, next));
            }
        }
    }

    /// What was committed since a snapshot that this client has, and all heartbeats if they are asked for.
    pub(crate) async fn since(&self, base: &Read) -> Result<Since, TableError> {
        let mut gathered = Gathered::of(base);
        let mut has_beats = false;
        for repair in 0..REPAIRS {
            if repair > 2 {
                tokio::time::sleep(std::time::Duration::from_millis(5 << repair.min(5))).await;
            }
            let since = entity::written_at(gathered.version.version);
            let more = if self.heartbeats && !has_beats {
                format!(" or RowKey ge '{HEARTBEAT}' or RowKey eq '{CELL}'")
            } else {
                String::new()
            };
            let filter = self.filter(&format!(
                " and (RowKey eq '{VERSION}' or {WRITTEN_AT} gt '{since}'{more})"
            ));
            let (entities, _) = self.followed(&filter, None).await?;
            let Some(version) = entities.iter().find(|entity| entity.row_key == VERSION) else {
                return Err(no_version_row(None, self.known));
            };
            let now = Gathered::new(version, self.known)?;
            if !leads_to(&gathered.version, &now.version) {
                return Ok(Since::Unknown);
            }
            if self.heartbeats && !has_beats {
                gathered.beats.clear();
                gathered.cell = None;
                has_beats = true;
            }
            let same = now.version.version == base.snapshot.version();
            gathered.advance(now, &entities, self.seen);
            if gathered.torn {
                continue;
            }
            if gathered.unsure || surplus(&gathered.rows, &gathered.version) != base.surplus {
                return Ok(Since::Unknown);
            }
            let read = self.finished(gathered, base.surplus);
            return Ok(if same {
                Since::Unchanged(read)
            } else {
                Since::Changed(read)
            });
        }
        Ok(Since::Unknown)
    }

    /// The version row, and all heartbeats if they are asked for; not the rows. Whether the version is the known one.
    pub(crate) async fn version_and_heartbeats(&self) -> Result<(Version, Heartbeats), TableError> {
        let more = if self.heartbeats {
            format!(" or RowKey ge '{HEARTBEAT}' or RowKey eq '{CELL}'")
        } else {
            String::new()
        };
        let (entities, _) = self
            .followed(
                &self.filter(&format!(" and (RowKey eq '{VERSION}'{more})")),
                None,
            )
            .await?;
        let version = entities.iter().find(|entity| entity.row_key == VERSION);
        let mut gathered = Gathered::new(
            version.ok_or_else(|| no_version_row(None, self.known))?,
            self.known,
        )?;
        gathered.take(&entities, self.seen);
        let heartbeats = entity::heartbeats(&gathered.beats, gathered.cell, None);
        Ok((
            Version {
                row: gathered.version,
                base: gathered.base,
            },
            heartbeats,
        ))
    }

    /// The version row and one row with its heartbeat.
    pub(crate) async fn row(
        &self,
        key: &str,
    ) -> Result<(Version, Option<Row>, Option<Heartbeat>), TableError> {
        let stored = entity::row_key(key);
        let which = format!(
            " and (RowKey eq '{VERSION}' or RowKey eq '{0}' or RowKey eq '{HEARTBEAT}{0}')",
            quoted(&stored)
        );
        let filter = self.filter(&which);
        for attempt in 0..REPAIRS {
            let (entities, _) = self.followed(&filter, None).await?;
            let find = |key: &str| entities.iter().find(|entity| entity.row_key == key);
            let row = find(&stored).map(|entity| entity.row(self.seen.by_key(key)));
            let Some(version) = find(VERSION) else {
                return Err(no_version_row(row.as_ref().map(Row::key), self.known));
            };
            let gathered = Gathered::new(version, self.known)?;
            if row
                .as_ref()
                .is_some_and(|row| is_after(row, gathered.version.version))
                && attempt + 1 < REPAIRS
            {
                tokio::time::sleep(std::time::Duration::from_millis(2 << attempt.min(5))).await;
                continue;
            }
            let beat = find(&format!("{HEARTBEAT}{stored}")).and_then(Entity::heartbeat);
            return Ok((
                Version {
                    row: gathered.version,
                    base: gathered.base,
                },
                row,
                beat,
            ));
        }
        Err(error(
            TableErrorKind::Busy,
            "the row changed under every attempt",
        ))
    }
}

/// The version row, and what a commit on it must know of it.
#[derive(Clone, Debug)]
pub(crate) struct Version {
    pub(crate) row: VersionRow,
    pub(crate) base: Option<Base>,
}

impl Version {
    /// From the entity, if the table may be used and can be the one that `known` is from.
    pub(crate) fn of(entity: &Entity, known: Option<&VersionToken>) -> Result<Self, TableError> {
        let row = entity.version_row()?;
        // The rules are the core's, over the text of the row.
        let row = usable_version_row(
            Some(&membership_core::encoding::encode_version_row(&row)),
            None,
            known,
            Operation::Read,
            STORE,
        )?;
        let base = entity
            .etag
            .clone()
            .filter(|etag| entity::usable(etag))
            .map(|etag| Base {
                etag,
                row_count: row.row_count,
                layout: row.layout,
            });
        Ok(Self { row, base })
    }

    pub(crate) fn token(&self) -> VersionToken {
        self.row
            .token(&self.base.as_ref().map(Base::to_bytes).unwrap_or_default())
    }
}

/// There is no version row: never was, is no more, or rows stand there without it. Clauses T12, T16.
pub(crate) fn no_version_row(stray: Option<&str>, known: Option<&VersionToken>) -> TableError {
    match usable_version_row(None, stray, known, Operation::Read, STORE) {
        Err(why) => why,
        Ok(_) => error(
            TableErrorKind::NotInitialized,
            "the cluster has no version row",
        ),
    }
}

pub(crate) fn is_row(row_key: &str) -> bool {
    row_key != VERSION && row_key != CELL && row_key < AFTER_ROWS
}

/// The row says that it was written at a later version than this.
fn is_after(row: &Row, version: u64) -> bool {
    row.entry().is_some_and(|entry| entry.written_at > version)
}

fn surplus(rows: &Rows, version: &VersionRow) -> i64 {
    i64::try_from(rows.len())
        .unwrap_or(i64::MAX)
        .saturating_sub(i64::try_from(version.row_count).unwrap_or(i64::MAX))
}

/// Whether the later version row says itself that it came from the earlier one: then rows of that version which nothing has changed since are
/// right (clause T16).
fn leads_to(earlier: &VersionRow, later: &VersionRow) -> bool {
    if later.version == earlier.version {
        return later.last_commit() == earlier.last_commit();
    }
    if earlier.version == 0 {
        return later.record(1).is_some();
    }
    later
        .record(earlier.version)
        .is_some_and(|record: &membership_core::CommitRecord| {
            record.id == earlier.last_commit() && record.id != CommitId::new(0)
        })
}

impl Gathered {
    /// Nothing but a version row.
    fn new(version: &Entity, known: Option<&VersionToken>) -> Result<Self, TableError> {
        let Version { row, base } = Version::of(version, known)?;
        Ok(Self {
            version: row,
            base,
            rows: Rows::new(),
            beats: BTreeMap::new(),
            cell: None,
            unsure: false,
            torn: false,
        })
    }

    /// What was read before.
    fn of(base: &Read) -> Self {
        let beats = base
            .heartbeats
            .silos
            .iter()
            .map(|(silo, beat)| (silo.row_key(), *beat))
            .collect();
        let snapshot = &base.snapshot;
        Self {
            version: (*snapshot.version_row).clone(),
            base: Base::of(&snapshot.token),
            rows: snapshot.rows.clone(),
            beats,
            cell: base.heartbeats.cluster.clone(),
            unsure: false,
            torn: false,
        }
    }

    /// Takes in what came with the version row that is held.
    fn take(&mut self, entities: &[Entity], seen: &Rows) {
        for entity in entities {
            if let Some(name) = entity.row_key.strip_prefix(HEARTBEAT) {
                if let Some(beat) = entity.heartbeat() {
                    self.beats.insert(entity::row_name(name), beat);
                }
            } else if entity.row_key == CELL {
                self.cell = entity.cell();
            } else if is_row(&entity.row_key) {
                let row = entity.row(seen.by_key(&entity::row_name(&entity.row_key)));
                if is_after(&row, self.version.version) {
                    self.torn = true;
                } else {
                    self.rows.insert(row);
                }
            }
        }
    }

    /// Goes to a newer version, with everything that was written since the held one and came with it.
    fn advance(&mut self, now: Self, entities: &[Entity], seen: &Rows) {
        let from = self.version.version;
        let held = (self.version.clone(), self.base.clone());
        (self.version, self.base) = (now.version, now.base);
        self.torn = false;
        self.take(entities, seen);
        let came: BTreeSet<String> = entities
            .iter()
            .map(|entity| entity::row_name(&entity.row_key))
            .collect();
        let recorded = self
            .version
            .recent
            .iter()
            .filter(|record| record.version > from)
            .count() as u64;
        self.unsure |= recorded < self.version.version.saturating_sub(from);
        let mut removed = Vec::new();
        for record in self
            .version
            .recent
            .iter()
            .filter(|record| record.version > from)
        {
            match &record.changed {
                // Changed, and not among what was written since: it is no more.
                ChangedKeys::Keys(keys) => {
                    removed.extend(keys.iter().filter(|key| !came.contains(*key)))
                }
                ChangedKeys::Count(_) => self.unsure = true,
            }
        }
        for key in removed {
            self.rows.remove(key);
        }
        if self.torn {
            // Half of a later commit shows: what is held is right as of the old version and must be asked for again.
            (self.version, self.base) = held;
        }
    }
}

#[cfg(test)]
mod tests;
