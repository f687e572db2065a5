//! The changed and removed rows from one version to a later one.

use std::collections::BTreeSet;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::ClusterView;
use crate::model::version::{CommitRecord, RECENT_COMMITS};
use crate::{ChangedKeys, Row, Rows, Snapshot, TableId, VersionRow, VersionToken};

/// The changed and removed rows from one version to a later one; a whole snapshot when `from` is
/// `None`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Delta {
    /// The version that it applies to; `None` = any version, because it contains all rows.
    pub from: Option<u64>,
    /// The version row of the later version.
    #[serde(with = "crate::encoding::wire::version_row")]
    pub version_row: Arc<VersionRow>,
    /// The token of the later version.
    pub token: VersionToken,
    /// The digest of all rows of the later version.
    pub digest: u128,
    /// The new and changed rows.
    #[serde(deserialize_with = "crate::encoding::wire::rows")]
    pub rows: Vec<Row>,
    /// Keys of the removed rows.
    #[serde(deserialize_with = "crate::encoding::wire::bounded")]
    pub removed: Vec<String>,
}

/// Why a delta was not applied. The view is unchanged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DeltaError {
    /// The delta is of another table.
    #[error("the delta is of another table")]
    OtherTable,
    /// The delta starts at another version.
    #[error("the delta starts at version {from}, the view is at {at}")]
    OtherVersion {
        /// The version at which it starts.
        from: u64,
        /// The version of the view.
        at: u64,
    },
    /// The digest of the result is not the one in the delta.
    #[error("the digest does not match")]
    DigestMismatch,
    /// Token and version row do not name the same commit.
    #[error("the token does not match the version row")]
    TokenMismatch,
}

impl Delta {
    /// Creates a delta from its parts. [`ClusterView::delta_since`] makes one from two versions,
    /// and [`Delta::whole`] one from a view.
    #[must_use]
    pub fn new(
        from: Option<u64>,
        version_row: impl Into<Arc<VersionRow>>,
        token: VersionToken,
        digest: u128,
        rows: Vec<Row>,
        removed: Vec<String>,
    ) -> Self {
        let version_row = version_row.into();
        Self {
            from,
            version_row,
            token,
            digest,
            rows,
            removed,
        }
    }

    /// The id of its table.
    #[must_use]
    pub fn table_id(&self) -> TableId {
        self.version_row.table_id
    }

    /// The version that it leads to.
    #[must_use]
    pub fn to(&self) -> u64 {
        self.version_row.version
    }

    /// A delta with all rows of a view.
    #[must_use]
    pub fn whole(view: &ClusterView) -> Self {
        let s = view.snapshot();
        Self {
            from: None,
            version_row: s.version_row.clone(),
            token: s.token.clone(),
            digest: s.rows.digest(),
            rows: s.rows.iter().cloned().collect(),
            removed: Vec::new(),
        }
    }

    /// The delta from one version of a table to a later one, whatever its version row lists. The same
    /// two give the same delta everywhere. Costs one look at each row, if the later one was not made
    /// from the earlier one here.
    #[must_use]
    pub(crate) fn between(from: &Snapshot, to: &Snapshot) -> Self {
        let is_new =
            |row: &&Row, before: Option<&Row>| before.is_none_or(|b| !b.is_same(row) && b != *row);
        let (mut rows, mut removed): (Vec<Row>, Vec<String>) =
            match to.rows.changed_since(&from.rows) {
                Some(changed) => {
                    let pairs = changed.iter().map(|s| (from.rows.row(s), to.rows.row(s)));
                    let (mut rows, mut removed) = (Vec::new(), Vec::new());
                    for (before, now) in pairs {
                        match (before, now) {
                            (before, Some(now)) if is_new(&now, before) => rows.push(now.clone()),
                            (Some(before), None) => removed.push(before.key().to_owned()),
                            _ => {}
                        }
                    }
                    (rows, removed)
                }
                None => {
                    let changed = |row: &&Row| is_new(row, from.rows.by_key(row.key()));
                    let gone = |row: &&Row| to.rows.by_key(row.key()).is_none();
                    let gone = from.rows.iter().filter(gone);
                    (
                        to.rows.iter().filter(changed).cloned().collect(),
                        gone.map(|row| row.key().to_owned()).collect(),
                    )
                }
            };
        rows.sort_by(|a, b| a.key().cmp(b.key()));
        removed.sort();
        Self {
            from: Some(from.version()),
            version_row: to.version_row.clone(),
            token: to.token.clone(),
            digest: to.rows.digest(),
            rows,
            removed,
        }
    }

    /// The same without the records of the commits up to `from`, which whoever is at that version has. After
    /// large commits they are longer than the changes.
    #[must_use]
    pub(crate) fn without_known_records(mut self) -> Self {
        if let Some(from) = self.from {
            let row = Arc::make_mut(&mut self.version_row);
            row.recent.retain(|record| record.version > from);
        }
        self
    }

    /// The same with the records that [`without_known_records`](Self::without_known_records) has left
    /// out. None if it starts at another version than `base`.
    #[must_use]
    pub(crate) fn with_records_of(&self, base: &Snapshot) -> Option<Self> {
        if self.from != Some(base.version()) {
            return None;
        }
        let is_new = |record: &&CommitRecord| record.version > base.version();
        let new = self.version_row.recent.iter().filter(is_new);
        let mut recent: Vec<_> = base.version_row.recent.iter().chain(new).cloned().collect();
        recent.drain(..recent.len().saturating_sub(RECENT_COMMITS));
        let mut row = VersionRow::clone(&self.version_row);
        row.recent = recent;
        Some(Self {
            version_row: Arc::new(row),
            ..self.clone()
        })
    }

    /// The snapshot that this delta makes from `base` (required unless the delta is whole).
    ///
    /// # Errors
    /// [`DeltaError`]; nothing is changed.
    pub fn resolve(&self, base: Option<&Snapshot>) -> Result<Snapshot, DeltaError> {
        self.resolve_with(base, None)
    }

    /// The same; `result` are the rows to which it leads, if they are known.
    pub(crate) fn resolve_with(
        &self,
        base: Option<&Snapshot>,
        result: Option<Rows>,
    ) -> Result<Snapshot, DeltaError> {
        if self.token.table_id() != self.version_row.table_id
            || self.token.version() != self.version_row.version
            || self.token.commit() != self.version_row.last_commit()
        {
            return Err(DeltaError::TokenMismatch);
        }
        let mut rows = match (self.from, base) {
            (None, _) => Rows::new(),
            (Some(from), None) => return Err(DeltaError::OtherVersion { from, at: 0 }),
            (Some(_), Some(base)) if base.table_id() != self.table_id() => {
                return Err(DeltaError::OtherTable);
            }
            (Some(from), Some(base)) if base.version() != from => {
                return Err(DeltaError::OtherVersion {
                    from,
                    at: base.version(),
                });
            }
            (Some(_), Some(base)) => base.rows.clone(),
        };
        if let Some(result) = result.filter(|rows| rows.digest() == self.digest) {
            let (token, version_row) = (self.token.clone(), self.version_row.clone());
            return Ok(Snapshot::new(token, version_row, result));
        }
        for key in &self.removed {
            rows.remove(key);
        }
        for row in &self.rows {
            // A row that this silo already has stays the same object in memory, so that versions
            // continue to share it.
            let known = base
                .and_then(|b| b.rows.by_key(row.key()))
                .filter(|old| *old == row);
            rows.insert(known.unwrap_or(row).clone());
        }
        if rows.digest() != self.digest {
            return Err(DeltaError::DigestMismatch);
        }
        Ok(Snapshot::new(
            self.token.clone(),
            self.version_row.clone(),
            rows,
        ))
    }
}

impl ClusterView {
    /// The delta from an older version of the same table to this one. `None` when the version row
    /// no longer has a record of every commit between (more than 16, or one that changed too many
    /// rows to list); use [`Delta::whole`] then.
    #[must_use]
    pub fn delta_since(&self, from: u64) -> Option<Delta> {
        let s = self.snapshot();
        if from > s.version() {
            return None;
        }
        let mut keys = BTreeSet::new();
        for version in from..s.version() {
            match &s.version_row.record(version + 1)?.changed {
                ChangedKeys::Keys(changed) => keys.extend(changed.iter().map(String::as_str)),
                ChangedKeys::Count(_) => return None,
            }
        }
        let (mut rows, mut removed) = (Vec::new(), Vec::new());
        for key in keys {
            match s.rows.by_key(key) {
                Some(row) => rows.push(row.clone()),
                None => removed.push(key.to_owned()),
            }
        }
        Some(Delta {
            from: Some(from),
            version_row: s.version_row.clone(),
            token: s.token.clone(),
            digest: s.rows.digest(),
            rows,
            removed,
        })
    }

    /// Whether the version row lists what has changed since that version.
    pub(crate) fn lists_since(&self, from: u64) -> bool {
        let row = &self.snapshot().version_row;
        let record = |version: u64| row.record(version + 1);
        from <= row.version
            && row.version - from <= RECENT_COMMITS as u64
            && (from..row.version).all(|version| {
                record(version).is_some_and(|r| matches!(r.changed, ChangedKeys::Keys(_)))
            })
    }

    /// The view after `delta`, announced. The cost depends on the number of changes; the digest is checked.
    ///
    /// # Errors
    /// [`DeltaError`]; this view is unchanged.
    pub fn apply(&self, delta: &Delta) -> Result<Self, DeltaError> {
        Ok(Self::new(delta.resolve(Some(self.snapshot()))?))
    }
}
