use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};

use membership_core::protocol::{DeclaredDead, RollCallResult};
use membership_core::{
    InstanceId, MembershipEntry, Row, Rows, SharedSettings, SiloAddress, Snapshot, TableId,
    VersionRow, WallTime,
};
use metrics::{
    Counter, CounterFn, Gauge, GaugeFn, Histogram, HistogramFn, Key, KeyName, Metadata, Recorder,
    SharedString, Unit,
};

use super::*;

/// Writes down each series and the last value given to it.
#[derive(Clone, Default)]
struct Notebook(Arc<Mutex<Vec<(String, f64)>>>);

struct Line(Notebook, String);

impl Line {
    fn write(&self, value: f64) {
        self.0.0.lock().unwrap().push((self.1.clone(), value));
    }
}

impl CounterFn for Line {
    fn increment(&self, value: u64) {
        self.write(value as f64);
    }
    fn absolute(&self, value: u64) {
        self.write(value as f64);
    }
}

impl GaugeFn for Line {
    fn increment(&self, value: f64) {
        self.write(value);
    }
    fn decrement(&self, value: f64) {
        self.write(-value);
    }
    fn set(&self, value: f64) {
        self.write(value);
    }
}

impl HistogramFn for Line {
    fn record(&self, value: f64) {
        self.write(value);
    }
}

impl Notebook {
    fn line(&self, key: &Key) -> Arc<Line> {
        let labels: Vec<String> = key
            .labels()
            .map(|l| format!("{}={}", l.key(), l.value()))
            .collect();
        let series = if labels.is_empty() {
            key.name().to_owned()
        } else {
            format!("{}{{{}}}", key.name(), labels.join(","))
        };
        Arc::new(Line(self.clone(), series))
    }

    fn of(play: impl FnOnce()) -> Vec<(String, f64)> {
        let book = Self::default();
        metrics::with_local_recorder(&book, play);
        std::mem::take(&mut *book.0.lock().unwrap())
    }
}

impl Recorder for Notebook {
    fn describe_counter(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
    fn describe_gauge(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
    fn describe_histogram(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
    fn register_counter(&self, key: &Key, _: &Metadata<'_>) -> Counter {
        Counter::from_arc(self.line(key))
    }
    fn register_gauge(&self, key: &Key, _: &Metadata<'_>) -> Gauge {
        Gauge::from_arc(self.line(key))
    }
    fn register_histogram(&self, key: &Key, _: &Metadata<'_>) -> Histogram {
        Histogram::from_arc(self.line(key))
    }
}

fn silo() -> SiloAddress {
    "127.0.0.1:1@1".parse().unwrap()
}

fn dead() -> Termination {
    Termination::DeclaredDead(DeclaredDead::new(
        silo(),
        3,
        None,
        Vec::new(),
        WallTime::default(),
    ))
}

fn a_view() -> ClusterView {
    let row = VersionRow::initial(TableId::new(1), SharedSettings::default());
    let token = row.token(&[]);
    ClusterView::new(Snapshot::new(token, row, Rows::new()))
}

fn with_a_silo() -> ClusterView {
    let mut row = VersionRow::initial(TableId::new(1), SharedSettings::default());
    row.row_count = 1;
    let token = row.token(&[]);
    let entry = MembershipEntry::new(silo(), InstanceId::new(1), WallTime::default());
    let rows = [entry].into_iter().map(Row::encode).collect::<Rows>();
    ClusterView::new(Snapshot::new(token, row, rows))
}

/// This silo is the scribe.
fn at_work() -> WriterState {
    let mut state = WriterState::IDLE;
    (state.scribe, state.asked) = (Some(silo()), Some(silo()));
    state.waiting = 3;
    state
}

fn everything() {
    let second = Duration::from_secs(1);
    observe(&Observation::ProbeAnswered {
        peer: silo(),
        round_trip: Duration::from_millis(250),
    });
    observe(&Observation::ProbeMissed {
        peer: silo(),
        misses: 2,
        refused: true,
    });
    observe(&Observation::Health { score: 3, local: 1 });
    observe(&Observation::VoteCast { suspect: silo() });
    observe(&Observation::VoteReceived { accuser: silo() });
    observe(&Observation::Committed { rows: 4 });
    observe(&Observation::Conflict);
    observe(&Observation::UnknownOutcome);
    observe(&Observation::Dropped {
        reason: "wrong_cluster",
    });
    observe(&Observation::Paused(second));
    observe(&Observation::RollCallEnded {
        result: RollCallResult::Reached,
    });
    observe(&Observation::WrittenForOthers { changes: 7 });
    let (from, to) = (silo(), silo());
    observe(&Observation::ChangesSent { to, changes: 2 });
    observe(&Observation::ChangeReturned {
        from,
        why: Unwritten::Idle,
    });
    observe(&Observation::ChangesTurnedAway {
        from,
        changes: 6,
        why: Unwritten::Elsewhere,
    });
    observe(&Observation::ViewLearned {
        version: 9,
        how: Learned::Rows,
    });
    unreached(2);
    writer(Some(silo()), &at_work());
    view(&a_view());
    deaths(&a_view().changes_since(&with_a_silo()));
    ages(second, second * 2);
    table_call(Operation::Commit, "busy", second);
    stopped(&dead());
    executor_lag(second);
    let later = TransportStats {
        dropped_queue_full: 5,
        refused_too_many: 2,
        mismatched_members: 3,
        ..TransportStats::default()
    };
    view_withdrawn();
    transport(&TransportStats::default(), &later);
    #[cfg(feature = "gossip")]
    agreement(second, second);
}

#[test]
fn every_series_is_written_with_its_value() {
    let lines = Notebook::of(everything);
    for (series, value) in [
        ("membership_probe_round_trip_seconds", 0.25),
        ("membership_probe_misses_total{refused=true}", 1.0),
        ("membership_health_score{scope=all}", 3.0),
        ("membership_health_score{scope=local}", 1.0),
        ("membership_votes_cast_total", 1.0),
        ("membership_votes_received_total", 1.0),
        ("membership_roll_calls_total{result=reached}", 1.0),
        ("membership_unreached_silos", 2.0),
        ("membership_is_scribe", 1.0),
        ("membership_changes_waiting{at=here}", 3.0),
        ("membership_changes_waiting{at=another}", 1.0),
        ("membership_changes_written_for_others_total", 7.0),
        ("membership_changes_sent_total", 2.0),
        ("membership_changes_returned_total{reason=idle}", 1.0),
        (
            "membership_changes_turned_away_total{reason=elsewhere}",
            6.0,
        ),
        ("membership_views_learned_total{how=rows}", 1.0),
        ("membership_view_version", 0.0),
        ("membership_view_age_seconds", 1.0),
        ("membership_table_age_seconds", 2.0),
        ("membership_commits_total", 1.0),
        ("membership_committed_rows_total", 4.0),
        ("membership_commit_conflicts_total", 1.0),
        ("membership_commit_unknown_outcomes_total", 1.0),
        (
            "membership_table_call_seconds{operation=commit,outcome=busy}",
            1.0,
        ),
        ("membership_stops_total{cause=removed}", 1.0),
        ("membership_deaths_total{cause=removed}", 1.0),
        ("membership_members{status=Active}", 0.0),
        (
            "membership_dropped_messages_total{reason=wrong_cluster}",
            1.0,
        ),
        ("membership_dropped_messages_total{reason=queue_full}", 5.0),
        ("membership_refused_handshakes_total{reason=too_many}", 2.0),
        ("membership_mismatched_members_total", 3.0),
        ("membership_executor_lag_seconds", 1.0),
        ("membership_pauses_total", 1.0),
    ] {
        assert!(
            lines.contains(&(series.to_owned(), value)),
            "{series} = {value} is not in {lines:#?}"
        );
    }
}

#[test]
fn every_counter_begins_at_0_for_each_series_that_is_written_later() {
    let zeroes = Notebook::of(begin);
    assert!(zeroes.iter().all(|(_, value)| *value == 0.0), "{zeroes:?}");
    let zeroes: BTreeSet<String> = zeroes.into_iter().map(|(series, _)| series).collect();
    let counters = HELP.iter().filter(|(_, kind, _)| *kind == Kind::Counter);
    for (name, _, help) in counters {
        let of_it = |series: &&String| series.split('{').next() == Some(*name);
        assert!(zeroes.iter().any(|s| of_it(&s)), "{name}");
        assert!(help.ends_with('.'), "{name}: {help}");
    }
    let is_counter = |series: &str| series.contains("_total");
    for (series, _) in Notebook::of(everything) {
        if is_counter(&series) {
            assert!(zeroes.contains(&series), "{series} does not begin at 0");
        }
    }
}

#[test]
fn only_the_silo_that_is_asked_is_the_scribe() {
    let is_scribe = |me: Option<SiloAddress>, state: WriterState| {
        let lines = Notebook::of(|| writer(me, &state));
        lines.contains(&("membership_is_scribe".to_owned(), 1.0))
    };
    assert!(is_scribe(Some(silo()), at_work()));
    assert!(!is_scribe("127.0.0.1:2@1".parse().ok(), at_work()));
    assert!(!is_scribe(None, WriterState::IDLE), "without the setting");
}

#[test]
fn every_histogram_has_buckets() {
    let histograms = HELP.iter().filter(|(_, kind, _)| *kind == Kind::Histogram);
    let names: BTreeSet<&str> = histograms.map(|(name, ..)| *name).collect();
    assert_eq!(names, BUCKETS.iter().map(|(name, _)| *name).collect());
    for (name, bounds) in BUCKETS {
        assert!(bounds.is_sorted() && bounds.len() > 5, "{name}");
    }
}

#[test]
fn every_name_is_written_and_documented_and_no_other() {
    let lines = Notebook::of(everything);
    let written: BTreeSet<&str> = lines
        .iter()
        .map(|(series, _)| series.split('{').next().unwrap())
        .collect();
    let mut all: BTreeSet<&str> = ALL.iter().copied().collect();
    if cfg!(not(feature = "gossip")) {
        all.remove(BLOCKED);
    }
    assert_eq!(written, all);
    let source = include_str!("mod.rs");
    for constant in source.lines().filter_map(|l| {
        l.trim()
            .split_once(" = \"membership_")
            .map(|(name, _)| name)
    }) {
        assert!(
            source.contains(&format!("//! | [`{constant}`] |")),
            "{constant} is not in the table of the module"
        );
    }
}
