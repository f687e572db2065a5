//! Reads a table again and again, for a page without a silo.

use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use membership_core::{
    Heartbeats, MembershipTable, ReadAnswer, ReadRequest, Snapshot, TableError, TableErrorKind,
    check_snapshot,
};

use super::picture::Picture;
use super::source::{Source, wall};
use super::timeline::Timeline;

/// Ends when nobody shows the source any more.
pub(super) async fn read_on(
    source: Weak<Source>,
    table: Arc<dyn MembershipTable>,
    every: Duration,
) {
    loop {
        let Some(source) = source.upgrade() else {
            return;
        };
        read(&source, table.as_ref()).await;
        tokio::select! {
            () = tokio::time::sleep(every) => {}
            () = source.again.notified() => {}
        }
    }
}

async fn read(source: &Source, table: &dyn MembershipTable) {
    let known = source.state().picture.clone();
    let request = match &known {
        Some(known) => ReadRequest::all().with_known(known.snapshot.token.clone()),
        None => ReadRequest::all(),
    };
    let began = Instant::now();
    let answer = table.read(&request).await;
    let took = began.elapsed();
    match answer {
        Ok(answer) => taken(source, known, answer, took),
        Err(error) => failed(source, &error),
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
    let news = match &known {
        None => {
            state.timeline = Timeline::of(&snapshot);
            true
        }
        Some(known) => moved_on(&mut state.timeline, known, &snapshot, &heartbeats, was_away),
    };
    // The measurements of a quiet cluster are shown now and then.
    let is_due = state.table.reads.is_multiple_of(5);
    state.picture = Some(Picture {
        snapshot,
        heartbeats: Some(heartbeats),
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
        let text = format!(
            "{}: version {} does not continue version {}",
            TableErrorKind::from(what).as_str(),
            snapshot.version(),
            known.snapshot.version()
        );
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
