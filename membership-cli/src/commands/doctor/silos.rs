//! Which silos are gone, and which may be alive.
//!
//! A ghost is a row that is not Dead whose heartbeat stood still while it was watched for as long as
//! silos wait before they call it stale, at whose address nothing listens, and which the other silos
//! accuse if any of them is Active. A silo that cannot write to the table has a stale heartbeat too:
//! its address still answers. Where this machine's network is another one, the address of a living
//! silo may refuse connections: then only the vote of a living silo counts.

use std::collections::BTreeSet;
use std::time::Duration;

use membership::words::is_lease;
use membership_core::{MembershipEntry, SiloAddress, SiloStatus, Suspicion};

use super::address::{AtAddress, look};
use super::watch::Watched;
use super::{Finding, report};
use crate::inspect::Inspection;
use crate::session::Session;
use crate::text::{count, span};

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
    pub at: AtAddress,
    pub others: Others,
    /// Its heartbeat counter in the store, if it is higher than the silo can have written: the store
    /// ignores its heartbeats then.
    pub impossible: Option<u64>,
}

impl Silent {
    /// It is certainly gone.
    pub fn is_ghost(&self) -> bool {
        self.impossible.is_none()
            && match self.at {
                AtAddress::Nothing => self.others != Others::ReachIt,
                AtAddress::Refused => self.others == Others::Accuse,
                _ => false,
            }
    }
}

/// No silo writes heartbeats more often than this: the shortest period is 500 ms, of which a silo
/// that joins takes a third.
const SHORTEST: Duration = Duration::from_millis(100);
/// Heartbeats that any silo may have written, whatever the clocks say.
const RESERVE: u128 = 1_000;

/// The counter of a silo, if it is higher than the silo can have written since it started.
fn impossible(inspection: &Inspection, entry: &MembershipEntry) -> Option<u64> {
    let heartbeat = inspection.heartbeats.silos.get(&entry.address)?;
    let latest = heartbeat.at.max(inspection.now);
    let most = latest.since(entry.start_time).as_millis() / SHORTEST.as_millis() + RESERVE;
    // A time that was changed too allows any counter, but no silo reaches these.
    let ever = most.min(1 << 40);
    Some(heartbeat.counter).filter(|counter| u128::from(*counter) > ever)
}

/// The silos that wrote no heartbeat, and in a large cluster none for minutes. Without watching (`quick`),
/// those whose last one is stale.
pub(super) async fn silent(inspection: &Inspection, seen: &Watched, quick: bool) -> Vec<Silent> {
    let is_silent = |e: &&MembershipEntry| {
        e.status != SiloStatus::Dead
            && !is_lease(e)
            && match quick {
                true => inspection.seems_stale(e),
                // In a large cluster most write rarely, and not while they are watched.
                false => {
                    !seen.moved.contains_key(&e.address)
                        && (!inspection.beats_rarely() || inspection.seems_stale(e))
                }
            }
    };
    let rows = inspection.snapshot.rows.entries();
    let rows: Vec<&MembershipEntry> = rows.filter(is_silent).collect();
    let silos: BTreeSet<SiloAddress> = rows.iter().map(|e| e.address).collect();
    let at = look(silos, inspection, seen).await;
    rows.into_iter()
        .map(|e| Silent {
            silo: e.address,
            silence: inspection.silence(e) + seen.lasted,
            at: at.get(&e.address).copied().unwrap_or(AtAddress::Unknown),
            others: Others::about(e, inspection, seen),
            impossible: impossible(inspection, e),
        })
        .collect()
}

/// Reports the rows that are no silos'. They write no heartbeats, and must stay.
pub(super) fn report_arbiters(inspection: &Inspection, session: &mut Session) {
    for row in inspection.snapshot.rows.entries().filter(|e| is_lease(e)) {
        let text = format!(
            "{} is no silo: it says which members without a store go on after a split, and must stay as \
             long as they run",
            row.address
        );
        report(session, Finding::Note, "arbiter", &text);
    }
}

/// Reports the silent silos; gives the number of problems.
pub(super) fn report_all(
    seen: &Watched,
    silent: &[Silent],
    quick: bool,
    session: &mut Session,
) -> usize {
    let mut bad = 0;
    let some_may_live = silent.iter().any(|s| !s.is_ghost());
    if !quick && seen.moved.is_empty() && silent.len() > 1 && some_may_live {
        bad += 1;
        let text = format!(
            "none of {} has written a heartbeat: look at the store first (space, memory, the silos' \
             permission to write), and into their logs. Where they say table_replaced or \
             table_rolled_back, restart all silos together, because those that still run admit \
             nobody. No silo is called a ghost for it",
            count(silent.len(), "silo")
        );
        report(session, Finding::Bad, "store", &text);
    }
    bad += silent.len();
    for (what, text) in described(silent) {
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

/// At most this many silos are named in a line.
const NAMES: usize = 8;

/// What is said of the silent silos; of those that are alike, once.
fn described(silent: &[Silent]) -> Vec<(&'static str, String)> {
    let mut groups: Vec<(&'static str, String, Vec<&Silent>)> = Vec::new();
    let mut told = Vec::new();
    for one in silent {
        if let Some(counter) = one.impossible {
            told.push(("counter", impossible_counter(one, counter)));
            continue;
        }
        let (what, rest) = about(one);
        match groups.iter_mut().find(|(.., known, _)| *known == rest) {
            Some((.., alike)) => alike.push(one),
            None => groups.push((what, rest, vec![one])),
        }
    }
    told.extend(groups.into_iter().map(|(what, rest, alike)| {
        let names = alike.iter().take(NAMES).map(|s| s.silo.to_string());
        let mut names = names.collect::<Vec<_>>().join(", ");
        if let Some(more @ 1..) = alike.len().checked_sub(NAMES) {
            names.push_str(&format!(" and {more} more"));
        }
        let shortest = alike.iter().map(|s| s.silence).min().unwrap_or_default();
        let (each_of, at_least) = match alike.len() {
            1 => ("", ""),
            _ => ("each of ", "at least "),
        };
        let silence = span(shortest);
        let text =
            format!("{each_of}{names} has not written a heartbeat for {at_least}{silence}{rest}");
        (what, text)
    }));
    told
}

const GONE: &str = "if you know that it is gone: `membership evict`";

fn impossible_counter(one: &Silent, counter: u64) -> String {
    let answers = match one.at {
        AtAddress::Itself => ", though it answers at its address and proves its key",
        _ => "",
    };
    format!(
        "the heartbeat counter of {} is {counter}, which is more than it can have written: \
         somebody changed it, and the store ignores the silo's heartbeats, which are \
         lower{answers}. Set it to 0 in the store, or restart the silo. It is not evicted; {GONE}",
        one.silo
    )
}

/// What else is said of a silo that has written no heartbeat.
fn about(one: &Silent) -> (&'static str, String) {
    if one.is_ghost() {
        let text = ", and nothing listens at its address: evict it with --repair, or start a silo, \
                    which votes it out";
        return ("ghost", text.to_owned());
    }
    let text = match one.at {
        AtAddress::Nothing | AtAddress::Refused if one.others == Others::ReachIt => format!(
            ", and nothing listens at its address as seen from this machine; but no living silo has \
             voted against it, so they reach it, or cannot decide. It is not evicted; {GONE}"
        ),
        AtAddress::Nothing | AtAddress::Refused => format!(
            ", and its address refuses connections from this machine. Not known whether it is gone: \
             no silo has answered this machine. Are you on the silos' network? It is not evicted; \
             {GONE}"
        ),
        AtAddress::Itself => {
            ", but answers at its address and proves its key: it is alive and cut \
             off from the table, or its log says that the table is not the one it knew. It is not \
             evicted"
                .to_owned()
        }
        AtAddress::Another => {
            format!(", and another process answers at its address. It is not evicted; {GONE}")
        }
        AtAddress::Answers => ", but its address answers: it may be alive and cut off from the \
             table, or stand still. It is not evicted"
            .to_owned(),
        AtAddress::Unknown => format!(
            ", and its address cannot be reached from this machine, so it may be alive. It is not \
             evicted; {GONE}"
        ),
    };
    ("silent", text)
}

/// Reports whether any silo is Active; gives the number of problems.
pub(super) fn alive(
    inspection: &Inspection,
    seen: &Watched,
    quick: bool,
    session: &mut Session,
) -> usize {
    let rows = &inspection.snapshot.rows;
    let active = rows.entries().filter(|e| e.status == SiloStatus::Active);
    let active: Vec<SiloAddress> = active.map(|e| e.address).collect();
    let writing = active.iter().filter(|silo| seen.moved.contains_key(silo));
    let writing = writing.count();
    let (finding, text) = match (active.len(), writing) {
        (0, _) if rows.entries().all(is_lease) => (Finding::Note, "the table has none".to_owned()),
        (0, _) => (Finding::Bad, "none is Active: start some".to_owned()),
        (all, _) if quick => {
            let text = format!("{all} Active; not checked whether they live, because of --quick");
            (Finding::Note, text)
        }
        (all, 0) => (
            Finding::Note,
            format!("{all} Active, none of which writes heartbeats"),
        ),
        (all, some) => (
            Finding::Good,
            format!("{some} of {all} Active write heartbeats"),
        ),
    };
    report(session, finding, "silos", &text);
    usize::from(matches!(finding, Finding::Bad))
}

#[cfg(test)]
mod tests {
    use membership_core::{
        Evidence, Heartbeat, Heartbeats, InstanceId, Row, SharedSettings, Snapshot, TableId,
        VersionRow, WallTime,
    };

    use super::*;
    use crate::clock;

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
            at: AtAddress::Nothing,
            others: Others::about(entry, inspection, seen),
            impossible: None,
        }
    }

    #[tokio::test]
    async fn the_row_of_an_arbiter_is_no_silo() {
        let mut row = MembershipEntry::new(silo(1), InstanceId::new(1), WallTime::default());
        row.status = SiloStatus::Joining;
        row.info.silo_name = "lease".to_owned();
        for name in ["lease", "downed", "side"] {
            row.info.metadata.insert(name.to_owned(), String::new());
        }
        for (name, silent) in [("lease", 0), ("orders", 1)] {
            row.info.silo_name = name.to_owned();
            let mut inspection = inspection(None);
            let snapshot = &inspection.snapshot;
            let (token, version) = (snapshot.token.clone(), snapshot.version_row.clone());
            let rows = [Row::encode(row.clone())].into_iter().collect();
            inspection.snapshot = Snapshot::new(token, version, rows);
            let found = super::silent(&inspection, &Watched::default(), false).await;
            assert_eq!(found.len(), silent, "{name}");
        }
    }

    #[test]
    fn a_silo_that_living_silos_reach_is_no_ghost_though_this_machine_finds_nothing_there() {
        let now = clock::wall();
        let expired = now.minus(SharedSettings::default().death_vote_expiration * 2);
        let mut seen = Watched::default();
        for vote in [None, Some(now)] {
            assert!(silent(&inspection(vote), &seen).is_ghost(), "nobody lives");
            let changed = Silent {
                impossible: Some(1 << 50),
                ..silent(&inspection(vote), &seen)
            };
            assert!(!changed.is_ghost(), "its heartbeats are ignored");
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

    #[test]
    fn a_refusal_that_proves_nothing_needs_the_vote_of_a_living_silo() {
        let now = clock::wall();
        let mut seen = Watched::default();
        let refused = |vote, seen: &Watched| Silent {
            at: AtAddress::Refused,
            ..silent(&inspection(vote), seen)
        };
        assert!(!refused(None, &seen).is_ghost(), "nobody lives");
        let heartbeat = Heartbeat {
            counter: 2,
            at: now,
        };
        seen.moved.insert(silo(2), (heartbeat, now));
        assert!(!refused(None, &seen).is_ghost(), "nobody votes");
        assert!(refused(Some(now), &seen).is_ghost());
    }
}
