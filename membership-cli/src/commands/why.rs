//! `membership why`: why one silo is dead, from its row.

use std::time::Duration;

use membership::words;
use membership_core::{MembershipEntry, SiloStatus, Suspicion};
use serde_json::json;

use crate::exit::{Exit, Failure};
use crate::find;
use crate::inspect::Inspection;
use crate::out::{Out, Paint};
use crate::session::{Session, TableArgs};
use crate::text::{ago, clean, span};

/// Show why a silo is dead: who voted, when, on what evidence; or who suspects it now
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// ip:port@epoch, ip:port (the latest there), or a silo's name
    silo: String,
    #[command(flatten)]
    table: TableArgs,
    /// One JSON object
    #[arg(long)]
    json: bool,
}

pub(crate) async fn run(args: Args, session: &mut Session) -> Result<Exit, Failure> {
    let table = session.open(&args.table).await?;
    let inspection = Inspection::of(table.as_ref()).await?;
    let found = find::silos(&inspection.snapshot, &args.silo);
    // A dead silo first: the question is why it died.
    let entry = found
        .iter()
        .rfind(|e| e.status == SiloStatus::Dead)
        .or(found.last())
        .copied();
    let Some(entry) = entry else {
        return Err(find::not_found(&inspection.snapshot, &args.silo));
    };
    let out = &mut session.out;
    if args.json {
        let heartbeat = inspection.heartbeats.silos.get(&entry.address);
        out.line(json!({"silo": entry.address, "status": entry.status, "death": entry.death, "votes": entry.suspicions, "heartbeat": heartbeat, "entry": entry}));
        return Ok(Exit::Ok);
    }
    explain(entry, &inspection, out);
    for other in found.iter().filter(|o| o.address != entry.address) {
        out.line(format_args!(
            "there is also {} ({}): give its full address",
            other.address, other.status
        ));
    }
    Ok(Exit::Ok)
}

/// Everything that its row tells of one silo.
pub(super) fn explain(entry: &MembershipEntry, inspection: &Inspection, out: &mut Out) {
    headline(entry, inspection, out);
    life(entry, inspection, out);
    votes(entry, inspection, out);
}

fn headline(entry: &MembershipEntry, inspection: &Inspection, out: &mut Out) {
    let text = out.paint(Paint::Bold, clean(&words::headline(entry)));
    out.line(text);
    if let Some(death) = &entry.death {
        let rows = &inspection.snapshot.rows;
        out.line(clean(&words::cause(entry, death, rows)));
        out.line(format_args!(
            "  declared   {}",
            words::declared(death, inspection.now)
        ));
    }
}

fn life(entry: &MembershipEntry, inspection: &Inspection, out: &mut Out) {
    let started = clean(&words::started(entry, inspection.now));
    out.line(format_args!("  started    {started}"));
    out.line(format_args!("  active     {}", words::active(entry)));
    match inspection.heartbeats.silos.get(&entry.address) {
        Some(heartbeat) => {
            let before = entry
                .death
                .as_ref()
                .filter(|d| d.at > heartbeat.at)
                .map(|d| format!(", {} before its death", span(d.at.since(heartbeat.at))));
            let before = before.unwrap_or_default();
            out.line(format_args!(
                "  heartbeat  {} ({}), the {}{before}",
                heartbeat.at,
                ago(heartbeat.at, inspection.now),
                nth(heartbeat.counter)
            ));
        }
        None => out.line("  heartbeat  none is stored"),
    }
}

fn nth(n: u64) -> String {
    let ending = match (n % 100, n % 10) {
        (11..=13, _) => "th",
        (_, 1) => "st",
        (_, 2) => "nd",
        (_, 3) => "rd",
        _ => "th",
    };
    format!("{n}{ending}")
}

fn votes(entry: &MembershipEntry, inspection: &Inspection, out: &mut Out) {
    let settings = &inspection.snapshot.version_row.settings;
    out.line(format_args!(
        "  votes      {}",
        words::votes(entry, settings)
    ));
    if let Some(call) = words::last_call(&entry.suspicions) {
        out.line(format_args!("  roll call  {}", words::roll_call(&call)));
    }
    for vote in &entry.suspicions {
        out.line(format_args!(
            "    {}  {}  {}",
            vote.at,
            vote.accuser,
            words::evidence(vote)
        ));
        out.line(format_args!(
            "      its clock: {}",
            voter_clock(vote, inspection)
        ));
    }
}

/// A voter's clock against this machine's, by its last heartbeat.
fn voter_clock(vote: &Suspicion, inspection: &Inspection) -> String {
    let status = inspection
        .snapshot
        .rows
        .get(&vote.accuser)
        .map(|e| e.status);
    let period = inspection.heartbeat_period();
    match (inspection.heartbeats.silos.get(&vote.accuser), status) {
        (Some(heartbeat), Some(status)) if status != SiloStatus::Dead => {
            if heartbeat.at > inspection.now.plus(Duration::from_secs(1)) {
                format!(
                    "at least {} ahead of this machine's",
                    span(heartbeat.at.since(inspection.now))
                )
            } else if inspection.now.since(heartbeat.at) > period * 2 {
                format!(
                    "its last heartbeat was {}: its clock is behind, or it is silent now",
                    ago(heartbeat.at, inspection.now)
                )
            } else {
                format!(
                    "within {} of this machine's (last heartbeat {})",
                    span(period),
                    ago(heartbeat.at, inspection.now)
                )
            }
        }
        (_, Some(status)) => format!("unknown, it is {status} now"),
        (_, None) => "unknown, it has no row now".to_owned(),
    }
}
