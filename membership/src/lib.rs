//! Cluster membership on tokio: who is in the cluster, agreed on through a small table in a storage system that you already operate.
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
//! println!("stopped: {:?}", silo.terminated().await);
//! # Ok(())
//! # }
//! ```
//!
//! * [`Silo`]: the views, who owns a key, leaving, the end. Dead is final: a silo that was declared dead never comes back;
//!   [`Silo::terminated`] tells, and a new process is a new silo.
//! * [`GatewayList`]: for clients that are no silos.
//! * [`connect`](fn@connect) and [`Connectors`]: from a connection string to a table; [`TimedTable`] bounds and measures one.
//! * [`transport`]: how messages travel, and how to have them travel over connections that the application already has.
//! * [`metrics`]: what is measured.
//!
//! This crate runs the protocol of `membership-core` and re-exports its public types.
//!
//! # Fencing
//!
//! Two silos with views of different versions may both believe that they own something. A store that keeps the largest
//! [`FencingToken`] it has seen refuses the one that is behind:
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
//!                 return Err("the membership table was made anew: a person decides which writers go on");
//!             }
//!             if token < fence {
//!                 return Err("somebody with a newer view has written: refresh, and see who is the owner now");
//!             }
//!         }
//!         self.fence = Some(token);
//!         self.balance = balance;
//!         Ok(())
//!     }
//! }
//!
//! // In a silo these come from `silo.fencing_token()`, taken together with the view that said "I am the owner".
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

pub mod metrics;
pub mod transport;

mod connect;
mod gateway;
mod silo;
mod timed;
mod watched;

pub use connect::{ConnectError, Connecting, Connectors, connect};
pub use gateway::{GatewayList, GatewayOptions, GatewayUpdates};
pub use silo::{Health, LeaveGuard, RequestError, Silo, SiloBuilder, StartError, Views, WaitError};
pub use timed::TimedTable;

// Everything public in the core is public here, under the same name: users depend on this crate alone.
// With the feature `testing` that includes the module `testing`, the virtual-time harness.
pub use membership_core::*;

/// The code in the documents compiles.
#[cfg(doctest)]
mod documents {
    #[doc = include_str!("../../README.md")]
    struct Project;
    #[doc = include_str!("../README.md")]
    struct Package;
}
