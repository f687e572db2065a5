//! How long rows of Dead silos are kept: those that ended in peace for minutes, the others long enough to be looked into.
//! A row is never removed so soon that somebody might miss the death it tells of.

use std::cmp::Reverse;
use std::time::Duration;

use super::working::Working;
use crate::{CauseOfDeath, Config, Death, SiloAddress, SiloStatus, Snapshot, WallTime};

/// No row goes sooner after its silo's death than this ("Heartbeats and cleaning" in the protocol).
const KEPT_AT_LEAST: Duration = Duration::from_secs(120);

/// The rows that the leader should remove now, by address: silos that left or were superseded more than
/// [`left_silo_expiration`](Config::left_silo_expiration) ago; others that died more than
/// [`defunct_silo_expiration`](Config::defunct_silo_expiration) ago, or that are not among the newest
/// [`max_defunct_silo_entries`](Config::max_defunct_silo_entries) of them. Never one that died within 2 min, or within the time that a vote
/// counts; a death that lies in the future counts as just now.
#[must_use]
pub fn defunct(snapshot: &Snapshot, now: WallTime, config: &Config) -> Vec<SiloAddress> {
    let kept_at_least = KEPT_AT_LEAST.max(snapshot.version_row.settings.death_vote_expiration);
    let age = |death: &Death| now.since(death.at);
    let dead = snapshot.rows.entries().filter_map(|e| Some((e.address, e.death.as_ref()?)));
    let (peaceful, mut others): (Vec<_>, Vec<_>) =
        dead.partition(|(_, d)| matches!(d.cause, CauseOfDeath::Left | CauseOfDeath::Superseded));
    // Versions order deaths better than clocks do.
    others.sort_by_key(|(silo, d)| Reverse((d.version, d.at, *silo)));
    let most = usize::try_from(config.max_defunct_silo_entries).unwrap_or(usize::MAX);
    let others = others.into_iter().enumerate().filter(|(i, (_, d))| *i >= most || age(d) >= config.defunct_silo_expiration);
    let mut gone: Vec<SiloAddress> = peaceful
        .into_iter()
        .filter(|(_, d)| age(d) >= config.left_silo_expiration)
        .chain(others.map(|(_, other)| other))
        .filter(|(_, d)| age(d) > kept_at_least)
        .map(|(silo, _)| silo)
        .collect();
    gone.sort_unstable();
    gone
}

/// Which of these rows a commit may remove: Dead before it, so that every death is seen in at least one version. In their order, once each.
pub(super) fn removable(working: &Working<'_>, silos: &[SiloAddress]) -> Vec<SiloAddress> {
    let mut seen = std::collections::BTreeSet::new();
    let is_dead = |silo: &SiloAddress| working.before().rows.get(silo).is_some_and(|e| e.status == SiloStatus::Dead);
    silos.iter().copied().filter(|silo| is_dead(silo) && !working.touches(silo) && seen.insert(*silo)).collect()
}
