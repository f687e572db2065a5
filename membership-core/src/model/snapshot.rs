//! One version of the table, whole.

use std::sync::Arc;

use super::ids::TableId;
use super::rows::Rows;
use super::version::{VersionRow, VersionToken};

/// The table as of one version: the version row, the token to commit against it, and every row. Heartbeats travel beside it.
/// Immutable in use and cheap to clone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Snapshot {
    /// The version row.
    pub version_row: Arc<VersionRow>,
    /// What a commit against this version carries.
    pub token: VersionToken,
    /// Every silo row.
    pub rows: Rows,
}

impl Snapshot {
    /// The version.
    #[must_use]
    pub fn version(&self) -> u64 {
        self.version_row.version
    }

    /// Which life of the table.
    #[must_use]
    pub fn table_id(&self) -> TableId {
        self.version_row.table_id
    }
}
