//! The version row: the cell whose compare-and-swap orders all commits.

use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::address::SiloAddress;
use super::content_hash::ContentHash;
use super::core_cell::CoreCell;
use super::entry::Extra;
use super::ids::{CommitId, TableId};
use super::settings::SharedSettings;
use super::time::WallTime;

/// Number of commits that the version row keeps.
pub const RECENT_COMMITS: usize = 16;
/// Maximum number of keys that the record of a commit lists; for more keys it has only their
/// number.
pub const MAX_RECORDED_KEYS: usize = 64;
/// Maximum size of [`VersionRow::core`], in bytes.
pub const MAX_CORE_BYTES: usize = 1024;
/// Maximum size of the cluster's own cell beside the heartbeats, in bytes.
pub const MAX_CLUSTER_CELL_BYTES: usize = 4096;

/// Which rows a commit changed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ChangedKeys {
    /// The keys of these rows.
    Keys(Vec<String>),
    /// This number of rows, too many to list: readers must read all rows.
    Count(u64),
}

/// One of the last commits.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct CommitRecord {
    /// The version that it made.
    pub version: u64,
    /// The id that the committer chose.
    pub id: CommitId,
    /// The silo that made it; `None` when a person or another program did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub committer: Option<SiloAddress>,
    /// The rows that it changed.
    pub changed: ChangedKeys,
    /// When it was made, by the committer's clock, for people; `None` of a builder without a clock.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub at: Option<WallTime>,
}

impl CommitRecord {
    /// Creates the record of the commit that made `version`.
    #[must_use]
    pub const fn new(
        version: u64,
        id: CommitId,
        committer: Option<SiloAddress>,
        changed: ChangedKeys,
    ) -> Self {
        Self {
            version,
            id,
            committer,
            changed,
            at: None,
        }
    }
}

/// The version row.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct VersionRow {
    /// The id of the table's current life.
    pub table_id: TableId,
    /// Number of commits so far: 0 to 2^53.
    pub version: u64,
    /// The last commits, oldest first, at most [`RECENT_COMMITS`].
    pub recent: Vec<CommitRecord>,
    /// Number of silo rows.
    pub row_count: u64,
    /// The layout of the build that wrote this row.
    pub layout: u32,
    /// The smallest layout that may read and write this table.
    pub min_layout: u32,
    /// The settings that all silos share.
    pub settings: SharedSettings,
    /// At most 1 KiB of text that belongs to this crate. `Serialize` leaves its secret out.
    #[serde(default, skip_serializing_if = "CoreCell::is_empty")]
    pub core: CoreCell,
    /// `delete` has begun: nothing but `delete` works any more.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub deleting: bool,
    /// Fields of newer builds, kept unchanged.
    #[serde(flatten)]
    pub extra: Extra,
}

impl VersionRow {
    /// The version row of a new table.
    #[must_use]
    pub fn initial(table_id: TableId, settings: SharedSettings) -> Self {
        Self {
            table_id,
            version: 0,
            recent: Vec::new(),
            row_count: 0,
            layout: crate::encoding::LAYOUT,
            min_layout: crate::encoding::MIN_LAYOUT,
            settings,
            core: CoreCell::default(),
            deleting: false,
            extra: Extra::default(),
        }
    }

    /// The same row as others may see it: without the cluster's secret.
    #[must_use]
    pub fn without_secret(&self) -> Self {
        Self {
            core: self.core.without_secret(),
            ..self.clone()
        }
    }

    /// Whether both are the same as others may see them.
    pub(crate) fn is_same_without_secret(&self, other: &Self) -> bool {
        let Self {
            table_id,
            version,
            recent,
            row_count,
            layout,
            min_layout,
            settings,
            core,
            deleting,
            extra,
        } = other;
        std::ptr::eq(self, other)
            || (self.table_id == *table_id
                && self.version == *version
                && self.recent == *recent
                && self.row_count == *row_count
                && self.layout == *layout
                && self.min_layout == *min_layout
                && self.settings == *settings
                && self.core.without_secret() == core.without_secret()
                && self.deleting == *deleting
                && self.extra == *extra)
    }

    /// The hash of the rows at this version. None if whoever made it did not know all rows.
    pub(crate) fn content_hash(&self) -> Option<ContentHash> {
        self.core.content_hash(self.version)
    }

    /// The same row, marked by `delete`: nothing but `delete` works from then on.
    #[must_use]
    pub const fn marked_as_deleting(mut self) -> Self {
        self.deleting = true;
        self
    }

    /// The id of the commit that made this version; zero for version 0.
    #[must_use]
    pub fn last_commit(&self) -> CommitId {
        self.recent.last().map_or(CommitId::new(0), |r| r.id)
    }

    /// The record of the commit that made `version`, if it is still kept.
    #[must_use]
    pub fn record(&self, version: u64) -> Option<&CommitRecord> {
        self.recent.iter().find(|r| r.version == version)
    }

    /// The token of this version. `store` is additional data of the store, at most 64 bytes (for
    /// example a revision).
    #[must_use]
    pub fn token(&self, store: &[u8]) -> VersionToken {
        VersionToken::new(self.table_id, self.version, self.last_commit(), store)
    }
}

/// Names one version of one table for a compare-and-swap: opaque, at most 128 bytes. It contains
/// the commit id and is therefore unique to one commit, also after the table is deleted or rolled
/// back. It is serializable and travels with snapshots, views and messages, so that a silo with a
/// view can commit without reading first.
#[derive(Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "TokenRepr", into = "TokenRepr")]
pub struct VersionToken {
    table_id: TableId,
    version: u64,
    commit: CommitId,
    store: Arc<[u8]>,
}

#[derive(Serialize, Deserialize)]
struct TokenRepr(TableId, u64, CommitId, Vec<u8>);

/// Maximum number of bytes that a store may put into a token.
pub const MAX_STORE_TOKEN_BYTES: usize = 64;

impl From<VersionToken> for TokenRepr {
    fn from(t: VersionToken) -> Self {
        Self(t.table_id, t.version, t.commit, t.store.to_vec())
    }
}

impl TryFrom<TokenRepr> for VersionToken {
    type Error = &'static str;
    fn try_from(t: TokenRepr) -> Result<Self, Self::Error> {
        if t.3.len() > MAX_STORE_TOKEN_BYTES {
            return Err("the store's part of a version token has more than 64 bytes");
        }
        Ok(Self {
            table_id: t.0,
            version: t.1,
            commit: t.2,
            store: t.3.into(),
        })
    }
}

impl VersionToken {
    /// The token of `version`, made by `commit` (zero for version 0). Bytes of `store` beyond 64
    /// are cut off.
    #[must_use]
    pub fn new(table_id: TableId, version: u64, commit: CommitId, store: &[u8]) -> Self {
        Self {
            table_id,
            version,
            commit,
            store: store[..store.len().min(MAX_STORE_TOKEN_BYTES)].into(),
        }
    }

    /// The id of the table life that it belongs to.
    #[must_use]
    pub const fn table_id(&self) -> TableId {
        self.table_id
    }

    /// The version that it names.
    #[must_use]
    pub const fn version(&self) -> u64 {
        self.version
    }

    /// The commit that made that version; zero for version 0.
    #[must_use]
    pub const fn commit(&self) -> CommitId {
        self.commit
    }

    /// The additional data of the store.
    #[must_use]
    pub fn store(&self) -> &[u8] {
        &self.store
    }

    /// Whether both name the same commit of the same table, regardless of the store's data.
    #[must_use]
    pub fn same_commit(&self, other: &Self) -> bool {
        self.table_id == other.table_id
            && self.version == other.version
            && self.commit == other.commit
    }

    /// The token as at most 128 bytes.
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(40 + self.store.len());
        out.extend_from_slice(&self.table_id.get().to_be_bytes());
        out.extend_from_slice(&self.version.to_be_bytes());
        out.extend_from_slice(&self.commit.get().to_be_bytes());
        out.extend_from_slice(&self.store);
        out
    }

    /// Decodes the bytes of [`to_bytes`](Self::to_bytes); `None` when they are not a token.
    #[must_use]
    pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let (table, rest) = bytes.split_first_chunk::<16>()?;
        let (version, rest) = rest.split_first_chunk::<8>()?;
        let (commit, store) = rest.split_first_chunk::<16>()?;
        (store.len() <= MAX_STORE_TOKEN_BYTES).then(|| {
            Self::new(
                TableId::new(u128::from_be_bytes(*table)),
                u64::from_be_bytes(*version),
                CommitId::new(u128::from_be_bytes(*commit)),
                store,
            )
        })
    }
}

impl fmt::Debug for VersionToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "VersionToken({} v{} by {})",
            self.table_id, self.version, self.commit
        )
    }
}
