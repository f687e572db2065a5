//! Cluster membership on tokio: who is in the cluster, agreed on through a small table in a storage
//! system that you already operate.
//!
//! Every server of the cluster is a *silo*. Give each the same table, and start it:
//!
//! ```no_run
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! let table = membership::connect("sqlite:membership.db", "billing/blue".parse()?).await?;
//! let silo = membership::Silo::builder(table).listen("127.0.0.1:0".parse()?).start().await?;
//! let mut views = silo.views();
//! while let Some(view) = views.next().await {
//!     println!("version {}: {} silos are active", view.version(), view.active().count());
//! }
//! println!("stopped: {}", silo.terminated().await);
//! # Ok(())
//! # }
//! ```
//!
//! * [`Silo`]: the views, who owns a key, leaving, the end. Dead is final: a silo that was declared
//!   dead never comes back. [`Silo::terminated`] waits for that; a new process is a new silo.
//! * [`Events`]: what happens to a silo, for logs and alerts; [`TableLog`]: which changes of the table's
//!   state to log.
//! * [`GatewayList`]: for clients that are not silos.
//! * [`connect`](fn@connect) and [`Connectors`]: from a connection string to a table;
//!   [`TimedTable`] adds a timeout and a measurement.
//! * [`transport`]: how messages travel, and how to send them over connections that the application
//!   already has.
//! * [`admin`]: change a table from outside: evict, clean up, settings.
//! * [`metrics`]: what is measured; [`history`]: what happened, as the rows tell it.
//! * `gossip` (feature `gossip`): clusters without a store; [`Members`] is what code for both needs.
//! * `http` (feature `http`): a silo over HTTP, for probes, scrapes, and services in other languages.
//!
//! This crate runs the protocol of `membership-core` and re-exports its public types.
//!
//! # Fencing
//!
//! Two silos with views of different versions may both believe that they own something. A store
//! that keeps the largest [`FencingToken`] it has seen refuses the one that is behind:
//!
//! ```
//! use membership::{FencingToken, TableId};
//!
//! #[derive(Default)]
//! struct Store {
//!     fence: Option<FencingToken>,
//!     balance: i64,
//! }
//!
//! impl Store {
//!     /// One atomic step in the store: compare, keep the larger token, write.
//!     fn write(&mut self, token: FencingToken, balance: i64) -> Result<(), &'static str> {
//!         if let Some(fence) = self.fence {
//!             if fence.table_id != token.table_id {
//!                 return Err("another membership table: a person decides which writers go on");
//!             }
//!             if token < fence {
//!                 return Err("stale view: refresh, and look up the owner again");
//!             }
//!         }
//!         self.fence = Some(token);
//!         self.balance = balance;
//!         Ok(())
//!     }
//! }
//!
//! // A silo takes the token from the view in which it is the owner: `silo.confirmed_view()`.
//! let old_owner = FencingToken { table_id: TableId::new(1), version: 7 };
//! let new_owner = FencingToken { table_id: TableId::new(1), version: 8 };
//! let mut store = Store::default();
//! assert!(store.write(old_owner, 10).is_ok());
//! assert!(store.write(new_owner, 20).is_ok());
//! assert!(store.write(old_owner, 30).is_err());
//! assert_eq!(store.balance, 20);
//! ```
#![forbid(unsafe_code)]
#![deny(missing_docs)]
#![cfg_attr(docsrs, feature(doc_cfg))]

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
#[cfg(feature = "gossip")]
pub mod gossip;
pub mod history;
#[cfg(feature = "http")]
pub mod http;
pub mod metrics;
pub mod transport;
pub mod words;

mod connect;
mod gateway;
mod runtime;
mod silo;
mod timed;
mod watched;

pub use connect::{ConnectError, Connecting, Connectors, connect};
pub use gateway::{GatewayList, GatewayOptions, GatewayUpdates};
pub use runtime::ListenError;
pub use silo::{
    Event, EventKind, Events, Health, LeaveGuard, RequestError, Silo, SiloBuilder, StartError,
    TableLine, TableLog, Views, WaitError,
};
pub use timed::TimedTable;

// The whole public API of the core, by name: applications depend on this crate alone.
pub use membership_core::{encoding, intent, protocol};

/// Whole clusters in virtual time, with faults: the crate `membership-testing`.
#[cfg(feature = "testing")]
pub use membership_testing as testing;

// Configuration.
pub use membership_core::{
    Config, ConfigError, ConnectionOption, ConnectionString, Preset, SharedSettings,
};

// Names, identifiers and times.
pub use membership_core::{
    ClusterName, CommitId, DEFAULT_SERVICE, FoundingId, InstanceId, IntentId, MAX_SAFE_INTEGER,
    MonoTime, Now, ParseClusterError, ParseIdError, ParseSiloError, ParseTimeError, SiloAddress,
    TableId, WallTime,
};

// Silos and their rows.
pub use membership_core::{
    CauseOfDeath, Death, Evidence, Extra, Gateway, Heartbeat, Heartbeats, MembershipEntry,
    ParseHeartbeatError, ParseStatusError, RollCount, Row, Rows, SiloInfo, SiloStatus, Snapshot,
    Suspicion, SuspicionReason,
};

// The version row.
pub use membership_core::{
    ChangedKeys, ClusterKey, ClusterKeys, ClusterProof, CommitRecord, ContentHash, CoreCell,
    MAX_CLUSTER_CELL_BYTES, MAX_CLUSTER_KEYS, MAX_CORE_BYTES, MAX_RECORDED_KEYS,
    MAX_STORE_TOKEN_BYTES, RECENT_COMMITS, TooManyClusterKeys, VersionRow, VersionToken,
};

// Views.
pub use membership_core::{Change, ChangeKind, ClusterView, Delta, DeltaError, FencingToken};

// What views with a table and views without one have in common.
pub use membership_core::{Members, Peer, Peers, Rendezvous, SiloMembers};

// Tables: the contract, for applications that read or write one, and for providers.
pub use membership_core::{
    Attempt, Baseline, CleanupPolicy, CommitOutcome, CommitRequest, Conflict, Decision,
    Discontinuity, Durability, Fate, Guarantees, HeartbeatWrite, HintStream, InitializeRequest,
    Judgement, MembershipTable, NextStep, Operation, ReadAnswer, ReadRequest, Recency, RowChange,
    RowRead, Settled, TableError, TableErrorKind, TableExt, TableLimits, check_snapshot,
    check_token, check_version_row, missing_version_row, stored_version_row, usable_version_row,
};

/// A provider of a third party, for [`Connectors::register_provider`]; the crate
/// `membership-provider` has what most of them share.
pub use membership_provider::Provider;

// Tables in memory, and tables over a store of documents.
pub use membership_core::{
    DocumentRead, DocumentStore, DocumentTable, MemoryDocumentStore, MemoryDocuments, MemoryState,
    MemoryStore, MemoryTable, Revision, Stored,
};

/// The code in the README compiles.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
