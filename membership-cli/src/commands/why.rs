//! `membership why`: the story of one death, from the row that tells it.

use std::time::Duration;

use membership_core::{CauseOfDeath, Grounds, MembershipEntry, SiloAddress, SiloStatus, Suspicion};
use serde_json::json;

use crate::exit::{Exit, Failure};
use crate::find;
use crate::look::Look;
use crate::out::{Out, Paint};
use crate::program::{Session, TableArgs};
use crate::text::{ago, clean, count, span};

/// Tell why a silo is dead: who voted, when, on what evidence; or who suspects it now
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
    let look = Look::at(table.as_ref()).await?;
    let found = find::silos(&look.snapshot, &args.silo);
    // Whoever asks why means a death, if there is one.
    let entry = found
        .iter()
        .rfind(|e| e.status == SiloStatus::Dead)
        .or(found.last())
        .copied();
    let Some(entry) = entry else {
        return Err(find::nobody(&look.snapshot, &args.silo));
    };
    let out = &mut session.out;
    if args.json {
        let heartbeat = look.heartbeats.silos.get(&entry.address);
        out.line(json!({"silo": entry.address, "status": entry.status, "death": entry.death, "votes": entry.suspicions, "heartbeat": heartbeat, "entry": entry}));
        return Ok(Exit::Ok);
    }
    headline(entry, &look, out);
    life(entry, &look, out);
    votes(entry, &look, out);
    for other in found.iter().filter(|o| o.address != entry.address) {
        out.line(format_args!(
            "also by that name: {} ({}), ask by its full address",
            other.address, other.status
        ));
    }
    Ok(Exit::Ok)
}

fn headline(entry: &MembershipEntry, look: &Look, out: &mut Out) {
    let name = if entry.silo_name.is_empty() {
        String::new()
    } else {
        format!(" ({})", clean(&entry.silo_name))
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
            "{} found that it does not answer.",
            count(accusers(entry), "silo")
        ),
        CauseOfDeath::Superseded => match newer(entry, look) {
            Some(newer) => format!("{newer}, a newer process, took its address."),
            None => "A newer process took its address.".to_owned(),
        },
        CauseOfDeath::Evicted { by, reason } => {
            format!("{} evicted it: {}", clean(by), clean(reason))
        }
        CauseOfDeath::Stuck => {
            "It stayed Joining for longer than a join may take, and was voted out.".to_owned()
        }
        other => other.to_string(),
    });
    let by = death.by.map_or_else(
        || "a person or program that is no silo".to_owned(),
        |silo| silo.to_string(),
    );
    out.line(format_args!(
        "  declared   {} ({}), in version {}, by {by}",
        death.at,
        ago(death.at, look.now),
        death.version
    ));
}

fn newer(entry: &MembershipEntry, look: &Look) -> Option<SiloAddress> {
    look.snapshot
        .rows
        .at_endpoint(entry.address.endpoint())
        .map(|e| e.address)
        .find(|a| a.epoch() > entry.address.epoch())
}

fn accusers(entry: &MembershipEntry) -> usize {
    entry.suspicions.len()
}

fn life(entry: &MembershipEntry, look: &Look, out: &mut Out) {
    let host = if entry.host_name.is_empty() {
        String::new()
    } else {
        format!(" on host {}", clean(&entry.host_name))
    };
    out.line(format_args!(
        "  started    {} ({}){host}",
        entry.start_time,
        ago(entry.start_time, look.now)
    ));
    match entry.active_since {
        Some(version) => out.line(format_args!("  active     since version {version}")),
        None => out.line("  active     never"),
    }
    match look.heartbeats.silos.get(&entry.address) {
        Some(beat) => {
            let before = entry
                .death
                .as_ref()
                .filter(|d| d.at > beat.at)
                .map(|d| format!(", {} before its death", span(d.at.since(beat.at))));
            let before = before.unwrap_or_default();
            out.line(format_args!(
                "  heartbeat  {} ({}), the {}{before}",
                beat.at,
                ago(beat.at, look.now),
                nth(beat.counter)
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

fn votes(entry: &MembershipEntry, look: &Look, out: &mut Out) {
    if entry.suspicions.is_empty() {
        return out.line("  votes      none");
    }
    let needed = look
        .snapshot
        .version_row
        .settings
        .num_votes_for_death_declaration;
    out.line(format_args!(
        "  votes      {} (in a large enough cluster {needed} are needed)",
        entry.suspicions.len()
    ));
    for vote in &entry.suspicions {
        out.line(format_args!(
            "    {}  {}  {}",
            vote.at,
            vote.accuser,
            evidence(vote)
        ));
        out.line(format_args!("      its clock: {}", voter_clock(vote, look)));
    }
}

fn evidence(vote: &Suspicion) -> String {
    let e = &vote.evidence;
    let mut parts = Vec::new();
    match vote.grounds {
        Grounds::Stuck => parts.push("Joining for too long".to_owned()),
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
        None if vote.grounds != Grounds::Stuck => {
            parts.push("it never answered this silo".to_owned())
        }
        None => {}
    }
    if let Some(via) = e.via {
        parts.push(format!("probed on behalf of {via}"));
    }
    if e.stale {
        parts.push("its heartbeat stood still".to_owned());
    }
    parts.push(if e.accuser_health == 0 {
        "accuser healthy".to_owned()
    } else {
        format!("accuser's own health {} of 8", e.accuser_health)
    });
    parts.join("; ")
}

/// How far a voter's clock can be trusted: what its own last heartbeat says, against this machine's clock.
fn voter_clock(vote: &Suspicion, look: &Look) -> String {
    let status = look.snapshot.rows.get(&vote.accuser).map(|e| e.status);
    let period = look.settings().i_am_alive_period;
    match (look.heartbeats.silos.get(&vote.accuser), status) {
        (Some(beat), Some(status)) if status != SiloStatus::Dead => {
            if beat.at > look.now.plus(Duration::from_secs(1)) {
                format!(
                    "at least {} ahead of this machine's",
                    span(beat.at.since(look.now))
                )
            } else if look.now.since(beat.at) > period * 2 {
                format!(
                    "its last heartbeat says {}: its clock is behind, or it is silent now",
                    ago(beat.at, look.now)
                )
            } else {
                format!(
                    "agrees with this machine's to {} (last heartbeat {})",
                    span(period),
                    ago(beat.at, look.now)
                )
            }
        }
        (_, Some(status)) => format!("unknown, it is {status} now"),
        (_, None) => "unknown, it has no row any more".to_owned(),
    }
}
