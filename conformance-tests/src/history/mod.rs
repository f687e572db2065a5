//! Concurrent histories: what many clients asked and were told, and whether one table can have told it.

mod check;
mod record;
mod run;

pub use check::{Checked, Violation, check};
pub use record::{Answer, Asked, Event, History};
pub(crate) use run::{Plan, run};
