//! Cluster membership without a store, after the Akka Cluster specification.
//!
//! Members find each other by contact points and agree by gossip on who is a member, and how far:
//! [`state`] is what they merge, [`protocol`] is the behaviour of one of them as a state machine,
//! and [`downing`] decides who ends members that nobody reaches. As in `membership-core` there is no
//! clock, no socket and no source of randomness here: the same seed and the same inputs give the
//! same effects.
//!
//! **Lists of members agree soon, not in one order.** There is no fencing token, and a split of the
//! network is safe only under the assumptions of the [strategy](downing::Strategy) that resolves it.
//! `membership-core` keeps members in a table of a store, and has both.
//!
//! ```
//! use std::time::Duration;
//!
//! use membership_core::protocol::{LinkId, PeerIdentity};
//! use membership_core::{InstanceId, MonoTime, Now, SiloInfo, WallTime};
//! use membership_gossip::protocol::{Command, Effect, Input, Protocol, Setup};
//! use membership_gossip::state::Profile;
//!
//! let me = "10.0.0.1:7100".parse()?;
//! let profile = Profile::new(SiloInfo::named("orders-1"));
//! let (epoch, instance, seed) = (1_764_000_000_000, InstanceId::new(0x5eed), 7);
//! let setup = Setup::new("billing/blue".parse()?, me, epoch, instance, profile, seed);
//! let mut member = Protocol::new(setup);
//!
//! let mut now = Now { mono: MonoTime::ZERO, wall: WallTime::from_millis(epoch) };
//! let mut effects = Vec::new();
//! // It is the only contact point: it asks who is at its address and listens for a cluster, then
//! // founds one, and is up at once.
//! let join = Command::Join { contact_points: vec![me] };
//! member.handle(now, Input::Command(join), &mut effects);
//! while member.founding().is_none() {
//!     let sent = effects.drain(..).find_map(|effect| match effect {
//!         Effect::Send { header, body, .. } => Some((header, body)),
//!         _ => None,
//!     });
//!     let input = if let Some((header, body)) = sent {
//!         // Its own question arrives: its address leads to it.
//!         let (link, peer) = (LinkId(1), PeerIdentity::Proven(instance));
//!         let waited = Duration::ZERO;
//!         Input::Message { link, peer, header, body, waited }
//!     } else {
//!         now.mono = member.next_wakeup().expect("it waits");
//!         Input::Wake
//!     };
//!     member.handle(now, input, &mut effects);
//! }
//! let view = effects.iter().rev().find_map(|effect| match effect {
//!     Effect::Publish(view) => Some(view),
//!     _ => None,
//! });
//! let view = view.expect("a view");
//! assert!(view.converged() && view.active().count() == 1);
//! assert_eq!(view.leader(), Some(member.me()));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
#![forbid(unsafe_code)]
#![deny(missing_docs)]

mod changes;
mod config;
pub mod convergence;
pub mod downing;
mod leader;
pub mod protocol;
mod shared;
pub mod state;
mod view;
mod written;

pub use changes::Change;
pub use config::{Config, Founding, Preset, Spreading};
pub use view::GossipView;
