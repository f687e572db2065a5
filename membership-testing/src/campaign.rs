//! Random campaigns: a cluster, at least six kinds of faults drawn from a seed, half an hour of
//! them, then no faults, then a check that the cluster recovers.
//!
//! The seed and the number of a step alone decide what happens at that step. If a step or a kind of
//! fault is removed, the rest of the campaign stays the same; [`shrink()`] depends on that.

mod begin;
mod fault;
mod operator;
mod options;
mod partial;
mod plan;
mod shrink;
#[cfg(test)]
mod tests;

use std::collections::BTreeSet;
use std::time::Duration;

use crate::machine::every_other;
use crate::{Cluster, Detail, Rng, Stats, Violation};
pub use fault::{Fault, ParseFaultError};
use membership_core::hooks::ProtocolVariant;
pub use options::{CampaignOptions, replay_command, shrink_command};
pub use shrink::{Shrunk, shrink};

/// How many more kinds of faults than the least number a campaign can draw.
const MORE_KINDS: usize = 6;
/// Lines of the trace that a violation shows.
const TAIL: usize = 160;

/// One silo writes for many, with limits so small that campaigns meet each of them.
const SMALL: ProtocolVariant = ProtocolVariant {
    full_check_limit: Some(5),
    flood_above: Some(5),
    heartbeat_spacing: Some(Duration::from_secs(5)),
    changes_per_commit: 3,
    most_waiting: 4,
    kept_views: 2,
    ..ProtocolVariant::SCRIBE
};

/// The result of a campaign without a violation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// Counts of what happened.
    pub stats: Stats,
    /// The kinds of faults that were drawn.
    pub kinds: BTreeSet<Fault>,
    /// Equal for equal seeds and options.
    pub hash: u64,
}

/// Runs the campaign of a seed.
///
/// # Errors
/// The first violated invariant.
pub fn run(seed: u64, options: &CampaignOptions) -> Result<Outcome, Violation> {
    let kinds = drawn(seed, options);
    let with_commands = |violation: Violation| {
        violation
            .with_replay(replay_command(seed, options))
            .with_shrink(shrink_command(seed, options))
    };
    let mut cluster = prepare(seed, options).map_err(with_commands)?;
    drive(&mut cluster, seed, options, &kinds).map_err(with_commands)?;
    Ok(Outcome {
        stats: *cluster.stats(),
        kinds,
        hash: cluster.trace().hash(),
    })
}

/// Runs the campaign of a seed and returns its transcript, and the violation if there is one.
#[must_use]
pub fn replay(seed: u64, options: &CampaignOptions) -> (String, Option<Violation>) {
    let options = CampaignOptions {
        everything: true,
        ..options.clone()
    };
    let kinds = drawn(seed, &options);
    match prepare(seed, &options) {
        Err(violation) => (String::new(), Some(violation)),
        Ok(mut cluster) => {
            let violation = drive(&mut cluster, seed, &options, &kinds).err();
            let names: Vec<&str> = kinds.into_iter().map(Fault::name).collect();
            (
                crate::transcript::render(
                    &format!("campaign of seed {seed}: {}", names.join(", ")),
                    &cluster,
                ),
                violation,
            )
        }
    }
}

/// The kinds of faults in the campaign of a seed.
#[must_use]
pub fn drawn(seed: u64, options: &CampaignOptions) -> BTreeSet<Fault> {
    if !options.only.is_empty() {
        return options.only.iter().copied().collect();
    }
    let mut rng = Rng::new(seed ^ 0x6b69_6e64);
    let mut kinds = Fault::ALL.to_vec();
    rng.shuffle(&mut kinds);
    let spare = kinds
        .len()
        .saturating_sub(options.least_kinds)
        .min(MORE_KINDS);
    kinds.truncate(options.least_kinds + rng.below(spare + 1));
    kinds.into_iter().collect()
}

/// How many steps the campaign of a seed has.
fn steps(seed: u64, options: &CampaignOptions) -> u32 {
    let (mut time, mut steps) = (Duration::ZERO, 0);
    loop {
        time += plan::quiet(seed, steps);
        if time >= Duration::from_secs(options.minutes * 60) {
            return steps;
        }
        steps += 1;
    }
}

fn prepare(seed: u64, options: &CampaignOptions) -> Result<Cluster, Violation> {
    let detail = if options.everything {
        Detail::Everything
    } else {
        Detail::Tail(TAIL)
    };
    let builder = Cluster::builder()
        .seed(seed)
        .silos(options.silos)
        .config(options.config.clone())
        .detail(detail);
    let builder = match (options.scribe, options.mixed) {
        (false, _) => builder,
        (true, false) => builder.variant(SMALL),
        (true, true) => builder.variant(SMALL).machines(every_other(SMALL)),
    };
    let builder = match options.prepare {
        Some(prepare) => prepare(builder),
        None => builder,
    };
    builder
        .build()
        .map_err(|e| Violation::new(seed, "world", e.to_string(), Duration::ZERO, Vec::new()))
}

fn drive(
    cluster: &mut Cluster,
    seed: u64,
    options: &CampaignOptions,
    kinds: &BTreeSet<Fault>,
) -> Result<(), Violation> {
    cluster.run_until_agreed(options.config.max_join_attempt_time)?;
    if options.hostile {
        cluster.add_hostile_peers(true);
    }
    let end = cluster.now() + Duration::from_secs(options.minutes * 60);
    let mut plan = plan::Plan::new(seed, options.silos);
    let mut step = 0;
    let mut next = cluster.now() + plan::quiet(seed, step);
    while cluster.now() < end {
        let until = plan.next_end().map_or(next, |due| due.min(next)).min(end);
        cluster.run_for(until.saturating_sub(cluster.now()))?;
        plan.end_due_faults(cluster);
        if cluster.now() >= next && cluster.now() < end {
            if !options.skip.contains(&step) {
                plan.step(cluster, step, kinds);
            }
            step += 1;
            next += plan::quiet(seed, step);
        }
        plan.keep_populated(cluster);
    }
    cluster.end_faults();
    plan.finish(cluster);
    plan.keep_populated(cluster);
    cluster.settle()
}
