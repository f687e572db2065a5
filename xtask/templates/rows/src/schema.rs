//! How a cluster is stored in {{Title}}: everything that is written for this store is here.
//!
//! To be written: one function after the other, each as its comment says. `table.rs` calls them and
//! is complete.
#![allow(dead_code, unused_imports, clippy::unused_async, reason = "until the functions are written")]

use membership_core::{ClusterName, Heartbeat, Heartbeats, Row, TableError, TableLimits};
use membership_provider::Timeouts;

use crate::error::{from_store, not_written};
use crate::{STORE, {{Title}}Config};

/// How much fits. What the store's documentation says; then what was tried.
pub(crate) const LIMITS: TableLimits =
    TableLimits::new(1000, 1 << 16, 1 << 22, 20_000);

/// What a transaction is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Access {
    /// It reads one state of the table: every statement sees the same one.
    Read {
        /// The state is the newest at the moment of beginning, whatever the store's usual reads
        /// are.
        barrier: bool,
    },
    /// It will write. Two of them over the same version row never both commit.
    Write,
}

/// One cluster's place in {{Title}}.
pub(crate) struct Store {
    /// The key of every row of this cluster: safe characters only. It may be a prefix of another
    /// cluster's.
    cluster: String,
    timeouts: Timeouts,
}

impl Store {
    /// Connects. Nothing is written.
    pub(crate) async fn open(config: &{{Title}}Config, cluster: &ClusterName) -> Result<Self, TableError> {
        Ok(Self { cluster: cluster.store_key(), timeouts: config.timeouts })
    }

    /// Makes the tables where they are missing; many may do so at once.
    pub(crate) async fn prepare(&self) -> Result<(), TableError> {
        Err(not_written("prepare"))
    }

    /// From now on requests take a new connection, to an address resolved anew. Requests under way
    /// keep theirs, which is closed after them.
    pub(crate) async fn reconnect(&self) -> Result<(), TableError> {
        Err(not_written("reconnect"))
    }

    /// Begins a transaction.
    pub(crate) async fn begin(&self, _access: Access) -> Result<Transaction, TableError> {
        Err(not_written("begin"))
    }

    /// Overwrites the heartbeat of a silo that has a row, in one statement; false where it has
    /// none, and then nothing is written.
    pub(crate) async fn put_heartbeat(&self, _key: &str, _heartbeat: &Heartbeat) -> Result<bool, TableError> {
        Err(not_written("put_heartbeat"))
    }

    /// Overwrites the cluster's own cell.
    pub(crate) async fn put_cluster_cell(&self, _text: &str) -> Result<(), TableError> {
        Err(not_written("put_cluster_cell"))
    }
}

/// A transaction. Where the tables are not there yet, everything reads as empty. Dropped without
/// `commit`, it never happened, also when the future that held it was dropped.
pub(crate) struct Transaction {}

impl Transaction {
    /// The text of the version row; none where there is none. For [`Access::Write`] it is locked,
    /// or the commit fails where somebody else changed it.
    pub(crate) async fn version_row(&mut self) -> Result<Option<String>, TableError> {
        Err(not_written("version_row"))
    }

    /// Makes the version row; false where there is one.
    pub(crate) async fn insert_version_row(&mut self, _text: &str) -> Result<bool, TableError> {
        Err(not_written("insert_version_row"))
    }

    /// Replaces the version row.
    pub(crate) async fn replace_version_row(&mut self, _text: &str) -> Result<(), TableError> {
        Err(not_written("replace_version_row"))
    }

    /// Key and text of every row.
    pub(crate) async fn rows(&mut self) -> Result<Vec<(String, String)>, TableError> {
        Err(not_written("rows"))
    }

    /// The text of one row.
    pub(crate) async fn row(&mut self, _key: &str) -> Result<Option<String>, TableError> {
        Err(not_written("row"))
    }

    /// The key of any row, if there is one.
    pub(crate) async fn any_row(&mut self) -> Result<Option<String>, TableError> {
        Err(not_written("any_row"))
    }

    /// All heartbeats, each with whether its silo has a row, and the cluster's own cell:
    /// `Heartbeats::from_stored`.
    pub(crate) async fn heartbeats(&mut self) -> Result<Heartbeats, TableError> {
        Err(not_written("heartbeats"))
    }

    /// One heartbeat.
    pub(crate) async fn heartbeat(&mut self, _key: &str) -> Result<Option<Heartbeat>, TableError> {
        Err(not_written("heartbeat"))
    }

    /// Makes a row; false where there is one of this key.
    pub(crate) async fn insert_row(&mut self, _row: &Row) -> Result<bool, TableError> {
        Err(not_written("insert_row"))
    }

    /// Replaces a row; false where there is none of this key. Its heartbeat stays.
    pub(crate) async fn update_row(&mut self, _row: &Row) -> Result<bool, TableError> {
        Err(not_written("update_row"))
    }

    /// Removes a row and its heartbeat; false where there is none of this key.
    pub(crate) async fn remove_row(&mut self, _key: &str) -> Result<bool, TableError> {
        Err(not_written("remove_row"))
    }

    /// Removes up to `limit` rows, whichever, and gives how many.
    pub(crate) async fn remove_rows(&mut self, _limit: usize) -> Result<usize, TableError> {
        Err(not_written("remove_rows"))
    }

    /// Removes the version row, every heartbeat and the cluster's own cell; what is not there is
    /// removed already.
    pub(crate) async fn remove_the_rest(&mut self) -> Result<(), TableError> {
        Err(not_written("remove_the_rest"))
    }

    /// Commits. An error of the kind `OutcomeUnknown` unless it certainly did not happen.
    pub(crate) async fn commit(self) -> Result<(), TableError> {
        Err(not_written("commit"))
    }
}
