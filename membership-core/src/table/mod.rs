//! The membership table: the contract every storage system keeps.

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

use async_trait::async_trait;
use futures_core::Stream;

use crate::{
    ClusterName, Heartbeat, Heartbeats, Row, SharedSettings, SiloAddress, Snapshot, TableId,
    VersionToken,
};

/// What `initialize` needs.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct InitializeRequest {
    /// The id of the table if this call makes it: random, chosen by the caller, because the core has no source of randomness.
    pub table_id: TableId,
    /// The shared settings if this call makes the table. The first writer wins.
    pub settings: SharedSettings,
}

impl InitializeRequest {
    /// Creates the table under this id and with these settings where there is none.
    #[must_use]
    pub const fn new(table_id: TableId, settings: SharedSettings) -> Self {
        Self { table_id, settings }
    }
}

/// What to read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ReadRequest {
    /// The version the caller holds: when it is still current, the answer may be [`ReadAnswer::Unchanged`]; when the table can no longer
    /// have come from it, the answer is an error of kind `TableReplaced` or `TableRolledBack` (clause T16).
    pub known: Option<VersionToken>,
    /// Read heartbeats too.
    pub heartbeats: bool,
    /// Make this read linearizable, whatever the store's usual reads are.
    pub barrier: bool,
}

impl ReadRequest {
    /// Every row and heartbeat, whatever the caller knows, as recent as the store's usual reads.
    #[must_use]
    pub const fn all() -> Self {
        Self {
            known: None,
            heartbeats: true,
            barrier: false,
        }
    }

    /// The same, where the caller holds this version.
    #[must_use]
    pub fn with_known(mut self, known: impl Into<Option<VersionToken>>) -> Self {
        self.known = known.into();
        self
    }

    /// The same, with heartbeats or without.
    #[must_use]
    pub const fn with_heartbeats(mut self, heartbeats: bool) -> Self {
        self.heartbeats = heartbeats;
        self
    }

    /// The same, made linearizable or not.
    #[must_use]
    pub const fn with_barrier(mut self, barrier: bool) -> Self {
        self.barrier = barrier;
        self
    }
}

/// What was read.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ReadAnswer {
    /// The table as of one version.
    Snapshot {
        /// Version row, token and rows, as of one moment.
        snapshot: Snapshot,
        /// Heartbeats, if asked for; as recent as the rows, but not part of their atomicity.
        heartbeats: Option<Heartbeats>,
    },
    /// The known token is still the current one.
    Unchanged {
        /// Heartbeats, if asked for.
        heartbeats: Option<Heartbeats>,
    },
}

impl ReadAnswer {
    /// The heartbeats, if asked for.
    #[must_use]
    pub const fn heartbeats(&self) -> Option<&Heartbeats> {
        match self {
            Self::Snapshot { heartbeats, .. } | Self::Unchanged { heartbeats } => {
                heartbeats.as_ref()
            }
        }
    }
}

/// One row, with the version it was read at.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct RowRead {
    /// The version row's version and token at that moment.
    pub token: VersionToken,
    /// The row; none when there is none.
    pub row: Option<Row>,
    /// Its heartbeat; none when there is no row, or none was written yet.
    pub heartbeat: Option<Heartbeat>,
}

impl RowRead {
    /// A row, or none, at the version that the token names. A heartbeat without a row is an orphan, and is not shown.
    #[must_use]
    pub fn new(token: VersionToken, row: Option<Row>, heartbeat: Option<Heartbeat>) -> Self {
        Self {
            token,
            heartbeat: row.as_ref().and(heartbeat),
            row,
        }
    }
}

/// What `update_i_am_alive` overwrites.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HeartbeatWrite {
    /// One silo's heartbeat.
    Silo {
        /// Whose.
        silo: SiloAddress,
        /// The beat.
        heartbeat: Heartbeat,
    },
    /// The cluster's own cell, at most 4 KiB.
    Cluster {
        /// Its new content.
        text: String,
    },
}

/// "The version may have moved." A hint only: it may come late, twice or never. The stream ends when the table handle is dropped.
pub type HintStream = Pin<Box<dyn Stream<Item = ()> + Send + 'static>>;

/// The table of one cluster in some storage system.
///
/// A provider implements this and nothing else; what people call `read_all`, `insert_row`, `update_row`,
/// `cleanup_defunct_silo_entries` and `gateways` is written once over it, in `TableExt`.
///
/// # What every implementation guarantees
///
/// | # | clause |
/// |---|---|
/// | T1 | Within one table id the version is 0 after `initialize`, rises by exactly one per committed commit, never falls, and no number is used twice. |
/// | T2 | A commit happens whole or not at all, also when the client crashes, and when the store does if [`Guarantees::durability`] says so. |
/// | T3 | Conflict means: stale token, insert of a row that exists, update or removal of one that does not. It has no side effect. |
/// | T4 | Conflict means nothing else: throttling, deadlocks, leader changes and permissions are errors; and a conflict is never an error. |
/// | T5 | An error whose outcome is unknown says so. A commit sent again is answered by its commit id; one's own success is never called a conflict. |
/// | T6 | A read is atomic and as recent as [`Guarantees::reads`] says; with a barrier it is linearizable. |
/// | T7 | A heartbeat changes neither version, token nor rows. |
/// | T8 | A heartbeat creates no row. A commit never moves a stored heartbeat back. |
/// | T9 | Clusters sharing a store are isolated, whatever their names. |
/// | T10 | Every field survives the round trip, and so do fields this build does not know. |
/// | T11 | 5,000 rows work unless [`limits`](Self::limits) says less; exceeding a limit is an error before anything is sent. |
/// | T12 | A row that cannot be decoded is returned as such. No version row is "not initialized", never "empty"; rows without one are "damaged". |
/// | T13 | Unavailable never looks empty, every operation ends, and works again when the store is back. |
/// | T14 | Dropping a future leaves the table in one of the two legal states and the client usable. |
/// | T15 | Secrets never appear in errors, logs or `Debug` output. |
/// | T16 | A table wiped, re-created, restored or rolled back is reported as `TableReplaced` or `TableRolledBack`, and no commit lands on it. |
///
/// # Cancellation
/// Every future may be dropped at any time; see T14. A dropped `commit` may have happened.
#[async_trait]
pub trait MembershipTable: fmt::Debug + Send + Sync + 'static {
    /// What store this is, in one word (`memory`, `sqlite`, …): for logs, metrics and errors.
    fn store(&self) -> &'static str;

    /// Which cluster's table this is.
    fn cluster(&self) -> &ClusterName;

    /// Creates what the store needs, and the version row at 0 only where no row of the cluster exists. Idempotent, and safe when many
    /// silos call it at once; never resets anything.
    ///
    /// # Errors
    /// `ForeignTable` or `NewerLayout` before anything is written; `Damaged` where rows exist without a version row; `BeingDeleted`
    /// where a `delete` was interrupted; otherwise what the store says.
    async fn initialize(&self, request: &InitializeRequest) -> Result<(), TableError>;

    /// An atomic snapshot: version row, every row, and every heartbeat if asked for.
    ///
    /// # Errors
    /// `NotInitialized` (only when `known` is none), `TableReplaced`, `TableRolledBack`, `BeingDeleted`, or what the store says.
    async fn read(&self, request: &ReadRequest) -> Result<ReadAnswer, TableError>;

    /// The version and one row with its heartbeat, atomically. A missing row is none, not an error.
    ///
    /// # Errors
    /// As for [`read`](Self::read).
    async fn read_row(
        &self,
        silo: &SiloAddress,
        known: Option<&VersionToken>,
    ) -> Result<RowRead, TableError>;

    /// All the changes and the version + 1, atomically, if the version row still is what the request's token names.
    ///
    /// # Errors
    /// [`TableError::next_step`] says whether the write certainly did not happen (`Retry`), may have happened (`FindOut`), or will not
    /// happen that way (`GiveUp`).
    async fn commit(&self, request: &CommitRequest) -> Result<CommitOutcome, TableError>;

    /// Overwrites one heartbeat and nothing else; unconditional, one round trip.
    ///
    /// # Errors
    /// `NoSuchRow` where the store can tell without a second round trip; otherwise what the store says.
    async fn update_i_am_alive(&self, write: &HeartbeatWrite) -> Result<(), TableError>;

    /// Removes the cluster: rows, heartbeats and the version row, which is first marked and goes last, so that an interrupted delete can
    /// be started again. A cluster that does not exist is deleted already.
    ///
    /// # Errors
    /// `ForeignTable` before anything is removed, or what the store says; call again.
    async fn delete(&self) -> Result<(), TableError>;

    /// How much fits.
    fn limits(&self) -> TableLimits;

    /// What reads and acknowledged commits are worth.
    fn guarantees(&self) -> Guarantees;

    /// A stream that says that the version may have moved, where the store has such a thing.
    fn hints(&self) -> Option<HintStream> {
        None
    }

    /// What a benchmark holds this table against, where the provider says; see [`Baseline`].
    fn baseline(&self) -> Option<Box<dyn Baseline>> {
        None
    }
}
