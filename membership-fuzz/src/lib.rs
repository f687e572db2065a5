//! Everything that silos and tools read from others, as targets for fuzzers.
//!
//! A [`Target`] takes any bytes. It panics if reading them breaks a rule: a value that was read must
//! be the same after it was written and read again, an error is one short line, and nobody is
//! believed for what he cannot have proven. The same targets have three callers: the program of this
//! package, which needs no special compiler, `cargo fuzz` (folder `fuzz`), and the tests.
#![allow(
    clippy::expect_used,
    clippy::panic,
    reason = "a target reports what it found as a panic"
)]

mod mutate;
mod run;
mod samples;
mod targets;

pub use mutate::Mutator;
pub use run::{Broken, Found, Report, campaign, repeat};
pub use targets::{Outcome, TARGETS, Target, target};

/// Reads an input of the target of that name.
///
/// # Panics
/// The input breaks a rule, or there is no such target.
pub fn read(name: &str, bytes: &[u8]) {
    match target(name) {
        Some(target) => drop((target.read)(bytes)),
        None => panic!("no target is called `{name}`"),
    }
}
