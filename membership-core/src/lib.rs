//! Cluster membership without input or output: the model, the table contract, and the protocol as a
//! state machine.
//!
//! A cluster of servers (*silos*) agrees on which of them are alive through a small *membership
//! table* in a storage system that it already uses. This crate defines the content of that table
//! ([`MembershipEntry`], [`VersionRow`]), the guarantees of a store ([`MembershipTable`]), and the
//! behaviour of a silo. It uses no clock, no socket and no source of randomness. Time and random
//! seeds are inputs, and all input and output is requested by effects. The same seed and the same
//! inputs give the same effects, byte for byte.
//!
//! # The protocol by itself
//!
//! [`protocol::Protocol`] takes inputs and returns effects. Its owner carries the effects out and
//! calls it again at the time it asks for:
//!
//! ```
//! use membership_core::protocol::{Destination, Effect, Identity, Input, Message, Protocol, Setup};
//! use membership_core::{
//!     ClusterKey, Config, InstanceId, MembershipTable, MemoryTable, MonoTime, Now, SiloInfo, WallTime,
//! };
//!
//! let table = MemoryTable::new("billing/blue".parse()?);
//! let advertise = "10.0.0.1:7100".parse()?;
//! let info = SiloInfo::named("silo-1");
//! let identity = Identity::new(table.cluster().clone(), advertise, InstanceId::new(0x5eed), info);
//! let cluster_key = ClusterKey::new([9; 32]); // random
//! let setup = Setup::new(identity, Config::default(), table.limits(), 7, cluster_key);
//! let mut silo = Protocol::new(setup);
//!
//! let mut effects = Vec::new();
//! let now = Now { mono: MonoTime::ZERO, wall: WallTime::from_millis(1_764_000_000_000) };
//! silo.handle(now, Input::Start, &mut effects);
//! // First a silo dials its own address, to check that it leads to this process.
//! let dials_itself = |e: &Effect| match e {
//!     Effect::Send { to, body, .. } => {
//!         *to == Destination::Fresh(advertise) && matches!(**body, Message::Identify { .. })
//!     }
//!     _ => false,
//! };
//! assert!(effects.iter().any(dials_itself));
//! assert!(silo.next_wakeup().is_some());
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # The table by itself
//!
//! Every change is a commit on a version. Of two commits on the same version, one succeeds:
//!
//! ```
//! use membership_core::{
//!     CommitId, CommitOutcome, CommitRequest, ClusterKey, InitializeRequest, InstanceId, MembershipEntry,
//!     MemoryTable, ReadAnswer, ReadRequest, SharedSettings, SiloAddress, TableId, WallTime,
//! };
//!
//! let joining = |port| {
//!     let silo = SiloAddress::new([10, 0, 0, 1].into(), port, 1);
//!     MembershipEntry::new(silo, InstanceId::new(port.into()), WallTime::default())
//! };
//! let table = MemoryTable::new("billing/blue".parse()?);
//! let cluster_key = ClusterKey::new([9; 32]); // random
//! table.initialize_sync(&InitializeRequest::new(TableId::new(1), SharedSettings::default(), cluster_key))?;
//! let ReadAnswer::Snapshot { snapshot, .. } = table.read_sync(&ReadRequest::all())? else {
//!     unreachable!()
//! };
//! let join = |id, port| {
//!     let (token, id) = (snapshot.token.clone(), CommitId::new(id));
//!     CommitRequest::new(token, id, None, [joining(port)], [], [])
//! };
//! assert!(matches!(table.commit_sync(&join(1, 7100))?, CommitOutcome::Committed(_)));
//! assert!(matches!(table.commit_sync(&join(2, 7101))?, CommitOutcome::Conflict(_)));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! Most applications use the crate `silo-membership`, which runs this crate on tokio. A new storage
//! system implements [`MembershipTable`].
#![forbid(unsafe_code)]
#![deny(missing_docs)]

/// An error that ends `main` is printed with `Debug`: it should be the text that `Display` gives.
macro_rules! debug_as_display {
    ($($error:ty),+) => {$(
        impl std::fmt::Debug for $error {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                std::fmt::Display::fmt(self, f)
            }
        }
    )+};
}
pub(crate) use debug_as_display;

pub mod admin;
mod config;
mod connection;
pub mod encoding;
#[doc(hidden)]
pub mod hooks;
pub mod intent;
mod model;
pub mod protocol;
mod table;
mod view;

pub use config::{Config, ConfigError, Preset};
pub use connection::{ConnectionOption, ConnectionString};

pub use model::address::{MAX_SAFE_INTEGER, ParseSiloError, SiloAddress};
pub use model::cluster::{ClusterName, DEFAULT_SERVICE, ParseClusterError};
pub use model::cluster_key::{
    ClusterKey, ClusterKeys, ClusterProof, MAX_CLUSTER_KEYS, TooManyClusterKeys,
};
pub use model::content_hash::ContentHash;
pub use model::core_cell::CoreCell;
pub use model::entry::{
    Evidence, Extra, Heartbeat, Heartbeats, MembershipEntry, ParseHeartbeatError, RollCount,
    Suspicion, SuspicionReason,
};
pub use model::gateway::Gateway;
pub use model::ids::{CommitId, FoundingId, InstanceId, IntentId, ParseIdError, TableId};
pub use model::info::SiloInfo;
pub use model::rows::{Row, Rows};
pub use model::settings::SharedSettings;
pub use model::snapshot::Snapshot;
pub use model::status::{CauseOfDeath, Death, ParseStatusError, SiloStatus};
pub use model::time::{MonoTime, Now, ParseTimeError, WallTime};
pub use model::version::{
    ChangedKeys, CommitRecord, MAX_CLUSTER_CELL_BYTES, MAX_CORE_BYTES, MAX_RECORDED_KEYS,
    MAX_STORE_TOKEN_BYTES, RECENT_COMMITS, VersionRow, VersionToken,
};
pub use table::{
    Attempt, Baseline, CommitOutcome, CommitRequest, Conflict, Discontinuity, Durability, Fate,
    Guarantees, HeartbeatWrite, HintStream, InitializeRequest, Judgement, MembershipTable,
    NextStep, Operation, ReadAnswer, ReadRequest, Recency, RowChange, RowRead, TableError,
    TableErrorKind, TableLimits, check_snapshot, check_token,
};
pub use table::{CleanupPolicy, MemoryState, MemoryStore, MemoryTable, TableExt};
pub use table::{
    Decision, Settled, check_version_row, missing_version_row, stored_version_row,
    usable_version_row,
};
pub use table::{
    DocumentRead, DocumentStore, DocumentTable, MemoryDocumentStore, MemoryDocuments, Revision,
    Stored,
};
pub use view::{Change, ChangeKind, ClusterView, Delta, DeltaError, FencingToken};
pub use view::{Members, Peer, Peers, Rendezvous, SiloMembers};
