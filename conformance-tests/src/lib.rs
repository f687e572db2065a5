//! The suite that every provider of a membership table runs against its real store.
//!
//! A provider writes a [`Backend`] (how to get a new client, and how to stage faults) and runs the
//! [`Suite`]. Each case names the [`Clause`] of the contract that it proves, and prints that clause
//! when it fails.
//!
//! ```
//! use std::sync::Arc;
//! use async_trait::async_trait;
//! use conformance_tests::{Backend, Capability, Clause, Reason, Suite};
//! use membership_core::{ClusterName, MembershipTable, MemoryStore, TableError};
//!
//! struct InMemory(MemoryStore);
//!
//! #[async_trait]
//! impl Backend for InMemory {
//!     fn name(&self) -> String {
//!         "memory".to_owned()
//!     }
//!     async fn client(&self, cluster: &ClusterName) -> Result<Arc<dyn MembershipTable>, TableError> {
//!         Ok(Arc::new(self.0.table(cluster.clone())))
//!     }
//!     // A capability that is neither staged nor listed here makes its cases fail.
//!     fn not_applicable(&self) -> &'static [(Capability, Reason)] {
//!         &[
//!             (Capability::Restart, Reason::InMemory),
//!             (Capability::Depose, Reason::InMemory),
//!             (Capability::Proxy, Reason::InMemory),
//!             (Capability::Secret, Reason::NoSecret),
//!         ]
//!     }
//! }
//!
//! # let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build()?;
//! # runtime.block_on(async {
//! let report = Suite::new(InMemory(MemoryStore::new())).clauses([Clause::T1, Clause::T7]).run().await;
//! assert!(report.passed(), "{report}");
//! # });
//! # Ok::<(), std::io::Error>(())
//! ```
//!
//! [`backends`] contains two complete ones to read: the in-memory table and the table over one
//! document.
#![forbid(unsafe_code)]
#![deny(missing_docs)]

mod backend;
pub mod backends;
mod capability;
mod case;
mod cases;
pub mod child;
mod clause;
pub mod contention;
mod documents;
mod effort;
mod environment;
pub mod flaky;
pub mod helpers;
pub mod history;
mod log_capture;
mod model;
mod raw;
mod record;
mod report;
mod round_trips;
pub mod servers;
pub mod silent;
mod slowness;
pub mod stand_in;
mod stop;
mod suite;

/// The proxy that counts round trips and injects faults between a client and its servers.
pub use membership_fault_proxy as proxy;

pub use backend::{Backend, Checkpoint, Pinned, Proxied};
pub use capability::{Capability, Reason};
pub use clause::{Clause, ParseClauseError};
pub use effort::Effort;
pub use report::{CaseResult, Outcome, Report};
pub use round_trips::RoundTrips;
pub use stop::Stop;
pub use suite::Suite;
