//! Whole clusters in virtual time, from the command line: the very state machine of `membership-core`, hundreds or thousands of silos in
//! one thread, every throw of the dice decided by a seed. `campaign` looks for faults of the protocol, `replay` shows one run in full,
//! `shrink` makes it shorter; everything else is an experiment that measures, beside other systems in the same world, and says whether
//! what must hold does.

mod arena;
mod campaign;
mod experiments;
mod figures;
mod measurements;
mod ours;
mod peers;
mod replay;
mod report;
mod svg;
mod systems;
#[cfg(test)]
mod tests;
mod work;

use std::process::ExitCode;

use clap::Parser;
use experiments::link::Fault;

/// Simulated clusters: the protocol that runs in production, in virtual time.
#[derive(Parser)]
#[command(version, about, max_term_width = 100)]
enum Sim {
    /// Random faults for half an hour of virtual time and more, seed by seed; every invariant is watched
    Campaign(campaign::Campaign),
    /// One run of a campaign in full, line by line
    Replay(replay::Which),
    /// Looks for a smaller run that fails like this one: fewer silos, less time, fewer faults
    Shrink(replay::Which),
    /// Slow members, blocked again and again: who is taken for dead, and how soon
    Lifeguard(experiments::lifeguard::Lifeguard),
    /// The table is gone, slow, or gone together with the network
    Outage(experiments::outage::Outage),
    /// Members stand still for 1 to 300 s, one or many of them
    Pause(experiments::pause::Pause),
    /// Wall clocks up to ten minutes wrong, that jump
    Skew(experiments::skew::Skew),
    /// The table is wiped under running silos, or an old backup is restored
    Wipe(experiments::wipe::Wipe),
    /// Every silo is replaced, one by one
    Rolling(experiments::rolling::Rolling),
    /// The network splits in two, the table is within reach of all
    Split(experiments::split::Split),
    /// One member in a hundred hears nothing, 20 s on, 20 s off
    Flipflop(experiments::link::Link),
    /// One member in a hundred loses 80 % of what it sends
    Loss80(experiments::link::Link),
    /// One member in a hundred crashes, all at one moment
    Crash(experiments::crash::Crash),
    /// Half of all members crash at one moment
    Mass(experiments::crash::Crash),
    /// Everybody loses power and starts again
    Restart(experiments::restart::Restart),
    /// One member, then all others within half a second
    Bootstrap(experiments::bootstrap::Bootstrap),
    /// What a quiet cluster costs: messages, table operations, and how fast it is simulated
    Steady(experiments::steady::Steady),
    /// Runs the experiments and writes docs/measurements.md
    Measurements(measurements::Measurements),
}

fn main() -> ExitCode {
    match Sim::parse() {
        Sim::Campaign(command) => command.run(),
        Sim::Replay(which) => which.replay(),
        Sim::Shrink(which) => which.shrink(),
        Sim::Lifeguard(command) => command.common.tell(command.report()),
        Sim::Outage(command) => command.common.tell(command.report()),
        Sim::Pause(command) => command.common.tell(command.report()),
        Sim::Skew(command) => command.common.tell(command.report()),
        Sim::Wipe(command) => command.common.tell(command.report()),
        Sim::Rolling(command) => command.common.tell(command.report()),
        Sim::Split(command) => command.common.tell(command.report()),
        Sim::Flipflop(command) => command.common.tell(command.report(Fault::Flipflop)),
        Sim::Loss80(command) => command.common.tell(command.report(Fault::Loss)),
        Sim::Crash(command) => command.common.tell(command.report(false)),
        Sim::Mass(command) => command.common.tell(command.report(true)),
        Sim::Restart(command) => command.common.tell(command.report()),
        Sim::Bootstrap(command) => command.common.tell(command.report()),
        Sim::Steady(command) => command.common.tell(command.report()),
        Sim::Measurements(command) => command.run(),
    }
}
