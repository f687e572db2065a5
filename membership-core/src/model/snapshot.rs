//! One complete version of the table.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::address::SiloAddress;
use super::ids::TableId;
use super::rows::Rows;
use super::version::{ChangedKeys, VersionRow, VersionToken};

/// The table as of one version: the version row, the token for a commit on it, and every row.
/// Heartbeats are not part of it. Cheap to clone; not changed after it is made.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Snapshot {
    /// The version row.
    pub version_row: Arc<VersionRow>,
    /// The token for a commit on this version.
    pub token: VersionToken,
    /// All silo rows.
    pub rows: Rows,
}

impl Snapshot {
    /// Creates the snapshot of the version that the row and the token name.
    #[must_use]
    pub fn new(
        token: VersionToken,
        version_row: impl Into<Arc<VersionRow>>,
        mut rows: Rows,
    ) -> Self {
        rows.seal();
        Self {
            version_row: version_row.into(),
            token,
            rows,
        }
    }

    /// Whether the rows are those that the last commit left. They are others if somebody changed
    /// them in the store without a commit. None if whoever made the commit did not know all rows.
    #[must_use]
    pub fn is_as_committed(&self) -> Option<bool> {
        let committed = self.version_row.content_hash()?;
        Some(committed == self.rows.content_hash())
    }

    /// The version.
    #[must_use]
    pub fn version(&self) -> u64 {
        self.version_row.version
    }

    /// The id of the table's current life.
    #[must_use]
    pub fn table_id(&self) -> TableId {
        self.version_row.table_id
    }

    /// The silos whose rows may differ from those of `known`, an earlier version of this table;
    /// `None` when only a comparison of all rows can tell. Either these rows were made from those here,
    /// or the version row lists what has changed.
    #[must_use]
    pub(crate) fn changed_since(&self, known: &Self) -> Option<Vec<SiloAddress>> {
        let made_here = self.rows.changed_since(&known.rows);
        made_here.or_else(|| self.listed_since(known))
    }

    /// The same by the version row alone: it lists the changed keys of its last commits, and the digests
    /// prove that nothing else changed.
    #[must_use]
    pub(crate) fn listed_since(&self, known: &Self) -> Option<Vec<SiloAddress>> {
        let leap = self.version().checked_sub(known.version())?;
        let since = self
            .version_row
            .recent
            .iter()
            .filter(|record| record.version > known.version());
        let (mut keys, mut commits) = (BTreeSet::new(), 0);
        for record in since {
            let ChangedKeys::Keys(changed) = &record.changed else {
                return None;
            };
            keys.extend(changed.iter().map(String::as_str));
            commits += 1;
        }
        let others = |rows: &Rows| {
            let of_keys = keys
                .iter()
                .filter_map(|key| rows.by_key(key))
                .fold(0_u128, |sum, row| sum.wrapping_add(row.hash()));
            rows.digest().wrapping_sub(of_keys)
        };
        let told = self.table_id() == known.table_id()
            && commits == leap
            && others(&self.rows) == others(&known.rows);
        told.then(|| keys.iter().filter_map(|key| key.parse().ok()).collect())
    }
}
