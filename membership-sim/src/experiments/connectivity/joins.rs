//! Silos that join at once, each with the links that are cut for it.

use std::collections::BTreeSet;
use std::time::Duration;

use membership_core::SiloAddress;
use membership_core::intent::check_set;
use membership_core::protocol::{Command, JoinError, Notice, Termination, Unreached};
use membership_testing::ProcessId;

use super::addresses;
use crate::arena::{Arena as _, Failure};
use crate::ours::Ours;

/// How long those are looked at that do not become Active.
pub(super) const LOOKED_AT: Duration = Duration::from_secs(21);
/// How long those that are stopped may take.
const STOPPED: Duration = Duration::from_secs(30);

/// The silos to which a joining one has no link in one direction.
#[derive(Clone, Debug, Default)]
pub(super) struct Cut {
    those: BTreeSet<ProcessId>,
    /// Whether what they send is lost, and not what is sent to them.
    from: bool,
}

impl Cut {
    /// What is sent to these is lost.
    pub(super) const fn to(those: BTreeSet<ProcessId>) -> Self {
        Self { those, from: false }
    }

    /// What these send is lost.
    pub(super) const fn from(those: BTreeSet<ProcessId>) -> Self {
        Self { those, from: true }
    }
}

/// What came of a join.
#[derive(Clone, Copy, Debug)]
pub(super) struct Joined {
    /// After how many seconds it was Active.
    pub(super) took: Option<f64>,
    /// How many silos it had to meet.
    pub(super) set: f64,
    /// Whether it named somebody to whom its link is cut, and whether it named anybody else.
    pub(super) named: bool,
    pub(super) named_another: bool,
}

/// Starts silos, one for each of these cuts, and looks at them until all are Active, or for a while.
/// Returns them, and what came of each.
///
/// # Errors
/// When the simulation stops.
pub(super) fn join(
    ours: &mut Ours,
    cuts: Vec<Cut>,
    limit: Option<usize>,
) -> Result<(Vec<ProcessId>, Vec<Joined>), Failure> {
    let began = ours.now();
    let mut started = Vec::new();
    for cut in cuts {
        let host = ours.cluster.truth().records.len();
        let silo = ours.cluster.start_at(crate::ours::endpoint(host));
        for other in &cut.those {
            if cut.from {
                ours.cluster.block(*other, silo);
            } else {
                ours.cluster.block(silo, *other);
            }
        }
        started.push((silo, cut));
    }
    let new: Vec<ProcessId> = started.iter().map(|(silo, _)| *silo).collect();
    ours.adopt(&new);
    while ours.now() < began + LOOKED_AT {
        ours.run_for(Duration::from_millis(100))?;
        if new.iter().all(|silo| active_at(ours, *silo).is_some()) {
            break;
        }
    }
    let result = started.iter().map(|(silo, cut)| {
        let those = addresses(ours, &cut.those);
        let named = named(ours, *silo);
        Joined {
            took: active_at(ours, *silo).map(|at| (at - began).as_secs_f64()),
            set: set(ours, *silo, limit),
            named: named.iter().any(|one| those.contains(one)),
            named_another: named.iter().any(|one| !those.contains(one)),
        }
    });
    let result: Vec<Joined> = result.collect();
    for (silo, cut) in &started {
        for other in &cut.those {
            ours.cluster.unblock(*silo, *other);
            ours.cluster.unblock(*other, *silo);
        }
    }
    Ok((new, result))
}

/// When a silo learned that it is Active.
fn active_at(ours: &Ours, silo: ProcessId) -> Option<Duration> {
    let notices = ours.cluster.notices(silo).iter();
    let mut active = notices.filter(|(_, notice)| matches!(notice, Notice::Active { .. }));
    active.next().map(|(at, _)| *at)
}

/// Everybody whom a silo has named as not reached. What it says in its first progress may be about one that
/// has just become Active as well: the last word counts.
fn named(ours: &Ours, silo: ProcessId) -> BTreeSet<SiloAddress> {
    let ends = match ours.cluster.termination(silo) {
        Some(Termination::JoinFailed(
            JoinError::Unreachable { unreached, .. } | JoinError::VotedOut { unreached, .. },
        )) => Some(unreached),
        _ => None,
    };
    let told = ours.cluster.notices(silo).iter().rev();
    let told = told.filter_map(|(_, notice)| match notice {
        Notice::JoinProgress(progress) if !progress.unreached.is_empty() => {
            Some(&progress.unreached)
        }
        _ => None,
    });
    let last: Option<&Vec<Unreached>> = ends.into_iter().chain(told).next();
    last.into_iter().flatten().map(|one| one.silo).collect()
}

/// How many silos this one had to meet, as the table is now.
#[allow(clippy::cast_precision_loss, reason = "figures for people")]
fn set(ours: &Ours, silo: ProcessId, limit: Option<usize>) -> f64 {
    let (Some(table), Some(address)) = (ours.cluster.table(), ours.cluster.address(silo)) else {
        return 0.0;
    };
    let set = limit.and_then(|limit| check_set(&table.rows, &address, limit));
    let all = || {
        let alive = table.rows.entries().filter(|e| e.death.is_none());
        alive.count().saturating_sub(1)
    };
    set.map_or_else(all, |set| set.len()) as f64
}

/// Stops these silos, and waits until they are gone.
///
/// # Errors
/// When the simulation stops.
pub(super) fn leave(ours: &mut Ours, new: &[ProcessId]) -> Result<(), Failure> {
    for silo in new
        .iter()
        .filter(|silo| ours.cluster.is_running(**silo))
        .collect::<Vec<_>>()
    {
        ours.cluster.command(*silo, Command::Stop);
    }
    let end = ours.now() + STOPPED;
    while ours.now() < end && new.iter().any(|silo| ours.cluster.is_running(*silo)) {
        ours.run_for(Duration::from_millis(250))?;
    }
    for silo in new {
        ours.cluster.kill(*silo);
    }
    ours.run_for(Duration::from_secs(1))
}
