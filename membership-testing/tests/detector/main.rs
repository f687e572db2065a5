//! What the failure detector must endure: partial partitions, splits, mass crashes, stutter, long
//! round trips, tiny clusters. Each scenario is a function over a seed, and runs for a few seeds.
//!
//! Without `MEMBERSHIP_SEEDS` each runs the first fifth of its seeds. `MEMBERSHIP_SEEDS=usual` runs
//! all, `rest` the others, `1000..1100` other seeds; `--nocapture` prints what each run measured.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout,
    clippy::disallowed_macros,
    reason = "tests; what a run measured is worth a line"
)]

mod crashes;
mod few;
mod joins;
mod losses;
mod partitions;
mod reach;
mod settings;
mod slow;
mod stage;
mod stalemate;
mod stalls;
mod survey;
