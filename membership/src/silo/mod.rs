//! A silo of this process: starting it, asking it, leaving.

mod builder;
mod calls;
mod clock;
mod driver;
mod error;
mod handle;
mod health;
mod host;
mod lag;
mod leave;
mod notice;
mod report;
mod request;
mod state;
mod views;

pub use builder::SiloBuilder;
pub use error::{RequestError, StartError, WaitError};
pub use handle::Silo;
pub use health::Health;
pub use leave::LeaveGuard;
pub use views::Views;
