//! Concurrent histories: the requests and answers of many clients, and the check whether one table
//! can have given them.

mod check;
mod kills;
pub(crate) mod load;
mod losses;
mod record;
mod run;
mod shared;
mod worker;

pub use check::{Checked, Violation, check};
pub(crate) use kills::Failing;
pub(crate) use load::{Load, Reads};
pub(crate) use losses::losses;
pub use record::{Answer, Asked, Event, History};
pub(crate) use run::{Plan, run};

use crate::Stop;

/// The figures of a history, or a failure that lists the first violations.
pub(crate) fn explained(history: &History) -> Result<Checked, Stop> {
    check(history).map_err(|violations| {
        let mut text: Vec<String> = violations
            .iter()
            .take(10)
            .map(ToString::to_string)
            .collect();
        if let Some(version) = violations.iter().find_map(|v| v.version) {
            text.push(format!("requests and answers about version {version}:"));
            text.extend(history.around(version).iter().map(ToString::to_string));
        }
        Stop::failed(format!(
            "{} violations, the first: {}",
            violations.len(),
            text.join("\n        ")
        ))
    })
}
