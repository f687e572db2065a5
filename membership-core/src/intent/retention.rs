//! How long rows of Dead silos are kept: those that ended in peace for minutes, the others long enough to be looked into.
//! A row is never removed so soon that somebody might miss the death it tells of.

use std::cmp::Reverse;
use std::collections::BTreeSet;
use std::time::Duration;

use super::working::Working;
use crate::{CauseOfDeath, Config, Death, Rows, SiloAddress, SiloStatus, Snapshot, WallTime};

/// No row goes sooner after its silo's death than this ("Heartbeats and cleaning" in the protocol).
const KEPT_AT_LEAST: Duration = Duration::from_secs(120);

/// The rows that the leader should remove now, by address: silos that left or were superseded more than
/// [`left_silo_expiration`](Config::left_silo_expiration) ago; others that died more than
/// [`defunct_silo_expiration`](Config::defunct_silo_expiration) ago, or that are not among the newest
/// [`max_defunct_silo_entries`](Config::max_defunct_silo_entries) of them. Never one that died within 2 min, or within the time that a vote
/// counts, and never before the older silos at its address are gone. Clocks are wrong: a death is at least as old as `seen` says, which is for how
/// long the caller has seen it; one that lies in the future counts as just now.
#[must_use]
pub fn defunct(
    snapshot: &Snapshot,
    now: WallTime,
    config: &Config,
    seen: impl Fn(&SiloAddress) -> Duration,
) -> Vec<SiloAddress> {
    let kept_at_least = KEPT_AT_LEAST.max(snapshot.version_row.settings.vote_expiration());
    let age = |silo: &SiloAddress, death: &Death| now.since(death.at).max(seen(silo));
    let dead = snapshot
        .rows
        .entries()
        .filter_map(|e| Some((e.address, e.death.as_ref()?)));
    let (peaceful, mut others): (Vec<_>, Vec<_>) =
        dead.partition(|(_, d)| matches!(d.cause, CauseOfDeath::Left | CauseOfDeath::Superseded));
    // Versions order deaths better than clocks do.
    others.sort_by_key(|(silo, d)| Reverse((d.version, d.at, *silo)));
    let most = usize::try_from(config.max_defunct_silo_entries).unwrap_or(usize::MAX);
    let others = others
        .into_iter()
        .enumerate()
        .filter(|(i, (silo, d))| *i >= most || age(silo, d) >= config.defunct_silo_expiration);
    let gone = peaceful
        .into_iter()
        .filter(|(silo, d)| age(silo, d) >= config.left_silo_expiration)
        .chain(others.map(|(_, other)| other))
        .filter(|(silo, d)| age(silo, d) > kept_at_least)
        .map(|(silo, _)| silo)
        .collect();
    oldest_first(&snapshot.rows, gone)
}

/// In the order of addresses, without those that an older silo at the same address would outlive in the table. Whoever comes next at that
/// address counts on from the newest silo that it finds there, if its clock is behind; what it must not find is one that is older than the
/// newest there ever was.
pub(crate) fn oldest_first(rows: &Rows, silos: BTreeSet<SiloAddress>) -> Vec<SiloAddress> {
    let mut gone: Vec<SiloAddress> = Vec::with_capacity(silos.len());
    for silo in silos {
        let older = rows
            .at_endpoint(silo.endpoint())
            .map(|e| e.address)
            .take_while(|other| *other < silo);
        let last_gone = gone.last().copied();
        // Those at the same address that go are just before it.
        if older
            .last()
            .is_none_or(|newest_older| last_gone == Some(newest_older))
        {
            gone.push(silo);
        }
    }
    gone
}

/// Which of these rows a commit may remove: Dead before it, so that every death is seen in at least one version; and none that an older silo
/// at its address would outlive. In the order of addresses, once each, so that a part of them from the first on may be removed, too.
pub(super) fn removable(working: &Working<'_>, silos: &[SiloAddress]) -> Vec<SiloAddress> {
    let is_dead = |silo: &SiloAddress| {
        working
            .before()
            .rows
            .get(silo)
            .is_some_and(|e| e.status == SiloStatus::Dead)
    };
    let silos = silos
        .iter()
        .copied()
        .filter(|silo| is_dead(silo) && !working.touches(silo))
        .collect();
    oldest_first(&working.after().rows, silos)
}
