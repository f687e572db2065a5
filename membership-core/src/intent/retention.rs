//! How long rows of Dead silos are kept: minutes after a normal end, and long enough for an
//! investigation after any other. A row is never removed before the other silos can have seen the
//! death.

use std::cmp::Reverse;
use std::collections::BTreeSet;
use std::time::Duration;

use super::working::Working;
use crate::{CauseOfDeath, Config, Death, Rows, SiloAddress, SiloStatus, Snapshot, WallTime};

/// Minimum time that a row is kept after the death of its silo ("Heartbeats and cleaning" in the
/// protocol).
const KEPT_AT_LEAST: Duration = Duration::from_secs(120);

/// The rows that the leader should remove now, by address:
///
/// * silos that left or were superseded more than
///   [`left_silo_expiration`](Config::left_silo_expiration) ago;
/// * other silos that died more than [`defunct_silo_expiration`](Config::defunct_silo_expiration)
///   ago, or that are not among the newest
///   [`max_defunct_silo_entries`](Config::max_defunct_silo_entries) of them.
///
/// A row stays for at least 2 min and for as long as a vote counts, and until the rows of older
/// silos at its address are gone. Because clocks can be wrong, a death is at least as old as `seen`
/// returns: the time for which the caller has seen it. A death in the future counts as new.
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
    // Versions order deaths more reliably than clocks.
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

/// The silos in the order of addresses, without each silo whose row an older silo at the same
/// address would outlive. A silo whose clock is behind derives its epoch from the newest row at its
/// address; the newest row must therefore not be removed while an older one stays.
pub(crate) fn oldest_first(rows: &Rows, silos: BTreeSet<SiloAddress>) -> Vec<SiloAddress> {
    let mut gone: Vec<SiloAddress> = Vec::with_capacity(silos.len());
    for silo in silos {
        let older = rows
            .at_endpoint(silo.endpoint())
            .map(|e| e.address)
            .take_while(|other| *other < silo);
        let last_gone = gone.last().copied();
        // The silos at the same address that are removed directly precede this one.
        if older
            .last()
            .is_none_or(|newest_older| last_gone == Some(newest_older))
        {
            gone.push(silo);
        }
    }
    gone
}

/// The rows of `silos` that a commit may remove. Each is Dead before the commit, so that every
/// death is visible in at least one version, and no older row at its address stays. The result is
/// in the order of addresses without duplicates, so that any prefix of it may be removed, too.
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
