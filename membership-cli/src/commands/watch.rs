//! `membership watch`: the table as it changes, until Ctrl-C.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use membership::TableLog;
use membership::words;
use membership_core::protocol::TableState;
use membership_core::{
    ChangeKind, ClusterView, Heartbeats, MembershipTable, MonoTime, NextStep, ReadAnswer,
    ReadRequest, Snapshot, TableError, TableErrorKind, check_snapshot,
};

use serde_json::Value;

use super::status;
use crate::clock;
use crate::events;
use crate::exit::{Exit, Failure};
use crate::inspect::Inspection;
use crate::out::Paint;
use crate::rows::RowArgs;
use crate::session::{Session, TableArgs};
use crate::text::{clean, named, reason};

/// Lines around the rows of silos: the time, the heading, the summary, what is said of suspects and of
/// silos without heartbeats, and the line of the cursor.
const OTHER_LINES: usize = 9;
/// How many of the changes since the start stand below the rows.
const LAST_CHANGES: usize = 5;

/// Show the table as it changes, until Ctrl-C
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    pub(super) table: TableArgs,
    /// How often to read the table
    #[arg(long, value_name = "DURATION", default_value = "1s", value_parser = humantime::parse_duration)]
    pub(super) every: Duration,
    /// One JSON object per line: a `view` for each version seen, `table` when the table becomes
    /// unavailable or available
    #[arg(long)]
    pub(super) json: bool,
}

pub(crate) async fn run(args: Args, session: &mut Session) -> Result<Exit, Failure> {
    if args.every < Duration::from_millis(50) {
        return Err(Failure::usage("--every must be at least 50ms"));
    }
    let table = session.open(&args.table).await?;
    let inspection = Inspection::of(table.as_ref()).await?;
    let mut watch = Watch {
        json: args.json,
        log: TableLog::default(),
        begun: Instant::now(),
        session,
        changes: VecDeque::new(),
    };
    let mut interrupted = std::pin::pin!(tokio::signal::ctrl_c());
    // Heard from its first poll on, so before anything is shown.
    tokio::select! {
        biased;
        _ = &mut interrupted => return Ok(Exit::Ok),
        () = std::future::ready(()) => {}
    }
    watch.first(&inspection);
    let mut known = inspection.snapshot;
    while !watch.session.out.is_closed() {
        tokio::select! {
            _ = &mut interrupted => return Ok(Exit::Ok),
            () = tokio::time::sleep(args.every) => {}
        }
        let read = tokio::select! {
            _ = &mut interrupted => return Ok(Exit::Ok),
            read = read_again(table.as_ref(), &known) => read,
        };
        match read {
            Ok((snapshot, heartbeats)) => {
                let inspection = Inspection {
                    snapshot,
                    heartbeats,
                    now: clock::wall(),
                };
                watch.again(&known, &inspection);
                known = inspection.snapshot;
            }
            Err(error) if matches!(error.next_step(), NextStep::Retry | NextStep::FindOut) => {
                watch.down(&error)
            }
            Err(error) => {
                if args.json {
                    watch.event(events::table(
                        error.kind().as_str(),
                        Some(&error.to_string()),
                    ));
                }
                return Err(error.into());
            }
        }
    }
    Ok(Exit::Ok)
}

/// The table as it is now; heartbeats too. An error if it does not continue what is known.
pub(super) async fn read_again(
    table: &dyn MembershipTable,
    known: &Snapshot,
) -> Result<(Snapshot, Heartbeats), TableError> {
    let request = ReadRequest::all().with_known(known.token.clone());
    match table.read(&request).await? {
        ReadAnswer::Snapshot {
            snapshot,
            heartbeats,
        } => match check_snapshot(known, &snapshot) {
            Ok(()) => Ok((snapshot, heartbeats.unwrap_or_default())),
            Err(what) => {
                let message = format!(
                    "version {} does not continue version {}",
                    snapshot.version(),
                    known.version()
                );
                Err(TableError::new(
                    TableErrorKind::from(what),
                    membership_core::Operation::Read,
                    table.store(),
                    message,
                ))
            }
        },
        unchanged => Ok((
            known.clone(),
            unchanged.heartbeats().cloned().unwrap_or_default(),
        )),
    }
}

struct Watch<'a> {
    json: bool,
    log: TableLog,
    begun: Instant,
    session: &'a mut Session,
    /// The last ones since the start, as lines.
    changes: VecDeque<String>,
}

impl Watch<'_> {
    fn event(&mut self, event: Value) {
        self.session.out.line(events::timed(event));
    }

    fn first(&mut self, inspection: &Inspection) {
        if self.json {
            self.event(events::view(&ClusterView::new(inspection.snapshot.clone())));
            return;
        }
        let out = &mut self.session.out;
        if out.is_terminal() {
            self.redraw(inspection);
        } else {
            status::show(inspection, &RowArgs::default(), out);
        }
    }

    fn again(&mut self, known: &Snapshot, inspection: &Inspection) {
        let now = self.now();
        self.log.changed(TableState::Available, None, now);
        // A screen that shows the table shows that it is there.
        let was_away = self.log.tick(now).is_some();
        if self.json {
            if was_away {
                self.event(events::table("available", None));
            }
            if known.version() != inspection.snapshot.version() {
                self.event(events::view(&ClusterView::new(inspection.snapshot.clone())));
            }
            return;
        }
        let lines = changes(known, inspection);
        let out = &mut self.session.out;
        if out.is_terminal() {
            if was_away {
                let text = format!("{}  the table is available again", inspection.now);
                self.changes.push_back(text);
            }
            self.changes.extend(lines);
            let old = self.changes.len().saturating_sub(LAST_CHANGES);
            self.changes.drain(..old);
            self.redraw(inspection);
        } else {
            if was_away {
                out.line("the table is available again");
            }
            for line in lines {
                out.line(line);
            }
        }
    }

    fn now(&self) -> MonoTime {
        MonoTime::ZERO + self.begun.elapsed()
    }

    fn redraw(&mut self, inspection: &Inspection) {
        let out = &mut self.session.out;
        // Home, and clear to the end of the screen.
        out.raw("\u{1b}[H\u{1b}[2J");
        out.line(format_args!("{}  (Ctrl-C ends)", inspection.now));
        // The heading stays in sight, and so do the summary and the last changes.
        let below = match self.changes.len() {
            0 => 0,
            some => some + 1,
        };
        let rows = out
            .size()
            .map(|(_, rows)| rows.saturating_sub(OTHER_LINES + below).max(1));
        let fitting = RowArgs {
            limit: rows,
            ..RowArgs::default()
        };
        status::show(inspection, &fitting, out);
        if !self.changes.is_empty() {
            let heading = out.paint(Paint::Bold, "last changes");
            out.line(heading);
        }
        for line in &self.changes {
            out.line(line);
        }
    }

    fn down(&mut self, error: &TableError) {
        let why = Some(error.to_string());
        let told = self.log.changed(TableState::Unavailable, why, self.now());
        if told.is_some() {
            if self.json {
                self.event(events::table("unavailable", Some(&error.to_string())));
            } else {
                let text = format!(
                    "the table is unavailable, still trying: {}",
                    clean(&reason(error))
                );
                let text = self.session.out.paint(Paint::Yellow, text);
                self.session.out.line(text);
            }
        }
    }
}

/// What changed between two reads, a line for each silo.
fn changes(known: &Snapshot, now: &Inspection) -> Vec<String> {
    if known.version() == now.snapshot.version() {
        return Vec::new();
    }
    let (new, old) = (
        ClusterView::new(now.snapshot.clone()),
        ClusterView::new(known.clone()),
    );
    let changes = new.changes_since(&old);
    let line = |change| {
        format!(
            "{}  version {}  {}",
            now.now,
            new.version(),
            describe(change)
        )
    };
    changes.iter().map(line).collect()
}

/// One change as text.
pub(crate) fn describe(change: &membership_core::Change) -> String {
    let entry = &change.entry;
    let name = if entry.info.silo_name.is_empty() {
        String::new()
    } else {
        format!(" ({})", named(&entry.info.silo_name))
    };
    let what = match change.kind {
        ChangeKind::Died if entry.death.is_some() => {
            format!("Dead, {}", clean(&words::end(entry)))
        }
        ChangeKind::Died => "its row is gone".to_owned(),
        ChangeKind::Updated if !entry.suspicions.is_empty() => {
            format!("{}, suspected by {}", entry.status, words::suspected(entry))
        }
        _ => entry.status.to_string(),
    };
    format!("{}{name}  {what}", entry.address)
}
