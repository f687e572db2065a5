//! Checks whether one table can have given all answers of a history.
//!
//! The versions order all commits, so no search is needed. The check puts every commit at its
//! version, computes the state after each, and compares every answer with the states and with the
//! time in which it was given. It costs O(n log n) for n operations.

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
