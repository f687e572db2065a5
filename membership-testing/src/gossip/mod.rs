//! Members without a store in virtual time: the state machine of `membership-gossip`, once per member
//! in one thread, with faults and with checkers of its rules.
//!
//! [`Net`] carries messages between members with latency, loss, cuts and pauses; [`Checks`] looks at
//! everything that they send and publish; [`campaign`] draws faults from a seed.
//!
//! ```
//! use std::time::Duration;
//! use membership_gossip::Config;
//! use membership_testing::gossip::Net;
//!
//! let mut net = Net::new(7);
//! let members: Vec<_> = (0..5).map(|at| net.start(at, &Config::default())).collect();
//! net.join_all(&members);
//! net.try_run_until(Duration::from_secs(60), Net::is_agreed)?;
//! net.kill(2);
//! net.try_run_until(Duration::from_secs(60), Net::is_agreed)?;
//! assert_eq!(net.living().len(), 4);
//! # Ok::<(), String>(())
//! ```

pub mod campaign;
mod checks;
mod net;
mod run;
mod starts;

pub use checks::{Checks, Facts};
pub use net::{Net, Node, NodeId, Sent, Watcher, endpoint};
