//! Cluster membership without input or output: the model, the table contract, and the protocol as a state machine.
//!
//! A cluster of servers (*silos*) agrees on who is alive through a small *membership table* in a storage system that it already uses.
//! This crate knows what is in that table ([`MembershipEntry`], [`VersionRow`]), what a store must guarantee ([`MembershipTable`]), and how a
//! silo behaves. It never looks at a clock, a socket or a source of randomness: those are handed in, or asked for by effects, so that the
//! same seed and the same inputs give the same effects, byte for byte.
//!
//! # The protocol by itself
//!
//! [`protocol::Protocol`] is fed with inputs and asks for effects; whoever owns it carries them out, and wakes it when it wants to be woken:
//!
//! ```
//! use membership_core::protocol::{Destination, Effect, Identity, Input, Message, Protocol, Setup};
//! use membership_core::{Config, InstanceId, MembershipTable, MemoryTable, MonoTime, Now, WallTime};
//!
//! let table = MemoryTable::new("billing/blue".parse()?);
//! let advertise = "10.0.0.1:7100".parse()?;
//! let identity = Identity {
//!     cluster: table.cluster().clone(),
//!     advertise,
//!     instance: InstanceId::new(0x5eed),
//!     gateway_port: 0,
//!     host_name: "host-1".to_owned(),
//!     silo_name: "silo-1".to_owned(),
//!     role: String::new(),
//!     zone: String::new(),
//!     metadata: Default::default(),
//! };
//! let mut silo = Protocol::new(Setup { identity, config: Config::default(), limits: table.limits(), seed: 7 });
//!
//! let mut effects = Vec::new();
//! let now = Now { mono: MonoTime::ZERO, wall: WallTime::from_millis(1_764_000_000_000) };
//! silo.handle(now, Input::Start, &mut effects);
//! // Before anything else a silo dials its own address, to see whether that leads to itself.
//! let dials_itself = |e: &Effect| match e {
//!     Effect::Send { to, body, .. } => *to == Destination::Fresh(advertise) && matches!(**body, Message::Identify { .. }),
//!     _ => false,
//! };
//! assert!(effects.iter().any(dials_itself));
//! assert!(silo.next_wakeup().is_some());
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # The table by itself
//!
//! Every change is a commit on a version; of two that name the same version one wins:
//!
//! ```
//! use membership_core::{
//!     CommitId, CommitOutcome, CommitRequest, InitializeRequest, InstanceId, MembershipEntry, MemoryTable, ReadAnswer, ReadRequest,
//!     SharedSettings, SiloAddress, TableId, WallTime,
//! };
//!
//! let joining = |port| {
//!     let silo = SiloAddress::new([10, 0, 0, 1].into(), port, 1);
//!     MembershipEntry::new(silo, InstanceId::new(port.into()), WallTime::default())
//! };
//! let table = MemoryTable::new("billing/blue".parse()?);
//! table.initialize_sync(&InitializeRequest { table_id: TableId::new(1), settings: SharedSettings::default() })?;
//! let ReadAnswer::Snapshot { snapshot, .. } = table.read_sync(&ReadRequest::all())? else { unreachable!() };
//! let join = |id, port| CommitRequest::new(snapshot.token.clone(), CommitId::new(id), None, [joining(port)], [], []);
//! assert!(matches!(table.commit_sync(&join(1, 7100))?, CommitOutcome::Committed(_)));
//! assert!(matches!(table.commit_sync(&join(2, 7101))?, CommitOutcome::Conflict(_)));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! Most people want the crate `silo-membership`, which runs all this on tokio. Whoever adds a storage system wants [`MembershipTable`].
#![forbid(unsafe_code)]
#![deny(missing_docs)]

mod config;
mod connection;
pub mod encoding;
pub mod intent;
mod model;
pub mod protocol;
mod table;
#[cfg(feature = "testing")]
pub mod testing;
mod view;

pub use config::{Config, ConfigError, Preset};
pub use connection::{ConnectionOption, ConnectionString};

pub use model::address::{MAX_SAFE_INTEGER, ParseSiloError, SiloAddress};
pub use model::cluster::{ClusterName, DEFAULT_SERVICE, ParseClusterError};
pub use model::entry::{
    Evidence, Extra, Grounds, Heartbeat, Heartbeats, MembershipEntry, ParseHeartbeatError,
    Suspicion,
};
pub use model::ids::{CommitId, InstanceId, IntentId, ParseIdError, TableId};
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
    Attempt, CommitOutcome, CommitRequest, Conflict, Discontinuity, Durability, Guarantees,
    HeartbeatWrite, HintStream, InitializeRequest, Judgement, MembershipTable, NextStep, Operation,
    ReadAnswer, ReadRequest, Recency, RowChange, RowRead, TableError, TableErrorKind, TableLimits,
    Yardstick, check_snapshot, check_token,
};
pub use table::{CleanupPolicy, MemoryState, MemoryStore, MemoryTable, TableExt};
pub use table::{Decision, usable_version_row};
pub use table::{
    DocumentRead, DocumentStore, DocumentTable, MemoryDocumentStore, MemoryDocuments, Revision,
    Stored,
};
pub use view::{Change, ChangeKind, ClusterView, Delta, DeltaError, FencingToken};
