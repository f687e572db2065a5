//! Runs whole clusters in virtual time, from the command line: the state machine of
//! `membership-core`, hundreds or thousands of silos in one thread, with all randomness decided by
//! a seed. `campaign` searches for faults of the protocol, `replay` prints one run in full,
//! `shrink` reduces it. Every other command is an experiment: it measures, beside other systems
//! under the same conditions, and reports whether the requirements hold.

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
    /// Random faults for half an hour of virtual time or more, seed by seed, with a check of every
    /// invariant
    Campaign(campaign::Campaign),
    /// Prints one run of a campaign in full, line by line
    Replay(replay::Which),
    /// Searches for a smaller run that fails the same way: fewer silos, less time, fewer faults
    Shrink(replay::Which),
    /// Slow members that are blocked repeatedly: which are declared dead, and how soon
    Lifeguard(experiments::lifeguard::Lifeguard),
    /// The table is unavailable, slow, or unavailable together with the network
    Outage(experiments::outage::Outage),
    /// One or many members are paused for 1 to 300 s
    Pause(experiments::pause::Pause),
    /// Wall clocks are up to ten minutes wrong, and jump
    Skew(experiments::skew::Skew),
    /// The table is wiped under running silos, or an old backup is restored
    Wipe(experiments::wipe::Wipe),
    /// Every silo is replaced, one by one
    Rolling(experiments::rolling::Rolling),
    /// The network is partitioned in two; all members reach the table
    Split(experiments::split::Split),
    /// One member in a hundred receives nothing, 20 s on, 20 s off
    Flipflop(experiments::link::Link),
    /// One member in a hundred loses 80 % of what it sends
    Loss80(experiments::link::Link),
    /// One member in a hundred crashes, all at the same time
    Crash(experiments::crash::Crash),
    /// Half of all members crash at the same time
    Mass(experiments::crash::Crash),
    /// All members lose power and start again
    Restart(experiments::restart::Restart),
    /// One member starts, then all others within half a second
    Bootstrap(experiments::bootstrap::Bootstrap),
    /// The costs of a cluster without faults: messages, table operations, and the speed of the
    /// simulation
    Steady(experiments::steady::Steady),
    /// One commit of many rows, while silos that nobody has missed yet are gone and messages are lost:
    /// when do all know, and who sends how much?
    Dissemination(experiments::dissemination::Dissemination),
    /// Silos that join a large cluster and do not reach all of it: is that noticed, and does it hold up
    /// a join that some silos are paused?
    Connectivity(experiments::connectivity::Connectivity),
    /// Members without a store beside others: a start of all, one crash, quiet, slow members
    Storeless(experiments::storeless::Storeless),
    /// What a quiet cluster asks of its table, by size, and how large a cluster each store takes
    Scale(experiments::scale::Scale),
    /// Runs the experiments and writes docs/measurements.md
    Measurements(measurements::Measurements),
}

fn main() -> ExitCode {
    match Sim::parse() {
        Sim::Campaign(command) => command.run(),
        Sim::Replay(which) => which.replay(),
        Sim::Shrink(which) => which.shrink(),
        Sim::Lifeguard(command) => command.common.print(command.report()),
        Sim::Outage(command) => command.common.print(command.report()),
        Sim::Pause(command) => command.common.print(command.report()),
        Sim::Skew(command) => command.common.print(command.report()),
        Sim::Wipe(command) => command.common.print(command.report()),
        Sim::Rolling(command) => command.common.print(command.report()),
        Sim::Split(command) => command.common.print(command.report()),
        Sim::Flipflop(command) => command.common.print(command.report(Fault::Flipflop)),
        Sim::Loss80(command) => command.common.print(command.report(Fault::Loss)),
        Sim::Crash(command) => command.common.print(command.report(false)),
        Sim::Mass(command) => command.common.print(command.report(true)),
        Sim::Restart(command) => command.common.print(command.report()),
        Sim::Bootstrap(command) => command.common.print(command.report()),
        Sim::Steady(command) => command.common.print(command.report()),
        Sim::Dissemination(command) => command.common.print(command.report()),
        Sim::Connectivity(command) => command.common.print(command.report()),
        Sim::Storeless(command) => command.common.print(command.report()),
        Sim::Scale(command) => command.run(),
        Sim::Measurements(command) => command.run(),
    }
}
