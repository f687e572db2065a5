//! `membership why`: why one silo is dead, from its row.

use std::time::Duration;

use membership_core::{
    CauseOfDeath, MembershipEntry, RollCount, SiloAddress, SiloStatus, Suspicion, SuspicionReason,
};
use serde_json::json;

use crate::exit::{Exit, Failure};
use crate::find;
use crate::inspect::Inspection;
use crate::out::{Out, Paint};
use crate::session::{Session, TableArgs};
use crate::text::{ago, clean, count, span};

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
    let name = if entry.info.silo_name.is_empty() {
        String::new()
    } else {
        format!(" ({})", clean(&entry.info.silo_name))
    };
    let Some(death) = &entry.death else {
        let text = out.paint(
            Paint::Bold,
            format!(
                "{}{name} is not dead: it is {}",
                entry.address, entry.status
            ),
        );
        return out.line(text);
    };
    let text = out.paint(
        Paint::Bold,
        format!("{}{name} is Dead, {}", entry.address, death.cause.as_str()),
    );
    out.line(text);
    out.line(match &death.cause {
        CauseOfDeath::Left => "It left by itself, or its join failed.".to_owned(),
        CauseOfDeath::Voted => format!(
            "{} voted that it does not answer.",
            count(accusers(entry), "silo")
        ),
        CauseOfDeath::Superseded => match newer(entry, inspection) {
            Some(newer) => format!("{newer}, a newer process, took its address."),
            None => "A newer process took its address.".to_owned(),
        },
        CauseOfDeath::Evicted { by, reason } => {
            format!("{} evicted it: {}", clean(by), clean(reason))
        }
        CauseOfDeath::Stuck => {
            "It was Joining for longer than a join may take, and was voted out.".to_owned()
        }
        other => other.to_string(),
    });
    let by = death.by.map_or_else(
        || "a person or program that is not a silo".to_owned(),
        |silo| silo.to_string(),
    );
    out.line(format_args!(
        "  declared   {} ({}), in version {}, by {by}",
        death.at,
        ago(death.at, inspection.now),
        death.version
    ));
}

fn newer(entry: &MembershipEntry, inspection: &Inspection) -> Option<SiloAddress> {
    inspection
        .snapshot
        .rows
        .at_endpoint(entry.address.endpoint())
        .map(|e| e.address)
        .find(|a| a.epoch() > entry.address.epoch())
}

fn accusers(entry: &MembershipEntry) -> usize {
    entry.suspicions.len()
}

fn life(entry: &MembershipEntry, inspection: &Inspection, out: &mut Out) {
    let host = if entry.info.host_name.is_empty() {
        String::new()
    } else {
        format!(" on host {}", clean(&entry.info.host_name))
    };
    out.line(format_args!(
        "  started    {} ({}){host}",
        entry.start_time,
        ago(entry.start_time, inspection.now)
    ));
    match entry.active_since {
        Some(version) => out.line(format_args!("  active     since version {version}")),
        None => out.line("  active     never"),
    }
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
    if entry.suspicions.is_empty() {
        return out.line("  votes      none");
    }
    let needed = inspection
        .snapshot
        .version_row
        .settings
        .num_votes_for_death_declaration;
    out.line(format_args!(
        "  votes      {} (in a large enough cluster {needed} are needed)",
        entry.suspicions.len()
    ));
    roll_call(entry, out);
    for vote in &entry.suspicions {
        out.line(format_args!(
            "    {}  {}  {}",
            vote.at,
            vote.accuser,
            evidence(vote)
        ));
        out.line(format_args!(
            "      its clock: {}",
            voter_clock(vote, inspection)
        ));
    }
}

/// What the other silos said: the roll call of the last vote that has one, on which the others rest
/// as well.
fn roll_call(entry: &MembershipEntry, out: &mut Out) {
    let votes = entry.suspicions.iter();
    let last = votes
        .filter_map(|vote| Some((vote.at, vote.evidence.roll_call?)))
        .max_by_key(|(at, _)| *at);
    if let Some((_, call)) = last {
        out.line(format_args!("  roll call  {}", of_those(&call)));
    }
}

pub(super) fn of_those(call: &RollCount) -> String {
    let asked = count(call.asked as usize, "silo");
    let silent = match call.silent {
        0 => "all answered".to_owned(),
        some => format!("{some} did not answer the call"),
    };
    format!(
        "{asked} asked: {} failed to reach it, {} reached it; {silent}",
        call.failed, call.reached
    )
}

fn evidence(vote: &Suspicion) -> String {
    let e = &vote.evidence;
    let mut parts = Vec::new();
    match vote.reason {
        SuspicionReason::Stuck => parts.push("Joining for too long".to_owned()),
        SuspicionReason::Challenge => parts.push(
            "a challenge, which does not count: no majority was left, and it must show that it writes"
                .to_owned(),
        ),
        _ => parts.push(format!(
            "{} in a row, the last after {}",
            count(e.misses as usize, "missed probe"),
            span(Duration::from_millis(e.timeout_ms))
        )),
    }
    match e.last_answer {
        Some(at) => parts.push(format!(
            "last answer {at} ({} before the vote)",
            span(vote.at.since(at))
        )),
        None if vote.reason != SuspicionReason::Stuck => {
            parts.push("it never answered this silo".to_owned())
        }
        None => {}
    }
    if let Some(via) = e.via {
        parts.push(format!("its consent, written by {via}"));
    }
    if e.stale {
        parts.push("its heartbeat was stale".to_owned());
    }
    parts.push(if e.accuser_health == 0 {
        "voter healthy".to_owned()
    } else {
        format!("voter's own health score {} of 8", e.accuser_health)
    });
    parts.join("; ")
}

/// A voter's clock against this machine's, by its last heartbeat.
fn voter_clock(vote: &Suspicion, inspection: &Inspection) -> String {
    let status = inspection
        .snapshot
        .rows
        .get(&vote.accuser)
        .map(|e| e.status);
    let period = inspection.settings().i_am_alive_period;
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
