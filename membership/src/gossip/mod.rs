//! Clusters without a store: members find each other by contact points and agree by gossip.
//!
//! A [`Member`] of a cluster runs the protocol of `membership-gossip` over the same transport as a
//! [`Silo`](crate::Silo), and has the same kind of handle. It promises less: lists of members agree
//! *soon* and not in one order, and a split of the network is as safe as the
//! [strategy](downing::Strategy) that resolves it. `docs/choosing.md` compares the two.
//!
//! ```no_run
//! use membership::gossip::Member;
//! use membership::transport::{Secret, Security};
//!
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! let security = Security::tls().with_secret(Secret::file("/run/secrets/membership")?);
//! let member = Member::builder("billing/blue".parse()?)
//!     .listen("10.0.0.5:7100".parse()?)
//!     .security(security)
//!     .role("worker")
//!     .start()
//!     .await?;
//! // The same list, in the same order, at every member.
//! let contact_points = ["10.0.0.4:7100".parse()?, "10.0.0.5:7100".parse()?, "10.0.0.6:7100".parse()?];
//! let view = member.join(contact_points).await?;
//! println!("{} is in service, with {} others", member.me(), view.active().count() - 1);
//! let mut views = member.views();
//! while let Some(view) = views.next().await {
//!     println!("{} in service, agreed on: {}", view.active().count(), view.converged());
//! }
//! println!("ended: {}", member.terminated().await);
//! # Ok(())
//! # }
//! ```
//!
//! # No fencing
//!
//! There is no [`FencingToken`](crate::FencingToken) without a table, because there is no order of
//! views that a store could compare. A program that asks for one does not compile:
//!
//! ```compile_fail,E0599
//! # fn example(member: &membership::gossip::Member) {
//! let token = member.fencing_token();
//! # }
//! ```
//!
//! ```compile_fail,E0599
//! # fn example(view: &membership::gossip::GossipView) {
//! let token = view.fencing_token();
//! # }
//! ```
//!
//! Code that needs none can be written for both kinds of clusters: see [`Members`](crate::Members).

mod arbiter;
mod builder;
mod driver;
mod error;
mod events;
mod handle;
mod health;
mod inspect;
mod leave;
mod report;
mod state;
mod table_arbiter;
mod views;
mod waits;
mod wire;

pub use arbiter::{Arbiter, ArbiterAnswer, ArbiterError};
pub use builder::MemberBuilder;
pub use error::{DownError, JoinError, StartError, WaitError};
pub use events::{Decided, Event, EventKind, Events};
pub use handle::Member;
pub use health::Health;
pub use inspect::{InspectError, Inspector};
pub use leave::LeaveGuard;
pub use table_arbiter::TableArbiter;
pub use views::Views;
pub use wire::GossipWire;

pub use membership_gossip::convergence::Blocking;
pub use membership_gossip::downing::{self, Downing};
pub use membership_gossip::protocol::{Refusal, Silent, Termination, Waiting};
pub use membership_gossip::state::{self as states, MemberStatus, Version};
pub use membership_gossip::{Change, Config, Founding, GossipView, Preset, Spreading};
