//! Whether one table can have given all these answers.
//!
//! The versions order everything, so no search is needed: put every commit at its version, compute the state after each, and hold every
//! answer against the states and against the time it was given in. Costs O(n log n) for n operations.

mod answers;
mod chain;

use std::collections::BTreeMap;

use super::record::History;

pub use answers::Checked;
use chain::Checker;

pub use chain::Violation;

/// Checks a history that ends with a read of the whole table.
///
/// # Errors
/// Every violation, at most 50.
pub fn check(history: &History) -> Result<Checked, Vec<Violation>> {
    let mut checker = Checker {
        history,
        violations: Vec::new(),
        operations: BTreeMap::new(),
        chain: Vec::new(),
        states: Vec::new(),
    };
    checker.gather();
    checker.order();
    let ambiguous = checker.states();
    let mut checked = checker.sweep();
    checked.ambiguous = ambiguous;
    if checker.violations.is_empty() {
        Ok(checked)
    } else {
        Err(checker.violations)
    }
}
