//! A silo of this process: start it, use it, leave.

mod answers_log;
mod builder;
mod calls;
mod driver;
mod error;
mod events;
mod handle;
mod health;
mod leave;
mod notice;
mod observed;
mod reach_log;
mod report;
mod request;
mod starting;
mod state;
mod table_log;
mod views;

pub use builder::SiloBuilder;
pub use error::{RequestError, StartError, WaitError};
pub use events::{Event, EventKind, Events};
pub use handle::Silo;
pub use health::Health;
pub use leave::LeaveGuard;
#[cfg(feature = "http")]
pub(crate) use observed::Observed;
pub use table_log::{TableLine, TableLog};
pub use views::Views;
