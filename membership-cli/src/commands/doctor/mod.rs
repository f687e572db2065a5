//! `membership doctor`: finds what is wrong with a table, and repairs what it can. It never ends a silo
//! that may be alive.

mod address;
mod certificates;
mod clocks;
mod partition;
mod repair;
mod rows;
mod silos;
mod store;
pub(crate) mod watch;

use std::time::Instant;

use membership_core::{Durability, Guarantees, Recency, Snapshot, encoding};
use serde_json::json;

use self::rows::Undamaged;
use self::store::Writes;
use self::watch::Watched;
use crate::events;
use crate::exit::{Exit, Failure};
use crate::inspect::Inspection;
use crate::out::Paint;
use crate::security::{SecurityArgs, SecurityTable};
use crate::session::{Session, TableArgs};
use crate::text::{clean, count, span};

/// Check the table: reachable, guarantees, permissions, layout, cluster key, clocks, silos, ghosts,
/// certificates, damaged rows; and ask the silos who does not reach whom
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
    /// Do not watch heartbeats; then ghosts are found by clocks alone, certificates are not looked at,
    /// and nothing is repaired
    #[arg(long)]
    quick: bool,
    /// One JSON object per finding, and one with the number of problems
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    security: SecurityArgs,
}

pub(crate) async fn run(args: Args, session: &mut Session) -> Result<Exit, Failure> {
    let security = SecurityTable::default().with(args.security.clone())?;
    let table = session.open(&args.table).await?;
    session.json = args.json;
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
            let text = "nothing else was checked";
            return Err(Failure::new(failure.exit, text));
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
    bad += store::compares(table.as_ref(), &inspection.snapshot, session).await;
    let writes = store::writes(&args.table, session).await;
    bad += usize::from(writes == Writes::Failed);
    bad += layout(&inspection.snapshot, session);
    bad += cluster_key(&inspection.snapshot, session);
    let seen = if args.quick {
        Watched::default()
    } else {
        watch::watch(table.as_ref(), &inspection, session).await?
    };
    bad += clocks::check(&inspection, &seen, session);
    silos::report_arbiters(&inspection, session);
    let silent = silos::silent(&inspection, &seen, args.quick).await;
    bad += silos::alive(&inspection, &seen, args.quick, session);
    bad += silos::report_all(&seen, &silent, args.quick, session);
    bad += certificates::check(&seen, session).await;
    bad += partition::check(&inspection, &args.table.cluster, security, session).await?;
    let damaged = rows::damaged(&inspection, &seen).await;
    let undamaged = Undamaged::of(&inspection.snapshot);
    bad += rows::report_all(&inspection, &damaged, undamaged, session);
    rows::orphans(&inspection, session);
    let repairable = repair::Repairable {
        ghosts: silent.iter().filter(|s| s.is_ghost()).collect(),
        damaged: &damaged,
        undamaged,
    };
    if args.repair {
        bad -= repair::repair(
            table.as_ref(),
            &inspection,
            &repairable,
            &writes,
            &args,
            session,
        )
        .await?;
    }
    if args.json {
        let event = json!({"event": "problems", "count": bad});
        session.out.line(events::timed(event));
    }
    if bad == 0 {
        return Ok(Exit::Ok);
    }
    let hint = if args.repair || repairable.is_empty() {
        ""
    } else {
        "; --repair removes damaged rows and evicts ghosts"
    };
    Err(Failure::new(
        Exit::Failed,
        format!("{} found{hint}", count(bad, "problem")),
    ))
}

#[derive(Clone, Copy)]
enum Finding {
    Good,
    Note,
    Bad,
}

fn report(session: &mut Session, finding: Finding, what: &str, text: &str) {
    let (mark, paint) = match finding {
        Finding::Good => ("ok  ", Paint::Green),
        Finding::Note => ("note", Paint::Dim),
        Finding::Bad => ("BAD ", Paint::Red),
    };
    if session.json {
        let finding = mark.trim().to_lowercase();
        let event = json!({"event": "finding", "finding": finding, "check": what, "text": text});
        return session.out.line(events::timed(event));
    }
    let mark = session.out.paint(paint, mark);
    session
        .out
        .line(format_args!("{mark}  {what:<10} {}", clean(text)));
}

/// Says what a repair did.
fn say(session: &mut Session, text: &str) {
    session.told(
        || json!({"event": "repair", "text": text}),
        || text.to_owned(),
    );
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

/// Newcomers prove with the cluster key that they have read the table: without one nobody joins.
fn cluster_key(now: &Snapshot, session: &mut Session) -> usize {
    let keys = now.version_row.core.cluster_keys();
    let (finding, text) = if keys.is_empty() {
        (
            Finding::Bad,
            "the table has none, so no silo can start: run `membership settings rotate-key` once",
        )
    } else if keys == keys.newest() {
        (Finding::Good, "the table has one")
    } else {
        (
            Finding::Note,
            "several are valid: end the rotation with `membership settings rotate-key --finish`",
        )
    };
    report(session, finding, "key", text);
    usize::from(keys.is_empty())
}
