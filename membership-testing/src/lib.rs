//! Whole clusters in virtual time, with faults and with checkers for every invariant of the
//! protocol.
//!
//! The state machine that runs in production runs here, once per silo, in one thread. Network,
//! table and clocks are simulated: a test controls them, and the seed decides everything else.
//! Hours pass in milliseconds. The same seed gives the same run.
//!
//! ```
//! use membership_testing::{Cluster, Violation};
//! use std::time::Duration;
//!
//! fn survivors_agree_after_a_crash(seed: u64) -> Result<(), Box<dyn std::error::Error>> {
//!     let mut cluster = Cluster::builder().seed(seed).silos(5).build()?;
//!     cluster.run_until_agreed(Duration::from_secs(60))?;
//!     let victim = cluster.running()[2];
//!     cluster.kill(victim);
//!     cluster.run_until_agreed(Duration::from_secs(90))?;
//!     assert_eq!(cluster.running().len(), 4);
//!     Ok(cluster.settle()?)
//! }
//! # let _ = survivors_agree_after_a_crash;
//! ```
//!
//! [`campaign`] draws faults from a seed; [`transcript`] turns a run into text that is reviewed
//! like prose.

mod builder;
pub mod campaign;
mod challenges;
pub mod checks;
mod clock;
mod cluster;
mod connections;
mod delivery;
mod describe;
mod events;
#[cfg(test)]
mod fake;
mod faults;
mod fingerprint;
#[cfg(feature = "gossip")]
pub mod gossip;
mod ground_truth;
mod hostile;
#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod hostile_tests;
mod inputs;
mod inspect;
mod interval;
mod lifecycle;
mod machine;
mod network;
mod process;
mod pulse;
mod reachability;
mod rng;
pub mod seeds;
mod size;
mod stats;
mod store;
mod table_call;
mod trace;
mod traffic;
pub mod transcript;
mod violation;

pub use builder::{BuildError, Builder};
pub use clock::{SIMULATION_START, Skew, VirtualTime};
pub use cluster::Cluster;
pub use ground_truth::{GroundTruth, ProcessId, ProcessRecord, Split};
pub use interval::Interval;
pub use machine::{Altered, Machine, MachineFactory, sharing_protocols};
pub use network::{Latency, Network};
pub use rng::Rng;
pub use size::bytes_on_wire;
pub use stats::Stats;
pub use store::UnknownOutcome;
pub use trace::{Detail, Line, Trace};
pub use traffic::TableTraffic;
pub use violation::Violation;

/// The code in the README compiles.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
