//! Which silos are gone, which may be alive, and which rows cannot be decoded.
//!
//! A ghost is a row that is not Dead whose heartbeat is stale, stood still while it was watched, at
//! whose address nothing listens, and which the other silos accuse if any of them is Active. A silo
//! that cannot write to the table has a stale heartbeat too: its address still answers. Where this
//! machine's network is another one, the address of a living silo may refuse connections, but the
//! other silos reach it.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use membership::transport::instance_at;
use membership_core::{
    Heartbeat, InstanceId, MembershipEntry, MembershipTable, SiloAddress, SiloStatus, Suspicion,
    TableExt, WallTime,
};
use tokio::task::JoinSet;

use super::{Finding, report};
use crate::clock;
use crate::exit::Failure;
use crate::inspect::Inspection;
use crate::session::Session;
use crate::text::{clean, count, span};

/// How long a connection to a silo may take. A silo far away answers within a second.
pub(super) const DIAL_TIMEOUT: Duration = Duration::from_secs(3);
/// How many addresses are dialled at once.
pub(super) const DIALS: usize = 32;

/// The heartbeats that moved while they were watched.
#[derive(Default)]
pub(super) struct Watched {
    /// Written meanwhile, with the time at which they were seen.
    pub(super) moved: BTreeMap<SiloAddress, (Heartbeat, WallTime)>,
    /// How long they were watched.
    pub(super) lasted: Duration,
}

/// Watches heartbeats until each has moved, for at most a period and a half.
pub(super) async fn watch(
    table: &dyn MembershipTable,
    inspection: &Inspection,
    session: &mut Session,
) -> Result<Watched, Failure> {
    let waiting: Vec<SiloAddress> = inspection
        .snapshot
        .rows
        .entries()
        .filter(|e| e.status != SiloStatus::Dead)
        .map(|e| e.address)
        .collect();
    let mut seen = Watched::default();
    if waiting.is_empty() {
        return Ok(seen);
    }
    let period = inspection.settings().i_am_alive_period;
    let begun = Instant::now();
    let until = begun + period * 3 / 2;
    if session.err.is_terminal() {
        session.err.line(format_args!(
            "watching heartbeats for up to {} …",
            span(period * 3 / 2)
        ));
    }
    let all = |seen: &Watched| waiting.iter().all(|silo| seen.moved.contains_key(silo));
    while !all(&seen) && Instant::now() < until {
        tokio::time::sleep((period / 20).clamp(Duration::from_millis(50), Duration::from_secs(1)))
            .await;
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

/// What is at a silo's address, as seen from this machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum AtAddress {
    /// The silo itself: it proves its key.
    Itself,
    /// Another process, which proves another key.
    Another,
    /// Something that proves nothing: perhaps the silo.
    Answers,
    /// The machine says that nothing listens there.
    Nothing,
    /// No answer: the machine may be down, or not reachable from here.
    Unknown,
}

/// `instance` is the one that the row names.
async fn dial(endpoint: SocketAddr, instance: Option<InstanceId>) -> AtAddress {
    match instance_at(endpoint, DIAL_TIMEOUT).await {
        Ok(Some(there)) if Some(there) == instance => AtAddress::Itself,
        Ok(Some(_)) if instance.is_some() => AtAddress::Another,
        Ok(_) => AtAddress::Answers,
        Err(error) if error.kind() == std::io::ErrorKind::ConnectionRefused => AtAddress::Nothing,
        Err(_) => AtAddress::Unknown,
    }
}

async fn dial_all(
    silos: impl IntoIterator<Item = (SiloAddress, Option<InstanceId>)>,
) -> BTreeMap<SiloAddress, AtAddress> {
    let (mut waiting, mut found) = (silos.into_iter(), BTreeMap::new());
    let mut dials = JoinSet::new();
    loop {
        while dials.len() < DIALS
            && let Some((silo, instance)) = waiting.next()
        {
            dials.spawn(async move { (silo, dial(silo.endpoint(), instance).await) });
        }
        match dials.join_next().await {
            Some(Ok((silo, at))) => {
                found.insert(silo, at);
            }
            Some(Err(_)) => {}
            None => return found,
        }
    }
}

/// What the other silos say about a silo, by what they wrote into the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Others {
    /// One that wrote a heartbeat while it was watched has voted against the silo.
    Accuse,
    /// At least one is Active and wrote a heartbeat; none has voted. Silos probe each other, and
    /// vote against those that do not answer.
    ReachIt,
    /// None of them is Active and writes heartbeats.
    Nobody,
}

impl Others {
    fn about(entry: &MembershipEntry, inspection: &Inspection, seen: &Watched) -> Self {
        let is_alive = |silo: &SiloAddress| seen.moved.contains_key(silo);
        let expiration = inspection.settings().death_vote_expiration;
        let counts = |vote: &Suspicion| inspection.now.since(vote.at) <= expiration;
        let votes = &entry.suspicions;
        if votes.iter().any(|v| is_alive(&v.accuser) && counts(v)) {
            return Self::Accuse;
        }
        let mut rows = inspection.snapshot.rows.entries();
        match rows.any(|e| e.status == SiloStatus::Active && is_alive(&e.address)) {
            true => Self::ReachIt,
            false => Self::Nobody,
        }
    }
}

/// A silo that is not Dead and wrote no heartbeat while it was watched.
#[derive(Debug)]
pub(super) struct Silent {
    pub silo: SiloAddress,
    /// How long ago it wrote its last heartbeat, by its clock.
    pub silence: Duration,
    /// Longer than the other silos wait before they call it stale.
    pub stale: bool,
    pub at: AtAddress,
    pub others: Others,
}

impl Silent {
    /// It is certainly gone.
    pub fn is_ghost(&self) -> bool {
        self.stale && self.at == AtAddress::Nothing && self.others != Others::ReachIt
    }
}

/// The silos that wrote no heartbeat. Without watching (`quick`), those whose last one is stale.
pub(super) async fn silent(inspection: &Inspection, seen: &Watched, quick: bool) -> Vec<Silent> {
    let is_silent = |e: &&MembershipEntry| {
        e.status != SiloStatus::Dead
            && match quick {
                true => inspection.seems_stale(e),
                false => !seen.moved.contains_key(&e.address),
            }
    };
    let rows: Vec<&MembershipEntry> = inspection
        .snapshot
        .rows
        .entries()
        .filter(is_silent)
        .collect();
    let at = dial_all(rows.iter().map(|e| (e.address, Some(e.instance_id)))).await;
    rows.into_iter()
        .map(|e| Silent {
            silo: e.address,
            silence: inspection.silence(e) + seen.lasted,
            stale: inspection.seems_stale(e),
            at: at.get(&e.address).copied().unwrap_or(AtAddress::Unknown),
            others: Others::about(e, inspection, seen),
        })
        .collect()
}

/// Reports the silent silos; gives the number of problems.
pub(super) fn report_all(
    inspection: &Inspection,
    seen: &Watched,
    silent: &[Silent],
    quick: bool,
    session: &mut Session,
) -> usize {
    let mut bad = 0;
    let alive = silent.iter().any(|s| s.at != AtAddress::Nothing);
    if !quick && seen.moved.is_empty() && silent.len() > 1 && alive {
        bad += 1;
        let text = format!(
            "none of {} has written a heartbeat: look at the store first (space, memory, the silos' \
             permission to write), and into their logs. No silo is called a ghost for it",
            count(silent.len(), "silo")
        );
        report(session, Finding::Bad, "store", &text);
    }
    for one in silent {
        let (silo, silence) = (one.silo, span(one.silence));
        bad += 1;
        let (what, text) = match (one.at, one.stale) {
            (AtAddress::Nothing, true) if one.others == Others::ReachIt => (
                "silent",
                format!(
                    "{silo} has not written a heartbeat for {silence}, and nothing listens at its \
                     address as seen from this machine; but no living silo has voted against it, \
                     so they reach it, or cannot decide. It is not evicted; if you know that it is \
                     gone: `membership evict`"
                ),
            ),
            (AtAddress::Nothing, true) => (
                "ghost",
                format!(
                    "{silo} has not written a heartbeat for {silence}, and nothing listens at its \
                     address: evict it with --repair, or start a silo, which votes it out"
                ),
            ),
            (AtAddress::Nothing, false) => (
                "silent",
                format!(
                    "nothing listens at the address of {silo}, whose last heartbeat is {silence} old: \
                     the other silos will vote it out, or run this again when the heartbeat is older \
                     than {}",
                    span(inspection.settings().staleness())
                ),
            ),
            (AtAddress::Itself, _) => (
                "silent",
                format!(
                    "{silo} has not written a heartbeat for {silence}, but answers at its address \
                     and proves its key: it is alive and cut off from the table, or its log says \
                     that the table is not the one it knew. It is not evicted"
                ),
            ),
            (AtAddress::Another, _) => (
                "silent",
                format!(
                    "{silo} has not written a heartbeat for {silence}, and another process answers \
                     at its address. It is not evicted; if you know that it is gone: \
                     `membership evict`"
                ),
            ),
            (AtAddress::Answers, _) => (
                "silent",
                format!(
                    "{silo} has not written a heartbeat for {silence}, but its address answers: it \
                     may be alive and cut off from the table, or stand still. It is not evicted"
                ),
            ),
            (AtAddress::Unknown, _) => (
                "silent",
                format!(
                    "{silo} has not written a heartbeat for {silence}, and its address cannot be \
                     reached from this machine, so it may be alive. It is not evicted; if you know \
                     that it is gone: `membership evict`"
                ),
            ),
        };
        report(session, Finding::Bad, what, &text);
    }
    if silent.is_empty() {
        let text = match quick {
            true => "none: no heartbeat is stale",
            false => "none: every silo that is not Dead writes its heartbeat",
        };
        report(session, Finding::Good, "ghosts", text);
    }
    bad
}

/// A row that cannot be decoded.
#[derive(Debug)]
pub(super) struct DamagedRow {
    pub key: String,
    /// The key names a silo that wrote a heartbeat meanwhile, or whose address answers.
    pub may_be_alive: bool,
}

/// The damaged rows.
pub(super) async fn damaged(inspection: &Inspection, seen: &Watched) -> Vec<DamagedRow> {
    let rows = inspection.snapshot.rows.undecodable();
    let keys: Vec<String> = rows.map(|r| r.key().to_owned()).collect();
    let silos = keys.iter().filter_map(|key| key.parse().ok());
    let at = dial_all(silos.map(|silo| (silo, None))).await;
    keys.into_iter()
        .map(|key| {
            let silo: Option<SiloAddress> = key.parse().ok();
            let may_be_alive = silo.is_some_and(|silo| {
                seen.moved.contains_key(&silo) || at.get(&silo) != Some(&AtAddress::Nothing)
            });
            DamagedRow { key, may_be_alive }
        })
        .collect()
}

/// Reports the damaged rows; gives the number of problems.
pub(super) fn report_damaged(
    inspection: &Inspection,
    damaged: &[DamagedRow],
    session: &mut Session,
) -> usize {
    let rows = &inspection.snapshot.rows;
    for one in damaged {
        let why = rows.by_key(&one.key).and_then(|r| r.undecodable());
        let text = format!(
            "{} cannot be decoded: {}{}",
            clean(&one.key),
            clean(why.unwrap_or_default()),
            match one.may_be_alive {
                true => ". Its silo may be alive, and stops when the row is removed",
                false => "",
            }
        );
        report(session, Finding::Bad, "row", &text);
    }
    // A damaged row is one that the last commit did not leave, and is reported already.
    if !damaged.is_empty() {
        return damaged.len();
    }
    if inspection.snapshot.is_as_committed() == Some(false) {
        let text = format!(
            "they are not those of version {}: somebody changed or removed some without a commit. Undo \
             that before the next commit; after it, a silo without a row stops, and where a row was \
             changed all silos report table_rolled_back: then restart all of them",
            inspection.snapshot.version()
        );
        report(session, Finding::Bad, "rows", &text);
        return 1;
    }
    let text = format!("{}, none damaged", count(rows.len(), "row"));
    report(session, Finding::Good, "rows", &text);
    0
}

#[cfg(test)]
mod tests {
    use membership_core::{
        Evidence, Heartbeats, Row, SharedSettings, Snapshot, TableId, VersionRow,
    };

    use super::*;

    fn silo(number: u16) -> SiloAddress {
        SiloAddress::new([127, 0, 0, 1].into(), number, 1)
    }

    /// A table of two Active silos, with this vote of the second one against the first.
    fn inspection(vote: Option<WallTime>) -> Inspection {
        let row = |number: u16| {
            let instance = InstanceId::new(number.into());
            let mut row = MembershipEntry::new(silo(number), instance, WallTime::default());
            row.status = SiloStatus::Active;
            if let Some(at) = vote.filter(|_| number == 1) {
                let (why, saw) = (Default::default(), Evidence::missed(3, 1_000));
                row.suspicions = vec![Suspicion::new(silo(2), at, why, saw)];
            }
            Row::encode(row)
        };
        let version = VersionRow::initial(TableId::new(1), SharedSettings::default());
        let token = version.token(&[]);
        Inspection {
            snapshot: Snapshot::new(token, version, (1..=2).map(row).collect()),
            heartbeats: Heartbeats::default(),
            now: clock::wall(),
        }
    }

    fn silent(inspection: &Inspection, seen: &Watched) -> Silent {
        let entry = inspection.snapshot.rows.get(&silo(1)).unwrap();
        Silent {
            silo: silo(1),
            silence: Duration::from_secs(3_600),
            stale: true,
            at: AtAddress::Nothing,
            others: Others::about(entry, inspection, seen),
        }
    }

    #[test]
    fn a_silo_that_living_silos_reach_is_no_ghost_though_this_machine_finds_nothing_there() {
        let now = clock::wall();
        let expired = now.minus(SharedSettings::default().death_vote_expiration * 2);
        let mut seen = Watched::default();
        for vote in [None, Some(now)] {
            assert!(silent(&inspection(vote), &seen).is_ghost(), "nobody lives");
        }
        let heartbeat = Heartbeat {
            counter: 2,
            at: now,
        };
        seen.moved.insert(silo(2), (heartbeat, now));
        for (vote, is_ghost) in [(None, false), (Some(expired), false), (Some(now), true)] {
            let found = silent(&inspection(vote), &seen);
            assert_eq!(found.is_ghost(), is_ghost, "{found:?}");
        }
    }
}
