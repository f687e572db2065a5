//! The membership table: the contract that every provider implements.

mod baseline;
pub(crate) mod change;
mod commit;
mod continuity;
mod document;
mod error;
pub(crate) mod ext;
mod fate;
mod limits;
mod memory;
mod rules;
mod settle;
mod shared;
mod state;

pub use baseline::Baseline;
pub use commit::{Attempt, CommitOutcome, CommitRequest, Conflict, Judgement, RowChange};
pub use continuity::{Discontinuity, check_snapshot, check_token};
pub use document::{
    DocumentRead, DocumentStore, DocumentTable, MemoryDocumentStore, MemoryDocuments, Revision,
    Stored,
};
pub use error::{NextStep, Operation, TableError, TableErrorKind};
pub use ext::{CleanupPolicy, TableExt};
pub use fate::Fate;
pub use limits::{Durability, Guarantees, Recency, TableLimits};
pub use memory::{MemoryState, MemoryStore, MemoryTable};
pub use rules::{Decision, check_version_row, missing_version_row, usable_version_row};
pub use settle::{Settled, stored_version_row};

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;

use async_trait::async_trait;
use futures_core::Stream;

use crate::{
    ClusterKey, ClusterName, CoreCell, Heartbeat, Heartbeats, Row, Rows, SharedSettings,
    SiloAddress, Snapshot, TableId, VersionRow, VersionToken,
};

/// The argument of `initialize`.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct InitializeRequest {
    /// The id of the table if this call creates it: random, chosen by the caller, because this
    /// crate has no source of randomness.
    pub table_id: TableId,
    /// The shared settings if this call creates the table. The first writer wins.
    pub settings: SharedSettings,
    /// The cluster's secret if this call creates the table: random, chosen by the caller.
    pub cluster_key: ClusterKey,
}

impl InitializeRequest {
    /// Creates a request for a table with this id, these settings and this key, if there is none
    /// yet.
    #[must_use]
    pub const fn new(table_id: TableId, settings: SharedSettings, cluster_key: ClusterKey) -> Self {
        Self {
            table_id,
            settings,
            cluster_key,
        }
    }

    /// The version row of the table that it creates.
    #[must_use]
    pub fn version_row(&self) -> VersionRow {
        let mut row = VersionRow::initial(self.table_id, self.settings.clone());
        row.core = CoreCell::new(&self.cluster_key.into())
            .with_content_hash(0, Rows::new().content_hash());
        row
    }
}

/// The argument of `read`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ReadRequest {
    /// The version that the caller has. When it is still current, the answer may be
    /// [`ReadAnswer::Unchanged`]. When the table cannot be a successor of it, the answer is an
    /// error of kind `TableReplaced` or `TableRolledBack` (clause T16).
    pub known: Option<VersionToken>,
    /// Whether to read heartbeats, too.
    pub heartbeats: bool,
    /// Whether this read must be linearizable, whatever the recency of the store's usual reads.
    pub barrier: bool,
    /// Whether to read over a new connection, to an address resolved anew: the last answer is in
    /// doubt, because it may have come from a server that was deposed and does not know it.
    ///
    /// The read does not wait for any connection that existed before it, and ends in the usual
    /// time. Operations that begin after it use the new connection, too. What is under way goes on
    /// over the connection that it was sent on, which is closed afterwards. A store without
    /// connections opens what it reads anew, or has nothing to do; a client that the application
    /// made keeps its connections where only the application can replace them.
    pub new_connection: bool,
}

impl ReadRequest {
    /// Requests all rows and heartbeats, with the recency of the store's usual reads.
    #[must_use]
    pub const fn all() -> Self {
        Self {
            known: None,
            heartbeats: true,
            barrier: false,
            new_connection: false,
        }
    }

    /// Sets the version that the caller has.
    #[must_use]
    pub fn with_known(mut self, known: impl Into<Option<VersionToken>>) -> Self {
        self.known = known.into();
        self
    }

    /// Sets whether to read heartbeats.
    #[must_use]
    pub const fn with_heartbeats(mut self, heartbeats: bool) -> Self {
        self.heartbeats = heartbeats;
        self
    }

    /// Sets whether the read must be linearizable.
    #[must_use]
    pub const fn with_barrier(mut self, barrier: bool) -> Self {
        self.barrier = barrier;
        self
    }

    /// Sets whether the read takes a new connection.
    #[must_use]
    pub const fn with_new_connection(mut self, new_connection: bool) -> Self {
        self.new_connection = new_connection;
        self
    }
}

/// The answer of `read`.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ReadAnswer {
    /// The table as of one version.
    Snapshot {
        /// Version row, token and rows as of one moment.
        snapshot: Snapshot,
        /// Heartbeats, if requested; as recent as the rows, but not part of the atomic read.
        heartbeats: Option<Heartbeats>,
    },
    /// The token that the caller has is still current.
    Unchanged {
        /// Heartbeats, if requested.
        heartbeats: Option<Heartbeats>,
    },
}

impl ReadAnswer {
    /// The table as of one version, to a caller who knows another one, or none: `Unchanged` if it is
    /// the one that the caller knows.
    #[must_use]
    pub fn new(
        known: Option<&VersionToken>,
        snapshot: Snapshot,
        heartbeats: Option<Heartbeats>,
    ) -> Self {
        match known {
            Some(known) if known.same_commit(&snapshot.token) => Self::Unchanged { heartbeats },
            _ => Self::Snapshot {
                snapshot,
                heartbeats,
            },
        }
    }

    /// The heartbeats, if they were requested.
    #[must_use]
    pub const fn heartbeats(&self) -> Option<&Heartbeats> {
        match self {
            Self::Snapshot { heartbeats, .. } | Self::Unchanged { heartbeats } => {
                heartbeats.as_ref()
            }
        }
    }
}

/// One row, and the version at which it was read.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct RowRead {
    /// The token of the version at that moment.
    pub token: VersionToken,
    /// The row; `None` when it does not exist.
    pub row: Option<Row>,
    /// Its heartbeat; `None` when there is no row or no heartbeat was written yet.
    pub heartbeat: Option<Heartbeat>,
    /// The version row at that moment; `None` when that is still the version that the caller knows,
    /// and the store told no more.
    pub version_row: Option<Arc<VersionRow>>,
}

impl RowRead {
    /// Creates an answer for a row, or none, at the version that `token` names. A heartbeat without
    /// a row is dropped.
    #[must_use]
    pub fn new(token: VersionToken, row: Option<Row>, heartbeat: Option<Heartbeat>) -> Self {
        Self {
            token,
            heartbeat: row.as_ref().and(heartbeat),
            row,
            version_row: None,
        }
    }

    /// Sets the version row that was read with it.
    #[must_use]
    pub fn with_version_row(mut self, version_row: impl Into<Arc<VersionRow>>) -> Self {
        self.version_row = Some(version_row.into());
        self
    }
}

/// The argument of `update_i_am_alive`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HeartbeatWrite {
    /// One silo's heartbeat.
    Silo {
        /// The silo.
        silo: SiloAddress,
        /// Its new heartbeat.
        heartbeat: Heartbeat,
    },
    /// The cluster's own cell, at most 4 KiB.
    Cluster {
        /// Its new content.
        text: String,
    },
}

/// Hints that the version may have changed. A hint may come late, twice or never. The stream ends
/// when the table handle is dropped.
pub type HintStream = Pin<Box<dyn Stream<Item = ()> + Send + 'static>>;

/// The table of one cluster in a storage system.
///
/// A provider implements this trait and nothing else. Operations known from other membership tables
/// (`read_all`, `insert_row`, `update_row`, `cleanup_defunct_silo_entries`, `gateways`) are
/// implemented once over it, in `TableExt`.
///
/// # What every implementation guarantees
///
/// * **T1**: Within one table id the version is 0 after `initialize`, increases by exactly one with
///   each commit, never decreases, and no number is used twice.
/// * **T2**: A commit happens as a whole or not at all, also when the client crashes, and when the
///   store crashes if [`Guarantees::durability`] says so.
/// * **T3**: Conflict means: stale token, insert of a row that exists, update or removal of a row
///   that does not exist. It has no side effect.
/// * **T4**: Conflict means nothing else: throttling, deadlocks, leader changes and permissions are
///   errors; and a conflict is never an error.
/// * **T5**: An error whose outcome is unknown says so. A commit sent again is answered by its
///   commit id; a client's own success is never answered as a conflict.
/// * **T6**: A read is atomic and as recent as [`Guarantees::reads`] says; with a barrier it is
///   linearizable.
/// * **T7**: A heartbeat changes neither version, token nor rows.
/// * **T8**: A heartbeat creates no row; a full read names those without a row as orphans. A commit
///   never moves a stored heartbeat back.
/// * **T9**: Clusters that share a store are isolated, whatever their names.
/// * **T10**: Every field survives a round trip, including fields that this build does not know.
/// * **T11**: 5,000 rows work unless [`limits`](Self::limits) says less; exceeding a limit is an
///   error before anything is sent.
/// * **T12**: A row that cannot be decoded is returned as such. A missing version row is "not
///   initialized", never "empty"; rows without a version row are "damaged".
/// * **T13**: An unavailable table never looks empty; every operation ends, and works again when
///   the store is back.
/// * **T14**: Dropping a future leaves the table in one of the two legal states and the client
///   usable.
/// * **T15**: Secrets never appear in errors, logs or `Debug` output.
/// * **T16**: A table that was deleted, created again, restored or rolled back is reported as
///   `TableReplaced` or `TableRolledBack`, and no commit happens on it.
///
/// # Cancellation
/// Every future may be dropped at any time; see T14. A dropped `commit` may have happened.
#[async_trait]
pub trait MembershipTable: fmt::Debug + Send + Sync + 'static {
    /// Name of the store, in one word (`memory`, `sqlite`, …), for logs, metrics and errors.
    fn store(&self) -> &'static str;

    /// The cluster of this table.
    fn cluster(&self) -> &ClusterName;

    /// Creates what the store needs, and the version row with version 0 if the cluster has no rows.
    /// Idempotent, and safe when many silos call it at the same time. Never resets anything.
    ///
    /// # Errors
    /// `ForeignTable` or `NewerLayout` before anything is written; `Damaged` when there are rows
    /// without a version row; `BeingDeleted` when a `delete` was interrupted; otherwise the errors
    /// of the store.
    async fn initialize(&self, request: &InitializeRequest) -> Result<(), TableError>;

    /// Reads an atomic snapshot: the version row, all rows, and all heartbeats if requested.
    ///
    /// # Errors
    /// `NotInitialized` (only when `known` is `None`), `TableReplaced`, `TableRolledBack`,
    /// `BeingDeleted`, or the errors of the store.
    async fn read(&self, request: &ReadRequest) -> Result<ReadAnswer, TableError>;

    /// Reads the version row and one row with its heartbeat, atomically. A missing row is `None`, not
    /// an error. Without `known` the answer has the version row.
    ///
    /// # Errors
    /// The errors of [`read`](Self::read).
    async fn read_row(
        &self,
        silo: &SiloAddress,
        known: Option<&VersionToken>,
    ) -> Result<RowRead, TableError>;

    /// Applies all changes and increments the version, atomically, if the version row is still the
    /// one that the request's token names.
    ///
    /// # Errors
    /// [`TableError::next_step`] says whether the write certainly did not happen (`Retry`), may
    /// have happened (`FindOut`), or cannot happen without an operator (`GiveUp`).
    async fn commit(&self, request: &CommitRequest) -> Result<CommitOutcome, TableError>;

    /// Overwrites one heartbeat and nothing else; unconditional, one round trip.
    ///
    /// # Errors
    /// `NoSuchRow` if the store can detect it without a second round trip; otherwise the errors of
    /// the store.
    async fn update_i_am_alive(&self, write: &HeartbeatWrite) -> Result<(), TableError>;

    /// Removes the cluster: rows, heartbeats and the version row. The version row is marked first
    /// and removed last, so that an interrupted delete can be repeated. Succeeds when the cluster
    /// does not exist.
    ///
    /// # Errors
    /// `ForeignTable` before anything is removed, or the errors of the store; call again.
    async fn delete(&self) -> Result<(), TableError>;

    /// Limits of this table.
    fn limits(&self) -> TableLimits;

    /// Guarantees of reads and acknowledged commits.
    fn guarantees(&self) -> Guarantees;

    /// A stream of hints that the version may have changed, if the store can provide one.
    fn hints(&self) -> Option<HintStream> {
        None
    }

    /// The baseline for benchmarks of this table, if the provider has one; see [`Baseline`].
    fn baseline(&self) -> Option<Box<dyn Baseline>> {
        None
    }
}
