//! Watches heartbeats. Whether a silo writes is judged by counters that move while they are
//! watched, and by this machine's monotonic clock alone: wall clocks differ, and times in the table
//! can be changed by hand.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use membership_core::{
    ChangedKeys, ClusterView, Heartbeat, MembershipEntry, MembershipTable, SiloAddress, SiloStatus,
    TableExt, WallTime,
};

use super::rows::named;
use crate::clock;
use crate::exit::Failure;
use crate::inspect::Inspection;
use crate::session::Session;
use crate::text::span;

/// The longest period that a silo may follow (`SharedSettings::workable`).
const LONGEST: Duration = Duration::from_secs(600);

/// The heartbeats that moved while they were watched.
#[derive(Default)]
pub(crate) struct Watched {
    /// Written meanwhile, with the time at which they were seen.
    pub(crate) moved: BTreeMap<SiloAddress, (Heartbeat, WallTime)>,
    /// How long they were watched.
    pub(super) lasted: Duration,
}

/// Watches the heartbeats of all silos that are not Dead, and of those that damaged rows name, until
/// each has moved, for at most as long as the silos themselves wait before they call a row stale. In a
/// large cluster most write rarely: the leader is waited for, and whoever should have written long ago.
pub(super) async fn watch(
    table: &dyn MembershipTable,
    inspection: &Inspection,
    session: &mut Session,
) -> Result<Watched, Failure> {
    let rows = &inspection.snapshot.rows;
    let rarely = inspection.beats_rarely();
    let view = ClusterView::new(inspection.snapshot.clone());
    let leader = view.leader().map(|e| e.address);
    let is_due =
        |e: &&MembershipEntry| !rarely || Some(e.address) == leader || inspection.seems_stale(e);
    let living = rows.entries().filter(|e| e.status != SiloStatus::Dead);
    let living = living.filter(is_due);
    let waiting: BTreeSet<SiloAddress> = living
        .map(|e| e.address)
        .chain(rows.undecodable().filter_map(|row| row.key().parse().ok()))
        .chain(rows.undecodable().flat_map(named))
        .collect();
    until_moved(table, inspection, &waiting, patience(inspection), session).await
}

/// Watches until the heartbeat of each of these silos has moved, for at most this long.
pub(crate) async fn until_moved(
    table: &dyn MembershipTable,
    inspection: &Inspection,
    waiting: &BTreeSet<SiloAddress>,
    most: Duration,
    session: &mut Session,
) -> Result<Watched, Failure> {
    let mut seen = Watched::default();
    if waiting.is_empty() {
        return Ok(seen);
    }
    if session.err.is_terminal() {
        session.err.line(format_args!(
            "watching heartbeats for up to {} …",
            span(most)
        ));
    }
    let pause = inspection.settings().i_am_alive_period / 20;
    let pause = pause.clamp(Duration::from_millis(50), Duration::from_secs(1));
    let begun = Instant::now();
    while begun.elapsed() < most && !waiting.iter().all(|silo| seen.moved.contains_key(silo)) {
        tokio::time::sleep(pause).await;
        let (_, heartbeats) = table.read_all().await?;
        let now = clock::wall();
        for (silo, heartbeat) in &heartbeats.silos {
            if heartbeat.counter > inspection.heartbeats.counter(silo) {
                seen.moved.entry(*silo).or_insert((*heartbeat, now));
            }
        }
    }
    seen.lasted = begun.elapsed();
    Ok(seen)
}

/// How long a heartbeat must stand still before its silo may be called gone. After a change of the
/// settings a silo follows the old period until it has read the new one and written one more
/// heartbeat; its heartbeats so far show how long that period is.
fn patience(inspection: &Inspection) -> Duration {
    let settings = inspection.settings();
    let stale = settings.staleness();
    if !settings_may_have_changed(inspection) {
        return stale;
    }
    let rows = inspection.snapshot.rows.entries();
    let living = rows.filter(|e| e.status != SiloStatus::Dead);
    let slowest = living.filter_map(|e| mean_period(inspection, e)).max();
    let slowest = slowest.unwrap_or_default().min(LONGEST);
    stale.max(slowest * settings.num_missed_i_am_alive_limit)
}

/// Whether one of the last commits may have changed the settings: by a person, and no row. Silos
/// read each commit of a silo soon, because it is announced; those of persons are not.
fn settings_may_have_changed(inspection: &Inspection) -> bool {
    let recent = &inspection.snapshot.version_row.recent;
    let first = recent.first().map_or(1, |commit| commit.version);
    let mut by_people = recent.iter().filter(|commit| commit.committer.is_none());
    let changed_no_row =
        |changed: &ChangedKeys| matches!(changed, ChangedKeys::Keys(keys) if keys.is_empty());
    (first > 1 && by_people.clone().count() == recent.len())
        || by_people.any(|commit| changed_no_row(&commit.changed))
}

/// The mean time between two heartbeats of a silo, both ends by the silo's own clock.
fn mean_period(inspection: &Inspection, entry: &MembershipEntry) -> Option<Duration> {
    let heartbeat = inspection.heartbeats.silos.get(&entry.address)?;
    let count = u32::try_from(heartbeat.counter).ok().filter(|n| *n > 0)?;
    Some(heartbeat.at.since(entry.start_time) / count)
}
