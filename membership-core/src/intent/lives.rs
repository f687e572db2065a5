//! Rules of the life of one silo: join, become active, shut down, leave, be evicted. The status
//! only moves forward, and Dead is final (P3). A silo becomes Active only after contact with every
//! silo that it must reach (P9).

use super::apply::Context;
use super::working::{Change, Contacted, Planned, Working};
use super::{Answer, Refusal};
use crate::{CauseOfDeath, Death, MembershipEntry, Row, SiloAddress, SiloStatus, WallTime};

/// The bytes of a row that a new silo must leave free for later votes and its death, but at most a
/// quarter of the row limit. A vote with evidence takes about 300 bytes.
const RESERVED_BYTES: usize = 4096;

/// Older rows at the endpoint of `silo` that are not Dead. A join ends them.
pub(super) fn predecessors<'a>(
    working: &'a Working<'_>,
    silo: &SiloAddress,
) -> impl Iterator<Item = &'a MembershipEntry> {
    let epoch = silo.epoch();
    working
        .after()
        .rows
        .at_endpoint(silo.endpoint())
        .filter(move |e| e.address.epoch() < epoch && e.status != SiloStatus::Dead)
}

pub(super) fn join(
    working: &Working<'_>,
    context: &Context<'_>,
    author: Option<SiloAddress>,
    entry: &MembershipEntry,
) -> Planned {
    let (me, rows) = (entry.address, &working.after().rows);
    let in_the_way = |row: &&Row| {
        row.key()
            .parse::<SiloAddress>()
            .is_ok_and(|silo| silo.same_endpoint(&me))
    };
    if let Some(row) = rows.undecodable().find(in_the_way) {
        return refuse(Refusal::Undecodable(row.key().to_owned()));
    }
    match rows.get(&me) {
        Some(mine) if mine.status == SiloStatus::Dead => return refuse(Refusal::Dead(me)),
        Some(mine) if mine.instance_id == entry.instance_id => {
            return Planned::Answer(Answer::Moot);
        }
        // Another process chose the same epoch and committed first: this silo is not the newest at
        // its endpoint.
        Some(_) => return refuse(Refusal::Superseded(me)),
        None => {}
    }
    if let Some(newer) = newer(working, &me) {
        return refuse(Refusal::Superseded(newer));
    }
    let mut mine = entry.clone();
    mine.status = SiloStatus::Joining;
    mine.death = None;
    mine.suspicions.clear();
    mine.active_since = None;
    mine.active_at = None;
    mine.written_at = working.version();
    let most = working.limits().bytes_per_row;
    let (size, most) = (
        Row::encode(mine.clone()).size(),
        most - RESERVED_BYTES.min(most / 4),
    );
    if size > most {
        return refuse(Refusal::TooLarge(format!(
            "row {me} has {size} bytes, a new row may have {most}"
        )));
    }
    let mut change = Change::default();
    for older in predecessors(working, &me) {
        change.rows.push(dead(
            working,
            older.clone(),
            CauseOfDeath::Superseded,
            context.now.wall,
            author,
        ));
    }
    change.rows.push(mine);
    change.removed = earlier_tries(working, &me).take(MOST_TRIES).collect();
    Planned::Change(change)
}

/// How many rows of earlier tries one join removes: few, so that its commit stays small.
const MOST_TRIES: usize = 4;

/// Silos that were voted out at the endpoint of `silo` before they were ever Active. A process that
/// cannot join, because it is set up otherwise or cut off, and is started again and again would leave
/// one row each time; the row of the newest try says what they said. Other silos know the removed
/// ones as Dead by the newer epoch at their endpoint.
fn earlier_tries(working: &Working<'_>, silo: &SiloAddress) -> impl Iterator<Item = SiloAddress> {
    let epoch = silo.epoch();
    let was_dead = |silo: &SiloAddress| {
        let before = working.before().rows.get(silo);
        before.is_some_and(|e| e.status == SiloStatus::Dead) && !working.touches(silo)
    };
    let voted = |death: &Death| matches!(death.cause, CauseOfDeath::Voted | CauseOfDeath::Stuck);
    working
        .after()
        .rows
        .at_endpoint(silo.endpoint())
        .filter(move |e| e.address.epoch() < epoch && e.active_since.is_none())
        .filter(move |e| e.death.as_ref().is_some_and(voted))
        .map(|e| e.address)
        .filter(was_dead)
}

pub(super) fn become_active(
    working: &Working<'_>,
    context: &Context<'_>,
    silo: SiloAddress,
    contacted: &[SiloAddress],
) -> Planned {
    let entry = match find(working, &silo) {
        Err(refusal) => return refuse(newer(working, &silo).map_or(refusal, Refusal::Superseded)),
        Ok(entry) => entry,
    };
    match entry.status {
        SiloStatus::Active => return Planned::Answer(Answer::Moot),
        SiloStatus::Dead => return refuse(Refusal::Dead(silo)),
        SiloStatus::Created | SiloStatus::Joining => {}
        status => return refuse(Refusal::WrongStatus { silo, status }),
    }
    if let Some(newer) = newer(working, &silo) {
        return refuse(Refusal::Superseded(newer));
    }
    let limit = context.observed.full_check_limit;
    let contacted = Contacted {
        met: contacted.iter().copied().collect(),
        set: limit.and_then(|limit| working.check_set(&silo, limit, context.many_activate)),
    };
    let rows = &working.after().rows;
    let is_missing = |e: &&MembershipEntry| {
        e.status == SiloStatus::Active
            && !e.address.same_endpoint(&silo)
            && !working.activated().contains_key(&e.address)
            && !context.stale.contains(&e.address)
            && contacted.lacks(&e.address)
    };
    let missing: Vec<SiloAddress> = match &contacted.set {
        Some(set) => {
            let all = set.iter().filter_map(|other| rows.get(other));
            all.filter(is_missing).map(|e| e.address).collect()
        }
        None => rows
            .entries()
            .filter(is_missing)
            .map(|e| e.address)
            .collect(),
    };
    if !missing.is_empty() {
        return refuse(Refusal::NotContacted(missing));
    }
    // Two silos that become Active in one commit must have contacted each other; otherwise the
    // second waits until the first is Active.
    let strangers =
        |(other, theirs): (&SiloAddress, &Contacted)| contacted.lacks(other) || theirs.lacks(&silo);
    if working.activated().iter().any(strangers) {
        return Planned::Answer(Answer::Queued);
    }
    let mut active = entry.clone();
    active.status = SiloStatus::Active;
    active.active_since = Some(working.version());
    active.active_at = Some(context.now.wall);
    Planned::Change(Change {
        rows: vec![active],
        activated: Some((silo, contacted)),
        ..Change::default()
    })
}

pub(super) fn evict(
    working: &Working<'_>,
    context: &Context<'_>,
    author: Option<SiloAddress>,
    silo: SiloAddress,
    by: &str,
    reason: &str,
) -> Planned {
    match find(working, &silo) {
        Err(refusal) => refuse(refusal),
        Ok(entry) if entry.status == SiloStatus::Dead => Planned::Answer(Answer::Moot),
        Ok(entry) => {
            let cause = CauseOfDeath::Evicted {
                by: by.to_owned(),
                reason: reason.to_owned(),
            };
            Change::of(dead(
                working,
                entry.clone(),
                cause,
                context.now.wall,
                author,
            ))
        }
    }
}

pub(super) fn begin_shutdown(working: &Working<'_>, silo: SiloAddress, fast: bool) -> Planned {
    let entry = match find(working, &silo) {
        Err(refusal) => return refuse(refusal),
        Ok(entry) => entry,
    };
    let next = if fast {
        SiloStatus::Stopping
    } else {
        SiloStatus::ShuttingDown
    };
    if entry.status == SiloStatus::Dead {
        return refuse(Refusal::Dead(silo));
    }
    if !entry.status.may_become(next) {
        return Planned::Answer(Answer::Moot);
    }
    Change::of(MembershipEntry {
        status: next,
        ..entry.clone()
    })
}

pub(super) fn leave(
    working: &Working<'_>,
    context: &Context<'_>,
    author: Option<SiloAddress>,
    silo: SiloAddress,
) -> Planned {
    match find(working, &silo) {
        Err(Refusal::NoSuchSilo(_)) => Planned::Answer(Answer::Moot),
        Err(refusal) => refuse(refusal),
        Ok(entry) => match &entry.death {
            Some(death) if death.cause == CauseOfDeath::Left => Planned::Answer(Answer::Moot),
            _ if entry.status == SiloStatus::Dead => refuse(Refusal::Dead(silo)),
            _ => Change::of(dead(
                working,
                entry.clone(),
                CauseOfDeath::Left,
                context.now.wall,
                author,
            )),
        },
    }
}

/// The row of a silo after the intents so far.
pub(super) fn find<'a>(
    working: &'a Working<'_>,
    silo: &SiloAddress,
) -> Result<&'a MembershipEntry, Refusal> {
    let rows = &working.after().rows;
    match rows.get(silo) {
        Some(entry) => Ok(entry),
        None => match rows.by_key(&silo.row_key()) {
            Some(row) => Err(Refusal::Undecodable(row.key().to_owned())),
            None => Err(Refusal::NoSuchSilo(*silo)),
        },
    }
}

/// The newest incarnation at the endpoint of `silo`, if it is newer than `silo`.
fn newer(working: &Working<'_>, silo: &SiloAddress) -> Option<SiloAddress> {
    working
        .after()
        .rows
        .at_endpoint(silo.endpoint())
        .next_back()
        .map(|e| e.address)
        .filter(|a| a.is_successor_of(silo))
}

/// The row after the silo's death. The oldest votes are dropped where the row would exceed the
/// store's limit.
pub(super) fn dead(
    working: &Working<'_>,
    mut entry: MembershipEntry,
    cause: CauseOfDeath,
    at: WallTime,
    by: Option<SiloAddress>,
) -> MembershipEntry {
    let voted = matches!(cause, CauseOfDeath::Voted | CauseOfDeath::Stuck);
    entry.status = SiloStatus::Dead;
    entry.death = Some(Death::new(cause, at, by, working.version()));
    if !voted {
        shrink(working, &mut entry, |_| true);
    }
    entry
}

/// Drops votes that may be dropped, oldest first, until the row fits the store.
pub(super) fn shrink(
    working: &Working<'_>,
    entry: &mut MembershipEntry,
    may_go: impl Fn(&crate::Suspicion) -> bool,
) {
    entry.written_at = working.version();
    while Row::encode(entry.clone()).size() > working.limits().bytes_per_row {
        let Some(oldest) = entry.suspicions.iter().position(&may_go) else {
            return;
        };
        entry.suspicions.remove(oldest);
    }
}

pub(super) fn refuse(refusal: Refusal) -> Planned {
    Planned::Answer(Answer::Refused(refusal))
}
