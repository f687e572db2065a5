//! Concurrent histories: what many clients asked and were told, and whether one table can have told it.

mod check;
mod kills;
pub(crate) mod load;
mod record;
mod run;
mod shared;
mod worker;

pub use check::{Checked, Violation, check};
pub(crate) use load::Load;
pub use record::{Answer, Asked, Event, History};
pub(crate) use run::{Plan, run};

use crate::Stop;

/// What a history was made of, or a failure that tells the first of what no table can have answered.
pub(crate) fn explained(history: &History) -> Result<Checked, Stop> {
    check(history).map_err(|violations| {
        let mut text: Vec<String> = violations
            .iter()
            .take(10)
            .map(ToString::to_string)
            .collect();
        if let Some(version) = violations.iter().find_map(|v| v.version) {
            text.push(format!("what was asked and told about version {version}:"));
            text.extend(history.around(version).iter().map(ToString::to_string));
        }
        Stop::failed(format!(
            "{} violations, the first: {}",
            violations.len(),
            text.join("\n        ")
        ))
    })
}
