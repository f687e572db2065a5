//! `membership status`: the table as it is now.

use std::collections::BTreeMap;

use membership::history;
use membership::words::{self, roll_call, suspected};
use membership_core::{ClusterView, MembershipEntry, SiloStatus, Suspicion};
use serde_json::{Value, json};

use super::history::extent;
use crate::events;
use crate::exit::{Exit, Failure};
use crate::inspect::Inspection;
use crate::out::{Out, Paint};
use crate::reach::{self, Reach};
use crate::rows::{Concern, RowArgs, Sort, concern};
use crate::security::{SecurityArgs, SecurityTable};
use crate::session::{Session, TableArgs};
use crate::text::{Grid, ago, clean, count, named, span};

/// Show every silo: status, last heartbeat, who suspects it, how it ended
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    table: TableArgs,
    #[command(flatten)]
    rows: RowArgs,
    /// Ask the silos too, who of them does not reach whom: the table does not know
    #[arg(long)]
    ask: bool,
    /// One JSON object
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    security: SecurityArgs,
}

pub(crate) async fn run(args: Args, session: &mut Session) -> Result<Exit, Failure> {
    let security = SecurityTable::default();
    let security = args.ask.then(|| security.with(args.security)).transpose()?;
    let table = session.open(&args.table).await?;
    let inspection = Inspection::of(table.as_ref()).await?;
    let reach = match security {
        Some(security) => reach::ask(&inspection, &args.table.cluster, security).await?,
        None => None,
    };
    if args.json {
        let cluster = args.table.cluster.to_string();
        let mut value = as_json(&inspection, &args.rows, &cluster, table.store());
        if let (Some(fields), true) = (value.as_object_mut(), args.ask) {
            let reach = reach.as_ref().map(Reach::as_json);
            fields.insert("reach".to_owned(), json!(reach));
        }
        session.out.line(value);
    } else {
        session.out.line(format_args!(
            "cluster {} on {}",
            clean(&args.table.cluster.to_string()),
            table.store()
        ));
        show(&inspection, &args.rows, &mut session.out);
        if let Some(text) = last_commit(&inspection) {
            session.out.line(text);
        }
        if let Some(text) = inspection.rotation() {
            let text = session.out.paint(Paint::Yellow, text);
            session.out.line(text);
        }
        if let Some(reach) = &reach {
            show_reach(reach, &mut session.out);
        } else if args.ask {
            session
                .out
                .line("reach: fewer than 3 living silos are Active, so there is nobody to compare");
        } else if session.out.is_terminal() {
            let hint = session
                .out
                .paint(Paint::Dim, "who does not reach whom: --ask");
            session.out.line(hint);
        }
    }
    Ok(Exit::Ok)
}

/// Who made the last commit, and how many rows it changed. With the setting `scribe`, which the table does
/// not show, the others ask that silo to write their changes, if it is Active.
fn last_commit(inspection: &Inspection) -> Option<String> {
    let commits = history::commits(&inspection.snapshot);
    let last = commits.last()?;
    let by = match last.record.committer {
        None => "not by a silo".to_owned(),
        Some(silo) => match inspection.snapshot.rows.get(&silo).map(|e| e.status) {
            Some(SiloStatus::Active) => format!("by {silo}"),
            Some(other) => format!("by {silo}, which is {other}"),
            None => format!("by {silo}, which has no row"),
        },
    };
    let when = match last.exact {
        true => format!(", {}", ago(last.at, inspection.now)),
        false => String::new(),
    };
    let what = extent(&last.record.changed);
    Some(format!("last commit {by}: {what}{when}"))
}

fn show_reach(reach: &Reach, out: &mut Out) {
    let paint = match reach.is_partial() {
        true => Paint::Red,
        false => Paint::Plain,
    };
    let text = out.paint(paint, format!("reach: {}", reach.summary()));
    out.line(text);
    for line in reach.lines() {
        out.line(format_args!("  {line}"));
    }
}

/// Suspects that were not voted out, with what the other silos said: part of the network may have
/// failed.
fn show_suspects(inspection: &Inspection, out: &mut Out) {
    let expiration = inspection.settings().death_vote_expiration;
    let mut any = false;
    for entry in inspection.snapshot.rows.entries() {
        let fresh = |vote: &&Suspicion| inspection.now.since(vote.at) <= expiration;
        let votes = entry.suspicions.iter().filter(fresh);
        let last = words::last_call(votes);
        if let Some(call) = last.filter(|_| entry.status != SiloStatus::Dead) {
            any = true;
            let text = format!("{} is suspected: {}", entry.address, roll_call(&call));
            let text = out.paint(Paint::Yellow, text);
            out.line(text);
        }
    }
    if any {
        out.line("`membership why` shows the votes; `membership doctor` asks the silos who does not reach whom");
    }
}

/// Silos that seem gone: the table alone does not know.
fn show_stale(inspection: &Inspection, out: &mut Out) {
    let rows = inspection.snapshot.rows.entries();
    let stale = rows.filter(|e| inspection.seems_stale(e)).count();
    // A clock that is behind says nothing about silos.
    if stale > 0 && inspection.behind().is_none() {
        let text = format!(
            "{} not written a heartbeat for long: `membership doctor` finds out whether they are gone",
            match stale {
                1 => "1 silo has".to_owned(),
                some => format!("{some} silos have"),
            }
        );
        let text = out.paint(Paint::Yellow, text);
        out.line(text);
    }
}

/// Above this number of rows the summary stands in front of them as well.
const MANY: usize = 50;

/// The damaged rows, a table of silos, the worst first, and a summary.
pub(crate) fn show(inspection: &Inspection, args: &RowArgs, out: &mut Out) {
    let (rows, more) = args.choose(inspection, Sort::Worst);
    if rows.len() > MANY {
        out.line(summary(inspection));
    }
    for row in inspection.snapshot.rows.undecodable() {
        let line = format!(
            "row {} cannot be decoded: {} (run `membership doctor`)",
            clean(row.key()),
            clean(row.undecodable().unwrap_or_default())
        );
        let line = out.paint(Paint::Red, line);
        out.line(line);
    }
    if let Some(what) = inspection.by_hand() {
        let line = format!("{what} (run `membership doctor`)");
        let line = out.paint(Paint::Red, line);
        out.line(line);
    }
    let mut grid = Grid::new([
        "SILO",
        "NAME",
        "ROLE",
        "ZONE",
        "GATEWAY",
        "STATUS",
        "STARTED",
        "HEARTBEAT",
        "SUSPECTED BY",
        "END",
    ])
    .expendable(&["GATEWAY", "STARTED", "ROLE", "ZONE", "NAME"]);
    for entry in &rows {
        row(&mut grid, entry, inspection);
    }
    if rows.is_empty() && more == 0 && inspection.snapshot.rows.entries().next().is_some() {
        out.line("no silo matches the filter");
    } else if !rows.is_empty() {
        grid.show(out);
    }
    if more > 0 {
        let text = out.paint(Paint::Dim, format!("… and {}", count(more, "more row")));
        out.line(text);
    }
    show_suspects(inspection, out);
    show_stale(inspection, out);
    if let Some(behind) = inspection.behind() {
        let text = format!(
            "this machine's clock is {} behind those of all silos: check its time service; the ages here are wrong by that",
            span(behind)
        );
        let text = out.paint(Paint::Yellow, text);
        out.line(text);
    }
    let summary = summary(inspection);
    let fits = |columns| summary.chars().count() <= columns;
    match summary.split_once(LEADER) {
        Some((first, leader)) if !out.size().is_none_or(|(columns, _)| fits(columns)) => {
            out.line(first);
            out.line(format_args!("leader {leader}"));
        }
        _ => out.line(&summary),
    }
}

/// Before the last part of a summary.
const LEADER: &str = " · leader ";

fn row(grid: &mut Grid, entry: &MembershipEntry, inspection: &Inspection) {
    let stale = inspection.seems_stale(entry);
    let dead = entry.status == SiloStatus::Dead;
    let concern = concern(entry, inspection);
    let quiet = match concern {
        Concern::Lost => Paint::Red,
        _ if dead => Paint::Dim,
        _ => Paint::Plain,
    };
    let heartbeat = match inspection.heartbeats.silos.get(&entry.address) {
        Some(heartbeat) => ago(heartbeat.at, inspection.now),
        None if dead => String::new(),
        None => "none yet".to_owned(),
    };
    let suspected = if dead || entry.suspicions.is_empty() {
        String::new()
    } else {
        suspected(entry)
    };
    let gateway = match entry.info.gateway_port {
        0 => String::new(),
        port => port.to_string(),
    };
    let status = match concern {
        Concern::Lost => Paint::Red,
        _ => colour(entry.status),
    };
    let heartbeat = match stale {
        true => (format!("{heartbeat} (stale)"), Paint::Red),
        false => (heartbeat, if dead { Paint::Dim } else { Paint::Plain }),
    };
    grid.row([
        (entry.address.to_string(), quiet),
        (named(&entry.info.silo_name), quiet),
        (named(&entry.info.role), quiet),
        (named(&entry.info.zone), quiet),
        (gateway, quiet),
        (entry.status.to_string(), status),
        (ago(entry.start_time, inspection.now), quiet),
        heartbeat,
        (suspected, Paint::Yellow),
        (ending(entry, inspection), quiet),
    ]);
}

/// `voted 12 s ago`, `evicted 3 min ago by …: disk full`.
pub(crate) fn ending(entry: &MembershipEntry, inspection: &Inspection) -> String {
    clean(&words::ending(entry, inspection.now))
}

pub(crate) const fn colour(status: SiloStatus) -> Paint {
    match status {
        SiloStatus::Active => Paint::Green,
        SiloStatus::Dead => Paint::Dim,
        _ => Paint::Yellow,
    }
}

/// `5 Active, 1 Dead (1 voted) · version 17 · leader …`.
pub(crate) fn summary(inspection: &Inspection) -> String {
    let mut by_status: BTreeMap<SiloStatus, usize> = BTreeMap::new();
    let mut causes: BTreeMap<&str, usize> = BTreeMap::new();
    for entry in inspection.snapshot.rows.entries() {
        *by_status.entry(entry.status).or_default() += 1;
        if let Some(death) = &entry.death {
            *causes.entry(death.cause.as_str()).or_default() += 1;
        }
    }
    let causes: Vec<String> = causes
        .iter()
        .map(|(cause, n)| format!("{n} {cause}"))
        .collect();
    let mut parts: Vec<String> = by_status
        .iter()
        .map(|(status, n)| {
            if *status == SiloStatus::Dead {
                format!("{n} Dead ({})", causes.join(", "))
            } else {
                format!("{n} {status}")
            }
        })
        .collect();
    if parts.is_empty() {
        parts.push("no silo yet".to_owned());
    }
    let stale = inspection
        .snapshot
        .rows
        .entries()
        .filter(|e| inspection.seems_stale(e))
        .count();
    if stale > 0 {
        parts.push(format!("{stale} stale"));
    }
    let damaged = inspection.snapshot.rows.undecodable().count();
    if damaged > 0 {
        parts.push(count(damaged, "damaged row"));
    }
    if inspection.is_changed_by_hand() {
        parts.push("rows changed by hand".to_owned());
    }
    let mut line = format!(
        "{} · version {}",
        parts.join(", "),
        inspection.snapshot.version()
    );
    if let Some(leader) = ClusterView::new(inspection.snapshot.clone()).leader() {
        line.push_str(&format!("{LEADER}{}", leader.address));
    }
    line
}

fn as_json(inspection: &Inspection, args: &RowArgs, cluster: &str, store: &str) -> Value {
    let view = ClusterView::new(inspection.snapshot.clone());
    let row = &inspection.snapshot.version_row;
    let (members, more) = args.choose(inspection, Sort::Silo);
    let members: Vec<Value> = members
        .into_iter()
        .map(|entry| member(entry, inspection))
        .collect();
    let undecodable: Vec<Value> = inspection
        .snapshot
        .rows
        .undecodable()
        .map(|r| json!({"key": r.key(), "why": r.undecodable()}))
        .collect();
    json!({
        "cluster": cluster,
        "store": store,
        "table_id": row.table_id,
        "version": row.version,
        "digest": events::digest(&view),
        "layout": row.layout,
        "leader": view.leader().map(|e| e.address),
        "settings": row.settings,
        "cluster_keys": inspection.cluster_keys().len(),
        "rotation_unfinished": inspection.cluster_keys().are_in_rotation(),
        "members": members,
        "more": more,
        "undecodable": undecodable,
        "changed_by_hand": inspection.is_changed_by_hand(),
        "recent": row.recent,
    })
}

/// A row with the fields of the event stream (`silo`, `status`, `cause`) and all others.
fn member(entry: &MembershipEntry, inspection: &Inspection) -> Value {
    let mut value = serde_json::to_value(entry).unwrap_or_default();
    if let Some(fields) = value.as_object_mut() {
        fields.insert("silo".to_owned(), json!(entry.address));
        fields.insert(
            "cause".to_owned(),
            json!(entry.death.as_ref().map(|d| d.cause.as_str())),
        );
        fields.insert(
            "heartbeat".to_owned(),
            json!(inspection.heartbeats.silos.get(&entry.address)),
        );
        fields.insert(
            "seems_stale".to_owned(),
            json!(inspection.seems_stale(entry)),
        );
    }
    value
}
