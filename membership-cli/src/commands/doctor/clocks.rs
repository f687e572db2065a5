//! Clocks of silos against this machine's, by their heartbeats. When all of them differ by the same
//! time, it is this machine's clock that is off, which is said once.

use std::time::Duration;

use membership_core::{SiloAddress, SiloStatus};

use super::watch::Watched;
use super::{Finding, report};
use crate::inspect::Inspection;
use crate::session::Session;
use crate::text::{count, span};

/// Clocks that differ by more than this confuse people who read times. The protocol compares none.
const SKEW: Duration = Duration::from_secs(2);

/// One clock: how far it is from this machine's, and whether ahead of it.
struct Clock {
    silo: SiloAddress,
    apart: Duration,
    ahead: bool,
    /// The heartbeat was seen when it was written.
    exact: bool,
}

/// A heartbeat that was just written shows the clock of its writer. Of the others, only one from the
/// future says something about a clock.
fn clocks(inspection: &Inspection, seen: &Watched) -> Vec<Clock> {
    let moved = seen.moved.iter().map(|(silo, (heartbeat, at))| Clock {
        silo: *silo,
        apart: heartbeat.at.distance(*at),
        ahead: heartbeat.at > *at,
        exact: true,
    });
    let rows = &inspection.snapshot.rows;
    let lives = |silo: &SiloAddress| rows.get(silo).is_some_and(|e| e.status != SiloStatus::Dead);
    let others = inspection.heartbeats.silos.iter();
    let future = others
        .filter(|(silo, _)| !seen.moved.contains_key(silo) && lives(silo))
        .filter(|(_, heartbeat)| heartbeat.at > inspection.now)
        .map(|(silo, heartbeat)| Clock {
            silo: *silo,
            apart: heartbeat.at.since(inspection.now),
            ahead: true,
            exact: false,
        });
    moved.chain(future).collect()
}

/// Reports the clocks; gives the number of problems.
pub(super) fn check(inspection: &Inspection, seen: &Watched, session: &mut Session) -> usize {
    let clocks = clocks(inspection, seen);
    let rows = inspection.snapshot.rows.entries();
    let living = rows.filter(|e| e.status != SiloStatus::Dead).count();
    if let Some(text) = mine(&clocks, living) {
        report(session, Finding::Bad, "clock", &text);
        return 1;
    }
    let mut skewed = 0;
    for clock in clocks.iter().filter(|c| c.apart > SKEW) {
        skewed += 1;
        let direction = if clock.ahead { "ahead of" } else { "behind" };
        let verb = if clock.exact { "is" } else { "was" };
        let text = format!(
            "{}'s clock {verb} {} {direction} this machine's: check its time service",
            clock.silo,
            span(clock.apart)
        );
        report(session, Finding::Bad, "clock", &text);
    }
    if skewed == 0 {
        let exact = clocks.iter().filter(|c| c.exact).map(|c| c.apart).max();
        let text = exact.map_or_else(
            || "no heartbeat is in the future".to_owned(),
            |worst| format!("agree to {}", span(worst)),
        );
        report(session, Finding::Good, "clocks", &text);
    }
    skewed
}

/// What to say if this machine's clock is the one that is off: at least two silos, all of them, differ
/// from it in the same direction by nearly the same time.
fn mine(clocks: &[Clock], living: usize) -> Option<String> {
    if clocks.len() < 2 || clocks.len() < living {
        return None;
    }
    let least = clocks.iter().map(|c| c.apart).min()?;
    let most = clocks.iter().map(|c| c.apart).max()?;
    let ahead = clocks.iter().all(|c| c.ahead);
    let one_way = ahead || clocks.iter().all(|c| !c.ahead);
    // Heartbeats that were not watched may be a period old.
    if !one_way || least <= SKEW || most - least > least.max(SKEW * 2) / 2 {
        return None;
    }
    let direction = if ahead { "behind" } else { "ahead of" };
    Some(format!(
        "this machine's clock is {} {direction} those of all {}: check its time service; what is said of ages here is wrong by that",
        span(least),
        count(clocks.len(), "silo")
    ))
}
