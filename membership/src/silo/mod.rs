//! A silo of this process: start it, use it, leave.

mod builder;
mod calls;
mod clock;
mod driver;
mod error;
mod events;
mod handle;
mod health;
mod host;
mod lag;
mod leave;
mod notice;
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
pub use views::Views;
