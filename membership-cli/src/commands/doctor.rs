//! `membership doctor`: finds what is wrong with a table, and repairs what it can.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use membership_core::{
    CommitId, CommitOutcome, CommitRequest, Durability, Guarantees, Heartbeat, MembershipTable,
    Recency, RowChange, SiloAddress, SiloStatus, Snapshot, TableError, TableErrorKind, TableExt,
    VersionToken, encoding,
};

use super::doctor_repair::repair;
use crate::clock;
use crate::exit::{Exit, Failure};
use crate::inspect::Inspection;
use crate::out::Paint;
use crate::session::{Session, TableArgs};
use crate::text::{clean, count, span};

/// Check the table: reachable, guarantees, permissions, layout, clocks, ghosts, damaged rows
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    table: TableArgs,
    /// Remove damaged rows and evict ghosts; asks before each
    #[arg(long)]
    repair: bool,
    /// Do not ask
    #[arg(long, short, requires = "repair")]
    yes: bool,
    /// Do not watch heartbeats for a period and a half; then ghosts are found by clocks alone
    #[arg(long)]
    quick: bool,
}

/// Clocks that differ by more than this confuse people who read times. The protocol compares none.
const SKEW: Duration = Duration::from_secs(2);

pub(crate) async fn run(args: Args, session: &mut Session) -> Result<Exit, Failure> {
    let table = session.open(&args.table).await?;
    let started = Instant::now();
    let inspection = match Inspection::of(table.as_ref()).await {
        Ok(inspection) => inspection,
        Err(failure) => {
            let what = if failure.exit == Exit::Unusable {
                "usable"
            } else {
                "reachable"
            };
            report(session, Finding::Bad, what, &failure.message);
            return Err(failure);
        }
    };
    report(
        session,
        Finding::Good,
        "reachable",
        &format!("{} answered in {}", table.store(), span(started.elapsed())),
    );
    report(
        session,
        Finding::Note,
        "guarantees",
        &guarantees(table.guarantees()),
    );
    let mut bad = 0;
    bad += permitted(table.as_ref(), &inspection.snapshot, session).await;
    bad += layout(&inspection.snapshot, session);
    let seen = if args.quick {
        Watched::default()
    } else {
        watch(table.as_ref(), &inspection, session).await?
    };
    bad += clocks(&inspection, &seen, session);
    let ghosts = ghosts(&inspection, &seen, args.quick);
    for (silo, silence) in &ghosts {
        report(
            session,
            Finding::Bad,
            "ghost",
            &format!(
                "{silo} has not written a heartbeat for {}: evict it with --repair, or start a silo, which votes it out",
                span(*silence)
            ),
        );
    }
    if ghosts.is_empty() {
        report(
            session,
            Finding::Good,
            "ghosts",
            "none: every silo that is not Dead writes its heartbeat",
        );
    }
    let damaged: Vec<String> = inspection
        .snapshot
        .rows
        .undecodable()
        .map(|r| r.key().to_owned())
        .collect();
    for row in inspection.snapshot.rows.undecodable() {
        let text = format!(
            "{} cannot be decoded: {}",
            clean(row.key()),
            clean(row.undecodable().unwrap_or_default())
        );
        report(session, Finding::Bad, "row", &text);
    }
    if damaged.is_empty() {
        report(
            session,
            Finding::Good,
            "rows",
            &format!(
                "{}, none damaged",
                count(inspection.snapshot.rows.len(), "row")
            ),
        );
    }
    bad += ghosts.len() + damaged.len();
    if args.repair {
        let evicted: &[_] = if args.quick { &[] } else { &ghosts };
        if args.quick && !ghosts.is_empty() {
            session
                .out
                .line("--quick judges ghosts by clocks alone and evicts none: leave --quick out");
        }
        bad -= repair(
            table.as_ref(),
            &inspection,
            evicted,
            &damaged,
            args.yes,
            session,
        )
        .await?;
    }
    if bad == 0 {
        return Ok(Exit::Ok);
    }
    let hint = if args.repair || ghosts.len() + damaged.len() == 0 {
        ""
    } else {
        "; --repair removes damaged rows and evicts ghosts"
    };
    Err(Failure::new(
        Exit::Failed,
        format!("{} found{hint}", count(bad, "problem")),
    ))
}

enum Finding {
    Good,
    Note,
    Bad,
}

fn report(session: &mut Session, finding: Finding, what: &str, text: &str) {
    let (mark, paint) = match finding {
        Finding::Good => ("ok  ", Paint::Green),
        Finding::Note => ("note", Paint::Yellow),
        Finding::Bad => ("BAD ", Paint::Red),
    };
    let mark = session.out.paint(paint, mark);
    session
        .out
        .line(format_args!("{mark}  {what:<10} {}", clean(text)));
}

/// What the store guarantees, as it is set up.
fn guarantees(guarantees: Guarantees) -> String {
    let reads = match guarantees.reads {
        Recency::Linearizable => "reads are linearizable",
        Recency::MonotonicPerClient => "each silo's own reads never go back",
    };
    let commits = match guarantees.durability {
        Durability::Kept => "acknowledged commits survive a crash or failover of the store",
        Durability::MayBeLost => {
            "a failover of the store may lose acknowledged commits; silos then report table_rolled_back"
        }
    };
    format!("{reads}; {commits}")
}

/// Sends a commit that must conflict, because its token is one version old. A store that refuses it
/// for another reason reports that reason.
async fn permitted(table: &dyn MembershipTable, now: &Snapshot, session: &mut Session) -> usize {
    let row = &now.version_row;
    let Some(before) = row.version.checked_sub(1) else {
        report(
            session,
            Finding::Note,
            "permitted",
            "to read; not known whether to write, because the table has no commit yet",
        );
        return 0;
    };
    let id = row.record(before).map_or(CommitId::new(0), |r| r.id);
    let expected = VersionToken::new(row.table_id, before, id, now.token.store());
    let changes = vec![RowChange::Remove("doctor".to_owned())];
    let request = CommitRequest::of_changes(expected, CommitId::new(clock::random()), changes);
    match table.commit(&request).await {
        Ok(CommitOutcome::Conflict(_)) => {
            report(session, Finding::Good, "permitted", "to read and to write");
            0
        }
        Ok(_) => {
            report(
                session,
                Finding::Bad,
                "permitted",
                "the store accepted a stale commit: its compare-and-swap does not work",
            );
            1
        }
        Err(error) => {
            report(session, Finding::Bad, "permitted", &cannot_write(&error));
            1
        }
    }
}

fn cannot_write(error: &TableError) -> String {
    match error.kind() {
        TableErrorKind::PermissionDenied => format!("to read, but not to write: {error}"),
        _ => format!("a commit fails: {error}"),
    }
}

fn layout(now: &Snapshot, session: &mut Session) -> usize {
    let row = &now.version_row;
    let text = format!(
        "{} (readers need {}, this program knows {})",
        row.layout,
        row.min_layout,
        encoding::LAYOUT
    );
    let newer = row.layout > encoding::LAYOUT;
    report(
        session,
        if newer { Finding::Note } else { Finding::Good },
        "layout",
        &text,
    );
    0
}

/// The heartbeats that moved while they were watched.
#[derive(Default)]
struct Watched {
    /// Written meanwhile, with the time at which they were seen.
    moved: BTreeMap<SiloAddress, (Heartbeat, membership_core::WallTime)>,
}

/// Watches heartbeats until each has moved, for at most a period and a half.
async fn watch(
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
    let until = Instant::now() + period * 3 / 2;
    if session.err.is_terminal() {
        session.err.line(format_args!(
            "watching heartbeats for up to {} …",
            span(period * 3 / 2)
        ));
    }
    while seen.moved.len() < waiting.len() && Instant::now() < until {
        tokio::time::sleep((period / 20).clamp(Duration::from_millis(50), Duration::from_secs(1)))
            .await;
        let (_, heartbeats) = table.read_all().await?;
        let now = clock::wall();
        for silo in &waiting {
            if let Some(heartbeat) = heartbeats.silos.get(silo)
                && heartbeat.counter > inspection.heartbeats.counter(silo)
            {
                seen.moved.entry(*silo).or_insert((*heartbeat, now));
            }
        }
    }
    Ok(seen)
}

/// A heartbeat that was just written shows the clock of its writer.
fn clocks(inspection: &Inspection, seen: &Watched, session: &mut Session) -> usize {
    let mut skewed = 0;
    let mut worst = Duration::ZERO;
    for (silo, (heartbeat, at)) in &seen.moved {
        let apart = heartbeat.at.distance(*at);
        worst = worst.max(apart);
        if apart > SKEW {
            skewed += 1;
            let direction = if heartbeat.at > *at {
                "ahead of"
            } else {
                "behind"
            };
            report(
                session,
                Finding::Bad,
                "clock",
                &format!(
                    "{silo}'s clock is {} {direction} this machine's: check its time service",
                    span(apart)
                ),
            );
        }
    }
    // Without watching, only a heartbeat from the future says something about a clock.
    for (silo, heartbeat) in inspection
        .heartbeats
        .silos
        .iter()
        .filter(|(silo, _)| !seen.moved.contains_key(silo))
    {
        if heartbeat.at > inspection.now.plus(SKEW) {
            skewed += 1;
            report(
                session,
                Finding::Bad,
                "clock",
                &format!(
                    "{silo}'s clock was {} ahead of this machine's",
                    span(heartbeat.at.since(inspection.now))
                ),
            );
        }
    }
    if skewed == 0 {
        let text = if seen.moved.is_empty() {
            "no heartbeat is in the future".to_owned()
        } else {
            format!("agree to {}", span(worst))
        };
        report(session, Finding::Good, "clocks", &text);
    }
    skewed
}

/// Silos that are not Dead and have stopped writing heartbeats, with how long ago.
fn ghosts(inspection: &Inspection, seen: &Watched, quick: bool) -> Vec<(SiloAddress, Duration)> {
    let silent = |silo: &SiloAddress| quick || !seen.moved.contains_key(silo);
    let rows = inspection
        .snapshot
        .rows
        .entries()
        .filter(|e| inspection.seems_stale(e) && silent(&e.address));
    rows.map(|e| (e.address, inspection.silence(e))).collect()
}
