//! Whole clusters in virtual time, with faults, and with every invariant of the protocol watched.
//!
//! The very state machine that runs in production runs here, many times over, in one thread, with a network, a table and clocks that do
//! what a test says and otherwise what the seed decides. Hours pass in milliseconds. The same seed gives the same run.
//!
//! ```
//! use membership_core::testing::{Cluster, Violation};
//! use std::time::Duration;
//!
//! fn a_crash_is_noticed(seed: u64) -> Result<(), Box<dyn std::error::Error>> {
//!     let mut cluster = Cluster::builder().seed(seed).silos(5).build()?;
//!     cluster.run_until_agreed(Duration::from_secs(60))?;
//!     let victim = cluster.running()[2];
//!     cluster.kill(victim);
//!     cluster.run_until_agreed(Duration::from_secs(90))?;
//!     assert_eq!(cluster.running().len(), 4);
//!     Ok(cluster.settle()?)
//! }
//! # let _ = a_crash_is_noticed;
//! ```
//!
//! [`campaign`] draws its faults from the seed; [`transcript`] turns a run into text that can be reviewed like prose.

mod builder;
mod calls;
pub mod campaign;
pub mod checks;
mod circumstances;
mod clock;
mod cluster;
mod describe;
mod dice;
mod events;
#[cfg(test)]
mod fake;
mod faults;
mod fingerprint;
mod life;
mod look;
mod machine;
mod network;
mod process;
mod size;
mod stats;
mod store;
mod trace;
mod traffic;
pub mod transcript;
mod violation;

pub use builder::{BuildError, Builder};
pub use circumstances::{Circumstances, Life, ProcessId, Spell, Split, VirtualTime, WORLD_BEGIN};
pub use clock::Skew;
pub use cluster::Cluster;
pub use dice::Dice;
pub use machine::{Machine, MachineFactory};
pub use network::{Latency, Network};
pub use stats::Stats;
pub use store::UnknownOutcome;
pub use trace::{Detail, Line, Trace};
pub use traffic::TableTraffic;
pub use violation::Violation;
