//! Follows a silo, for the page of that silo: what it knows without asking anybody.

use std::collections::BTreeMap;
use std::sync::{Arc, Weak};
use std::time::Duration;

use membership_core::ClusterView;
use membership_core::protocol::NotReached;

use super::super::Exporter;
use super::super::health::table_word;
use super::picture::Picture;
use super::source::{Reach, Source, wall};
use super::timeline::Timeline;
use crate::http::steady::Steady;
use crate::silo::Observed;
use crate::{Event, EventKind};

/// Begins to follow the silo. The task ends with it.
pub(super) fn start(observed: &Observed) -> Arc<Source> {
    let source = Source::new(observed.cluster().clone(), Some(observed.me()), None);
    let view = observed.view();
    {
        let mut state = source.state();
        state.timeline = Timeline::of(view.snapshot());
        state.picture = Some(picture(&view));
        state.table.state = table_word(observed.health().table);
        state.reach = Some(Reach {
            asked: 1,
            answered: 1,
            partial: BTreeMap::new(),
        });
    }
    source.changed();
    let (mut views, mut events) = (observed.views(), observed.events());
    let followed: Weak<Source> = Arc::downgrade(&source);
    let mut steady = Steady::new(observed);
    let mut every = tokio::time::interval(Duration::from_secs(1));
    tokio::spawn(async move {
        loop {
            tokio::select! {
                _ = every.tick() => {
                    let Some(source) = followed.upgrade() else { return };
                    if let Some(event) = steady.tick() {
                        on_event(&source, &event);
                    }
                }
                view = views.next() => {
                    let (Some(view), Some(source)) = (view, followed.upgrade()) else { return };
                    on_view(&source, &view);
                }
                event = events.next() => {
                    let (Some(event), Some(source)) = (event, followed.upgrade()) else { return };
                    if steady.tells(&event) {
                        on_event(&source, &event);
                    }
                }
            }
        }
    });
    source
}

fn picture(view: &ClusterView) -> Picture {
    Picture {
        snapshot: view.snapshot().clone(),
        heartbeats: None,
        read_at: wall(),
        now: wall(),
    }
}

fn on_view(source: &Source, view: &ClusterView) {
    let mut state = source.state();
    let known = state.picture.replace(picture(view));
    if let Some(known) = known {
        if known.view() == *view {
            return;
        }
        state
            .timeline
            .changes(&known.snapshot, view.snapshot(), wall());
    }
    drop(state);
    source.changed();
}

fn on_event(source: &Source, event: &Event) {
    let mut state = source.state();
    match &event.kind {
        EventKind::Table { state: is, error } => {
            let error = error.as_ref().map(ToString::to_string);
            let word = table_word(*is);
            let text = match (&error, word) {
                (Some(error), _) => error.clone(),
                (None, "available") => "the table is available again".to_owned(),
                (None, "table_rolled_back") => "the table went back in time".to_owned(),
                (None, "table_replaced") => "the table is another one".to_owned(),
                (None, word) => format!("the table: {word}"),
            };
            if state.table.is_now(word, error, event.at) {
                state.timeline.note("table", text, event.at);
            }
        }
        EventKind::PartialPartition { unreached } => {
            let to: Vec<_> = unreached.iter().map(|one: &NotReached| one.silo).collect();
            let text = match to.as_slice() {
                [] => "this silo reaches all that others reach again".to_owned(),
                some => {
                    let names: Vec<String> = some.iter().take(8).map(ToString::to_string).collect();
                    format!(
                        "this silo does not reach {}, though others do",
                        names.join(", ")
                    )
                }
            };
            let me = source.me.filter(|_| !to.is_empty());
            state.reach = Some(Reach {
                asked: 1,
                answered: 1,
                partial: me.map(|me| (me, to)).into_iter().collect(),
            });
            state.timeline.note("reach", text, event.at);
        }
        EventKind::Unanswered { silos } => {
            let text = match silos {
                0 => "another silo answers this one again".to_owned(),
                _ => "no other silo answers this one: it is cut off, or alone".to_owned(),
            };
            state.timeline.note("reach", text, event.at);
        }
        EventKind::Suspended => {
            let text = "this silo was paused, and waits for the table".to_owned();
            state.timeline.note("reach", text, event.at);
        }
        EventKind::Ended(end) => {
            state
                .timeline
                .note("dead", format!("this silo has stopped: {end}"), event.at);
        }
        _ => return,
    }
    drop(state);
    source.changed();
}

/// What the silo has measured of its table, as of now.
pub(super) fn measure(source: &Source, observed: &Observed, exporter: Option<&Exporter>) {
    let health = observed.health();
    let text = exporter.map(Exporter::render).unwrap_or_default();
    let sum = |name: &str| -> Option<f64> {
        let lines = text.lines().filter(|line| {
            let rest = line.strip_prefix(name);
            rest.is_some_and(|rest| rest.starts_with(['{', ' ']))
        });
        let values: Vec<f64> = lines
            .filter_map(|line| line.rsplit(' ').next()?.parse().ok())
            .collect();
        (!values.is_empty()).then(|| values.iter().sum())
    };
    let whole = |name| sum(name).map(|value| value as u64);
    let (time, calls) = (
        sum("membership_table_call_seconds_sum"),
        sum("membership_table_call_seconds_count"),
    );
    let mut state = source.state();
    let table = &mut state.table;
    table.read_at = Some(wall().minus(health.table_age));
    table.mean_ms = time
        .zip(calls)
        .filter(|(_, calls)| *calls > 0.0)
        .map(|(time, calls)| (time / calls * 10_000.0).round() / 10.0);
    table.conflicts = whole("membership_commit_conflicts_total");
    table.unknown = whole("membership_commit_unknown_outcomes_total");
}
