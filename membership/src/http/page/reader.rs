//! Reads a table again and again, for a page without a silo.

use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use membership_core::{
    Discontinuity, Heartbeats, MembershipTable, ReadAnswer, ReadRequest, Snapshot, TableError,
    TableErrorKind as Kind, check_snapshot,
};

use super::picture::Picture;
use super::source::{Source, wall};
use super::timeline::Timeline;

/// Every so often all rows are read, although the version is the same: somebody may have changed or
/// removed some without a commit.
const ALL_ROWS_EVERY: Duration = Duration::from_secs(10);

/// Ends when nobody shows the source any more.
pub(super) async fn read_on(
    source: Weak<Source>,
    table: Arc<dyn MembershipTable>,
    every: Duration,
) {
    let mut all_rows_at = Instant::now();
    loop {
        let Some(source) = source.upgrade() else {
            return;
        };
        let all_rows = all_rows_at.elapsed() >= ALL_ROWS_EVERY;
        if all_rows {
            all_rows_at = Instant::now();
        }
        read(&source, table.as_ref(), all_rows).await;
        tokio::select! {
            () = tokio::time::sleep(every) => {}
            () = source.again.notified() => {}
        }
    }
}

async fn read(source: &Source, table: &dyn MembershipTable, all_rows: bool) {
    let known = source.state().picture.clone();
    let token = known.as_ref().filter(|_| !all_rows);
    let token = token.map(|known| known.snapshot.token.clone());
    let request = ReadRequest::all().with_known(token);
    let began = Instant::now();
    let answer = table.read(&request).await;
    let took = began.elapsed();
    match answer {
        Ok(answer) => taken(source, known, answer, took),
        Err(error) => {
            failed(source, &error);
            let kind = error.kind();
            if matches!(kind, Kind::TableReplaced | Kind::TableRolledBack) {
                read_anew(source, table, known).await;
            }
        }
    }
}

/// Shows what is there now in place of a table that it does not continue, once a new connection
/// finds it, too: the last answer may have come from a server that lags.
async fn read_anew(source: &Source, table: &dyn MembershipTable, known: Option<Picture>) {
    let request = ReadRequest::all().with_new_connection(true);
    let began = Instant::now();
    // If it fails, the first error stands: it says what happened.
    if let Ok(answer) = table.read(&request).await {
        taken(source, known, answer, began.elapsed());
    }
}

fn taken(source: &Source, known: Option<Picture>, answer: ReadAnswer, took: Duration) {
    let now = wall();
    let (snapshot, heartbeats) = match (answer, &known) {
        (
            ReadAnswer::Snapshot {
                snapshot,
                heartbeats,
            },
            _,
        ) => (snapshot, heartbeats.unwrap_or_default()),
        (unchanged, Some(known)) => (
            known.snapshot.clone(),
            unchanged.heartbeats().cloned().unwrap_or_default(),
        ),
        // It cannot be unchanged from nothing.
        (_, None) => return,
    };
    let mut state = source.state();
    let health = &mut state.table;
    health.reads += 1;
    health.read_at = Some(now);
    health.measured(took);
    let was_away = health.is_now("available", None, now) && known.is_some();
    let broken = known
        .as_ref()
        .and_then(|known| check_snapshot(&known.snapshot, &snapshot).err());
    let news = match &known {
        None => {
            state.timeline = Timeline::of(&snapshot);
            true
        }
        Some(known) => moved_on(&mut state.timeline, known, &snapshot, &heartbeats, was_away),
    };
    let is_of_one_version = |known: &Picture| known.snapshot.version() == snapshot.version();
    match broken {
        // Rows that somebody changed without a commit: the picture says so itself.
        Some(Discontinuity::RolledBack) if known.as_ref().is_some_and(is_of_one_version) => {}
        Some(what) => state.broken = Some((what, now)),
        None => {}
    }
    // The measurements of a quiet cluster are shown now and then.
    let is_due = state.table.reads.is_multiple_of(5);
    state.picture = Some(Picture {
        snapshot,
        heartbeats: Some(heartbeats),
        read_at: now,
        now,
    });
    drop(state);
    if news || is_due {
        source.changed();
    }
}

/// Writes the time line; true if there is something to see.
fn moved_on(
    timeline: &mut Timeline,
    known: &Picture,
    snapshot: &Snapshot,
    heartbeats: &Heartbeats,
    was_away: bool,
) -> bool {
    let now = wall();
    if was_away {
        timeline.note("table", "the table is available again".to_owned(), now);
    }
    if let Err(what) = check_snapshot(&known.snapshot, snapshot) {
        let (had, has) = (known.snapshot.version(), snapshot.version());
        let text = match what {
            Discontinuity::RolledBack if had == has => {
                format!("somebody changed rows of version {has} without a commit")
            }
            _ => format!(
                "{}: version {has} does not continue version {had}",
                Kind::from(what).as_str()
            ),
        };
        timeline.note("table", text, now);
    }
    let same = known.snapshot.version() == snapshot.version()
        && known.snapshot.table_id() == snapshot.table_id()
        && known.snapshot.rows == snapshot.rows;
    if !same {
        timeline.changes(&known.snapshot, snapshot, now);
    }
    was_away || !same || known.heartbeats.as_ref() != Some(heartbeats)
}

fn failed(source: &Source, error: &TableError) {
    let now = wall();
    let text = error.to_string();
    let mut state = source.state();
    state.table.failed += 1;
    let state_word = error.kind().as_str();
    if state.table.is_now(state_word, Some(text.clone()), now) {
        state.timeline.note("table", text, now);
    }
    drop(state);
    source.changed();
}
