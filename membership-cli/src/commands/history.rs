//! `membership history`: starts, activations and deaths in order, as far as the rows tell, and the
//! last commits.

use membership::history;
use membership_core::{ChangedKeys, WallTime};
use serde_json::json;

use crate::clock;
use crate::exit::{Exit, Failure};
use crate::inspect::Inspection;
use crate::out::Paint;
use crate::session::{Session, TableArgs};
use crate::text::{Grid, clean, count, named};

/// Show what happened: starts, activations, deaths, and the last commits
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    table: TableArgs,
    /// Only events after this: a duration ago (2h) or a time (2026-11-21T01:02:03Z)
    #[arg(long, value_name = "DURATION|TIME")]
    since: Option<String>,
    /// One JSON object per line
    #[arg(long)]
    json: bool,
}

pub(crate) async fn run(args: Args, session: &mut Session) -> Result<Exit, Failure> {
    let since = args.since.as_deref().map(parse_since).transpose()?;
    let table = session.open(&args.table).await?;
    let inspection = Inspection::of(table.as_ref()).await?;
    let mut events = history::events(&inspection.snapshot);
    events.retain(|e| since.is_none_or(|since| e.at >= since));
    let mut recent = history::commits(&inspection.snapshot);
    recent.retain(|commit| since.is_none_or(|since| commit.at >= since));
    let out = &mut session.out;
    if args.json {
        for e in &events {
            out.line(json!(e));
        }
        for commit in &recent {
            out.line(json!(commit));
        }
        return Ok(Exit::Ok);
    }
    let mut grid = Grid::new(["TIME", "VERSION", "SILO", "NAME", "WHAT"]);
    for e in &events {
        let time = time(e.at, e.exact);
        let what = match &e.entry.death {
            Some(death) if e.what == "dead" => clean(&format!("Dead: {}", death.cause)),
            _ => e.what.to_owned(),
        };
        // One that left is no news.
        let paint = match e.cause() {
            Some("left" | "superseded") => Paint::Dim,
            Some(_) => Paint::Red,
            None => Paint::Plain,
        };
        let version = e.version.map_or_else(String::new, |v| v.to_string());
        grid.row([
            (time, Paint::Plain),
            (version, Paint::Plain),
            (e.entry.address.to_string(), Paint::Plain),
            (named(&e.entry.info.silo_name), Paint::Plain),
            (what, paint),
        ]);
    }
    if events.is_empty() {
        out.line("the table has no event of that time");
    } else {
        grid.show(out);
    }
    if !recent.is_empty() {
        out.line("");
        commits(&recent).show(out);
    }
    Ok(Exit::Ok)
}

/// A time, or that it was later than one.
fn time(at: WallTime, exact: bool) -> String {
    match exact {
        true => at.to_string(),
        false => format!("after {at}"),
    }
}

/// How much a commit changed.
pub(super) fn extent(changed: &ChangedKeys) -> String {
    match changed {
        ChangedKeys::Keys(keys) if keys.is_empty() => "settings".to_owned(),
        ChangedKeys::Keys(keys) => count(keys.len(), "row"),
        ChangedKeys::Count(n) => count(usize::try_from(*n).unwrap_or(usize::MAX), "row"),
    }
}

fn commits(recent: &[history::Commit<'_>]) -> Grid {
    let mut grid = Grid::new(["TIME", "COMMIT", "BY", "CHANGED"]);
    for shown in recent {
        let commit = shown.record;
        let by = commit
            .committer
            .map_or_else(|| "not a silo".to_owned(), |silo| silo.to_string());
        let changed = match &commit.changed {
            ChangedKeys::Keys(keys) if (1..=4).contains(&keys.len()) => clean(&keys.join(", ")),
            many => extent(many),
        };
        grid.row([
            (time(shown.at, shown.exact), Paint::Plain),
            (commit.version.to_string(), Paint::Plain),
            (by, Paint::Plain),
            (changed, Paint::Plain),
        ]);
    }
    grid
}

fn parse_since(text: &str) -> Result<WallTime, Failure> {
    if let Ok(age) = humantime::parse_duration(text) {
        return Ok(clock::wall().minus(age));
    }
    if let Ok(at) = text.parse::<WallTime>() {
        return Ok(at);
    }
    match humantime::parse_rfc3339_weak(text)
        .ok()
        .and_then(|at| at.duration_since(std::time::UNIX_EPOCH).ok())
    {
        Some(since) => Ok(WallTime::from_millis(
            u64::try_from(since.as_millis()).unwrap_or(u64::MAX),
        )),
        None => Err(Failure::usage(
            "--since must be a duration such as 2h, or a UTC time such as 2026-11-21T01:02:03Z",
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn since_is_a_duration_or_a_time() {
        assert_eq!(
            parse_since("2026-11-21T01:02:03Z").unwrap().to_string(),
            "2026-11-21T01:02:03.000Z"
        );
        assert_eq!(
            parse_since("2026-11-21 01:02:03").unwrap().to_string(),
            "2026-11-21T01:02:03.000Z"
        );
        assert!(parse_since("1h").unwrap() < clock::wall());
        assert_eq!(parse_since("yesterday").unwrap_err().exit, Exit::Usage);
    }
}
