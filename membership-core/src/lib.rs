//! Cluster membership without input or output: the model, the table contract, and the protocol as a state machine.
//!
//! A cluster of servers (*silos*) agrees on who is alive through a small *membership table* in a storage system that it already uses.
//! This crate knows what is in that table ([`MembershipEntry`], [`VersionRow`]), what a store must guarantee ([`MembershipTable`]), and how a
//! silo behaves. It never looks at a clock, a socket or a source of randomness: those are handed in, or asked for by effects, so that the
//! same seed and the same inputs give the same effects, byte for byte.
//!
//! Most people want the crate `silo-membership`, which runs all this on tokio. Whoever adds a storage system wants [`MembershipTable`].
#![forbid(unsafe_code)]
#![deny(missing_docs)]

mod config;
pub mod encoding;
pub mod intent;
mod model;
pub mod protocol;
mod table;
#[cfg(feature = "testing")]
pub mod testing;
mod view;

pub use config::{Config, ConfigError, Preset};

pub use model::address::{MAX_SAFE_INTEGER, ParseSiloError, SiloAddress};
pub use model::cluster::{ClusterName, DEFAULT_SERVICE, ParseClusterError};
pub use model::entry::{Evidence, Extra, Grounds, Heartbeat, Heartbeats, MembershipEntry, ParseHeartbeatError, Suspicion};
pub use model::ids::{CommitId, InstanceId, IntentId, ParseIdError, TableId};
pub use model::rows::{Row, Rows};
pub use model::settings::SharedSettings;
pub use model::snapshot::Snapshot;
pub use model::status::{CauseOfDeath, Death, ParseStatusError, SiloStatus};
pub use model::time::{MonoTime, Now, ParseTimeError, WallTime};
pub use model::version::{
    ChangedKeys, CommitRecord, MAX_CLUSTER_CELL_BYTES, MAX_CORE_BYTES, MAX_RECORDED_KEYS, MAX_STORE_TOKEN_BYTES, RECENT_COMMITS,
    VersionRow, VersionToken,
};
pub use table::{
    Attempt, CommitOutcome, CommitRequest, Conflict, Discontinuity, Durability, Guarantees, HeartbeatWrite, HintStream, InitializeRequest,
    Judgement, MembershipTable, NextStep, Operation, ReadAnswer, ReadRequest, Recency, RowChange, RowRead, TableError, TableErrorKind,
    TableLimits, check_snapshot, check_token,
};
pub use table::{CleanupPolicy, MemoryState, MemoryStore, MemoryTable, TableExt};
pub use table::{DocumentRead, DocumentStore, DocumentTable, MemoryDocumentStore, MemoryDocuments, Revision, Stored};
pub use view::{Change, ChangeKind, ClusterView, Delta, DeltaError, FencingToken};
