//! Whole clusters in virtual time, from the command line: the very state machine of `membership-core`, hundreds or thousands of silos in one
//! thread, every throw of the dice decided by a seed. `campaign` looks for faults of the protocol, `replay` shows one run in full, `steady`
//! measures what a quiet cluster costs.

mod campaign;
mod figures;
mod replay;
mod steady;

use std::process::ExitCode;

use clap::Parser;

/// Simulated clusters: the protocol that runs in production, in virtual time.
#[derive(Parser)]
#[command(version, about, max_term_width = 100)]
enum Sim {
    /// Random faults for half an hour of virtual time and more, seed by seed; every invariant is watched
    Campaign(campaign::Campaign),
    /// One run of a campaign in full, line by line
    Replay(replay::Replay),
    /// What a quiet cluster costs: messages, table operations, and how fast it is simulated
    Steady(steady::Steady),
}

fn main() -> ExitCode {
    match Sim::parse() {
        Sim::Campaign(command) => command.run(),
        Sim::Replay(command) => command.run(),
        Sim::Steady(command) => command.run(),
    }
}
