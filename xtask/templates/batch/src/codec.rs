//! How a cluster is stored in {{Title}}: everything that is written for this store is here.
//!
//! To be written: one function after the other, each as its comment says. `table.rs` calls them and
//! is complete.
#![allow(dead_code, unused_imports, clippy::unused_async, reason = "until the functions are written")]

use membership_core::{ClusterName, Heartbeat, Heartbeats, RowChange, TableError, TableLimits};
use membership_provider::Timeouts;

use crate::error::{from_store, not_written};
use crate::{STORE, {{Title}}Config};

/// How much fits. `rows_per_commit` is one less than the operations that the store takes in one
/// batch: the version row is one of them.
pub(crate) const LIMITS: TableLimits = TableLimits::new(99, 1 << 16, 3 << 20, 5_000);

/// Names one stored state of the version row, as the store does (an ETag, a revision, a version):
/// never the same again.
pub(crate) type Tag = Vec<u8>;

/// A cluster as of one moment.
#[derive(Debug, Default)]
pub(crate) struct Stored {
    /// The version row's tag and text; none where there is none.
    pub(crate) version_row: Option<(Tag, String)>,
    /// Key and text of every row.
    pub(crate) rows: Vec<(String, String)>,
    /// Every heartbeat and the cluster's own cell where they were asked for; those without a row
    /// may be among them.
    pub(crate) heartbeats: Heartbeats,
}

/// One row as of one moment.
#[derive(Debug, Default)]
pub(crate) struct StoredRow {
    /// The version row's tag and text; none where there is none.
    pub(crate) version_row: Option<(Tag, String)>,
    /// The row's text.
    pub(crate) row: Option<String>,
    /// Its heartbeat.
    pub(crate) heartbeat: Option<Heartbeat>,
}

/// What a batch came to.
#[derive(Debug)]
pub(crate) enum Batch {
    /// It happened, whole; the version row has this tag now.
    Applied(Tag),
    /// A condition did not hold, and nothing happened.
    Refused,
}

/// One cluster's place in {{Title}}.
pub(crate) struct Store {
    /// The partition of this cluster: safe characters only. It may be a prefix of another
    /// cluster's: a prefix is closed with a separator.
    cluster: String,
    timeouts: Timeouts,
}

impl Store {
    /// Connects. Nothing is written.
    pub(crate) async fn open(config: &{{Title}}Config, cluster: &ClusterName) -> Result<Self, TableError> {
        Ok(Self { cluster: cluster.store_key(), timeouts: config.timeouts })
    }

    /// Makes the table, container or bucket where it is missing; many may do so at once.
    pub(crate) async fn prepare(&self) -> Result<(), TableError> {
        Err(not_written("prepare"))
    }

    /// From now on requests take a new connection, to an address resolved anew. Requests under way
    /// keep theirs, which is closed after them.
    pub(crate) async fn reconnect(&self) -> Result<(), TableError> {
        Err(not_written("reconnect"))
    }

    /// The cluster, rows and version row as of one moment. Where that takes several requests, see
    /// "Torn pages" in docs/new-provider.md. With `barrier` it is the newest moment, whatever the store's
    /// usual reads are.
    pub(crate) async fn read(&self, _heartbeats: bool, _barrier: bool) -> Result<Stored, TableError> {
        Err(not_written("read"))
    }

    /// The version row and one row, as of one moment.
    pub(crate) async fn read_row(&self, _key: &str) -> Result<StoredRow, TableError> {
        Err(not_written("read_row"))
    }

    /// Writes the version row's new text (none: removes it) and all changes, or nothing. The
    /// conditions: the version row has the tag `base` (none: there is no version row), an inserted
    /// row is not there, an updated or removed row is.
    pub(crate) async fn batch(&self, _base: Option<&Tag>, _version_row: Option<&str>, _changes: &[RowChange]) -> Result<Batch, TableError> {
        Err(not_written("batch"))
    }

    /// Overwrites one heartbeat, and no row's tag. One request, without a condition.
    pub(crate) async fn put_heartbeat(&self, _key: &str, _heartbeat: &Heartbeat) -> Result<(), TableError> {
        Err(not_written("put_heartbeat"))
    }

    /// Overwrites the cluster's own cell.
    pub(crate) async fn put_cluster_cell(&self, _text: &str) -> Result<(), TableError> {
        Err(not_written("put_cluster_cell"))
    }

    /// Removes the heartbeats of these silos, or all of them and the cluster's own cell; what is
    /// not there is removed already.
    pub(crate) async fn remove_heartbeats(&self, _keys: Option<&[String]>) -> Result<(), TableError> {
        Err(not_written("remove_heartbeats"))
    }
}
