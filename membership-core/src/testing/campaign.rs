//! Random campaigns: a cluster, at least three kinds of faults drawn from a seed, half an hour of them, then peace, then judgement.

mod plan;

use std::collections::BTreeSet;
use std::time::Duration;

use super::{Cluster, Detail, ProcessId, Stats, Violation};
use crate::{Config, Preset};
pub use plan::Fault;

/// What a campaign is like.
#[derive(Clone, Debug)]
pub struct CampaignOptions {
    /// How many silos; at least 5. Default 20.
    pub silos: usize,
    /// How many virtual minutes of faults. Default 30.
    pub minutes: u64,
    /// How each silo is configured. Default: the `lan` preset.
    pub config: Config,
    /// At least so many kinds of faults, of those in [`Fault::ALL`]. Default 3.
    pub least_kinds: usize,
    /// Only these kinds; empty = any.
    pub only: Vec<Fault>,
    /// Keep every line of the trace.
    pub everything: bool,
}

impl Default for CampaignOptions {
    fn default() -> Self {
        Self { silos: 20, minutes: 30, config: Config::preset(Preset::Lan), least_kinds: 3, only: Vec::new(), everything: false }
    }
}

/// What came of a campaign without a violation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// How much happened.
    pub stats: Stats,
    /// The kinds of faults that were drawn.
    pub kinds: BTreeSet<Fault>,
    /// Equal for equal seeds and options.
    pub hash: u64,
}

/// The command that replays a campaign.
#[must_use]
pub fn replay_command(seed: u64) -> String {
    format!("MEMBERSHIP_SEED={seed} cargo test -p membership-core --features testing --test campaign -- replay --nocapture")
}

/// Runs the campaign of a seed.
///
/// # Errors
/// The first invariant that does not hold.
pub fn run(seed: u64, options: &CampaignOptions) -> Result<Outcome, Violation> {
    let (mut cluster, kinds) = prepare(seed, options)?;
    match drive(&mut cluster, options, &kinds) {
        Ok(()) => Ok(Outcome { stats: *cluster.stats(), kinds, hash: cluster.trace().hash() }),
        Err(violation) => Err(violation.with_replay(replay_command(seed))),
    }
}

/// Runs the campaign of a seed and returns every line of its trace, with the violation, if there is one.
#[must_use]
pub fn replay(seed: u64, options: &CampaignOptions) -> (String, Option<Violation>) {
    let options = CampaignOptions { everything: true, ..options.clone() };
    match prepare(seed, &options) {
        Err(violation) => (String::new(), Some(violation)),
        Ok((mut cluster, kinds)) => {
            let violation = drive(&mut cluster, &options, &kinds).err();
            (super::transcript::render(&format!("campaign of seed {seed}: {kinds:?}"), &cluster), violation)
        }
    }
}

fn prepare(seed: u64, options: &CampaignOptions) -> Result<(Cluster, BTreeSet<Fault>), Violation> {
    let detail = if options.everything { Detail::Everything } else { Detail::Tail(160) };
    let builder = Cluster::builder().seed(seed).silos(options.silos).config(options.config.clone()).detail(detail);
    let mut cluster = builder.build().map_err(|e| Violation::new(seed, "world", e.to_string(), Duration::ZERO, Vec::new()))?;
    let mut kinds: Vec<Fault> = if options.only.is_empty() { Fault::ALL.to_vec() } else { options.only.clone() };
    cluster.dice().shuffle(&mut kinds);
    let spare = kinds.len().saturating_sub(options.least_kinds).min(4);
    let wanted = options.least_kinds + cluster.dice().below(spare + 1);
    kinds.truncate(wanted);
    Ok((cluster, kinds.into_iter().collect()))
}

fn drive(cluster: &mut Cluster, options: &CampaignOptions, kinds: &BTreeSet<Fault>) -> Result<(), Violation> {
    cluster.run_until_agreed(options.config.max_join_attempt_time)?;
    let end = cluster.now() + Duration::from_secs(options.minutes * 60);
    let kinds: Vec<Fault> = kinds.iter().copied().collect();
    let mut plan = plan::Plan::new(options.silos);
    while cluster.now() < end {
        let quiet = cluster.dice().between(Duration::from_secs(5), Duration::from_secs(60));
        let step = plan.next_end(cluster.now()).map_or(quiet, |due| quiet.min(due)).min(end - cluster.now());
        cluster.run_for(step)?;
        plan.end_what_is_due(cluster);
        if step == quiet
            && let Some(kind) = cluster.dice().pick(&kinds)
        {
            plan.begin(cluster, kind);
        }
        plan.keep_populated(cluster);
    }
    cluster.end_faults();
    plan.forget();
    plan.keep_populated(cluster);
    cluster.settle()
}

/// Silos that run, are Active and are neither paused nor leaving.
fn fit(cluster: &Cluster) -> Vec<ProcessId> {
    let truth = cluster.truth();
    let able = |id: &ProcessId| truth.life(*id).is_some_and(|l| l.leaving.is_none() && !l.paused.is_on() && !l.hidden);
    cluster.running().into_iter().filter(able).collect()
}
