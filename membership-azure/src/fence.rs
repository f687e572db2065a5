//! Combines pages of different moments into one snapshot. Clause T6.
//!
//! One answer of the service is of one moment; two answers are of two. So every query of a read
//! also asks for the version row, and for every row that was written after the version of the
//! draft. A row that changed since shows by its version. A removed row is among the keys of the
//! recent commits, or missing from the number of rows; then everything is read again.
//!
//! Pure: no function here waits or sends a request.

use std::collections::BTreeSet;

use membership_core::{
    ChangedKeys, CommitId, CommitRecord, Row, Rows, TableError, VersionRow, VersionToken,
};
use membership_provider::StoredHeartbeats;

use crate::client::Read;
use crate::codec::{Base, Entity, Version};
use crate::keys::{self, CELL, HEARTBEAT, is_row};

/// Rows as of a version, up to a row key.
pub(crate) struct Draft {
    pub(crate) version: VersionRow,
    pub(crate) base: Option<Base>,
    pub(crate) rows: Rows,
    pub(crate) heartbeats: StoredHeartbeats,
    /// The rows may include removed ones: between two queries there were more commits than the
    /// version row records.
    pub(crate) unsure: bool,
    /// A row of a version later than the version row's was read: the rows are not as of one version
    /// yet.
    pub(crate) torn: bool,
}

impl Draft {
    /// Only a version row.
    pub(crate) fn new(version: &Entity, known: Option<&VersionToken>) -> Result<Self, TableError> {
        let Version { row, base } = Version::of(version, known)?;
        Ok(Self {
            version: row,
            base,
            rows: Rows::new(),
            heartbeats: StoredHeartbeats::default(),
            unsure: false,
            torn: false,
        })
    }

    /// The result of an earlier read.
    pub(crate) fn of(read: &Read) -> Self {
        let snapshot = &read.snapshot;
        Self {
            version: (*snapshot.version_row).clone(),
            base: Base::of(&snapshot.token),
            rows: snapshot.rows.clone(),
            heartbeats: StoredHeartbeats::from(&read.heartbeats),
            unsure: false,
            torn: false,
        }
    }

    /// Adds the entities that came with the draft's version row.
    pub(crate) fn take(&mut self, entities: &[Entity], seen: &Rows) {
        for entity in entities {
            if let Some(name) = entity.row_key.strip_prefix(HEARTBEAT) {
                if let Some(text) = entity.heartbeat() {
                    self.heartbeats.insert(keys::row_name(name), text);
                }
            } else if entity.row_key == CELL {
                self.heartbeats.cell = entity.cell();
            } else if is_row(&entity.row_key) {
                let row = entity.row(seen);
                if is_after(&row, self.version.version) {
                    self.torn = true;
                } else {
                    self.rows.insert(row);
                }
            }
        }
    }

    /// Moves to a newer version, with all rows written since the draft's version.
    pub(crate) fn advance(&mut self, now: Self, entities: &[Entity], seen: &Rows) {
        let from = self.version.version;
        let before = (self.version.clone(), self.base.clone());
        (self.version, self.base) = (now.version, now.base);
        self.torn = false;
        self.take(entities, seen);
        let came: BTreeSet<String> = entities
            .iter()
            .map(|entity| keys::row_name(&entity.row_key))
            .collect();
        let recent: Vec<&CommitRecord> = self
            .version
            .recent
            .iter()
            .filter(|record| record.version > from)
            .collect();
        self.unsure |= (recent.len() as u64) < self.version.version.saturating_sub(from);
        for record in recent {
            match &record.changed {
                // A changed key without a row that was written since: the row was removed.
                ChangedKeys::Keys(keys) => {
                    for key in keys.iter().filter(|key| !came.contains(*key)) {
                        self.rows.remove(key);
                    }
                }
                ChangedKeys::Count(_) => self.unsure = true,
            }
        }
        if self.torn {
            // Half of a later commit shows: the draft stays at its version, and the query repeats.
            (self.version, self.base) = before;
        }
    }

    /// How many rows more there are than the version row counts.
    pub(crate) fn surplus(&self) -> i64 {
        let signed = |n: u64| i64::try_from(n).unwrap_or(i64::MAX);
        signed(self.rows.len() as u64).saturating_sub(signed(self.version.row_count))
    }
}

/// Whether the row was written at a version later than this.
pub(crate) fn is_after(row: &Row, version: u64) -> bool {
    row.entry().is_some_and(|entry| entry.written_at > version)
}

/// Whether the later version row confirms that it came from the earlier one. Then rows of the
/// earlier version that no commit changed since are right (clause T16).
pub(crate) fn leads_to(earlier: &VersionRow, later: &VersionRow) -> bool {
    if later.version == earlier.version {
        return later.last_commit() == earlier.last_commit();
    }
    if earlier.version == 0 {
        return later.record(1).is_some();
    }
    let record = later.record(earlier.version);
    record.is_some_and(|record| record.id == earlier.last_commit() && record.id != CommitId::new(0))
}

#[cfg(test)]
mod tests;
