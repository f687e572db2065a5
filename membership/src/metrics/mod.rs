//! What a silo measures with the feature `metrics`, through the crate `metrics`: install any
//! exporter for it.
//!
//! | name | kind | unit | labels | meaning |
//! |---|---|---|---|---|
//! | [`PROBE_ROUND_TRIP`] | histogram | seconds | | answered probes: how long the answer took |
//! | [`PROBE_MISSES`] | counter | | `refused` | probes without an answer in time, or whose connection was refused |
//! | [`HEALTH`] | gauge | 0 to 8 | `scope` = `all`, `local` | the silo's mistrust in itself |
//! | [`VOTES_CAST`] | counter | | | votes of this silo that are in the table |
//! | [`VOTES_RECEIVED`] | counter | | | votes against this silo |
//! | [`ROLL_CALLS`] | counter | | `result` | roll calls of this silo: `majority`, `reached`, `no_majority`, `answered` |
//! | [`UNREACHED`] | gauge | | | silos that this one does not reach, though others do |
//! | [`VIEW_VERSION`] | gauge | | | the version of the newest view |
//! | [`VIEWS_LEARNED`] | counter | | `how` | views of this silo: by the `changes` or all `rows` that another silo sent, by a `read` of the table, by a `commit` of this silo |
//! | [`VIEWS_WITHDRAWN`] | counter | | | views that another silo announced and the table did not have |
//! | [`VIEW_AGE`] | gauge | seconds | | how long ago the view changed |
//! | [`BLOCKED`] | gauge | seconds | | without a table: how long members have not agreed; 0 when they do |
//! | [`TABLE_AGE`] | gauge | seconds | | how long ago the table was last read or written with success |
//! | [`COMMITS`] | counter | | | commits of this silo that succeeded |
//! | [`COMMITTED_ROWS`] | counter | | | rows that they changed |
//! | [`IS_SCRIBE`] | gauge | 0 or 1 | | with the setting `scribe`: 1 where the silo writes its changes itself, and the others ask it |
//! | [`CHANGES_WAITING`] | gauge | | `at` = `here`, `another` | changes that wait for a commit of this silo, or are in one whose result is not known; 1 while a change of this silo waits at another one |
//! | [`CHANGES_WRITTEN_FOR_OTHERS`] | counter | | | changes in commits of this silo that others had asked it to write |
//! | [`CHANGES_SENT`] | counter | | | changes of its own that this silo asked another one to write |
//! | [`CHANGES_RETURNED`] | counter | | `reason` | those of them that the other one did not write: `refused`, `elsewhere`, `unanswered`, `idle`, `gone` |
//! | [`CHANGES_TURNED_AWAY`] | counter | | `reason` = `refused`, `elsewhere` | changes that others asked this silo to write, and that it does not write |
//! | [`CONFLICTS`] | counter | | | commits that another commit preceded |
//! | [`UNKNOWN_OUTCOMES`] | counter | | | commits with an unknown outcome |
//! | [`TABLE_CALL`] | histogram | seconds | `operation`, `outcome` | calls to the table; the outcome is `ok` or the kind of the error |
//! | [`DEATHS`] | counter | | `cause` | silos that this one saw die: `left`, `voted`, `evicted`, `superseded`, `stuck`, `removed`. A dead silo is not scraped any more; its survivors count it, each of them once |
//! | [`STOPS`] | counter | | `cause` | ends of a silo: `left`, `unclean`, `voted`, `evicted`, `superseded`, `stuck`, `removed`, `unreachable`, `join_failed` |
//! | [`MEMBERS`] | gauge | | `status` | silos in the newest view, by status |
//! | [`DROPPED_MESSAGES`] | counter | | `reason` | messages that were dropped; connections that were closed for damage or because there were too many |
//! | [`REFUSED_HANDSHAKES`] | counter | | `reason` | incoming connections that were refused: `unproven` and `handshake` are strangers |
//! | [`MISMATCHED_MEMBERS`] | counter | | | handshakes with silos of the view whose secret or certificate was missing or wrong at one of the two: a rotation in the wrong order |
//! | [`EXECUTOR_LAG`] | histogram | seconds | | how late a task ran that was due |
//! | [`PAUSES`] | counter | | | pauses of the process longer than the probe timeout |
//!
//! Every counter begins at 0 for each value of its labels that is known beforehand, so that the first
//! event is a rise. [`describe`] gives a recorder the texts of help, and [`BUCKETS`] says which
//! buckets suit the histograms; the exporter of the module `http` has both.
//!
//! A member without a table (module `gossip`) has those of transport and executor, and [`MEMBERS`],
//! [`VIEW_AGE`], [`BLOCKED`], [`UNREACHED`] (members that somebody does not reach), [`DEATHS`] (`left`,
//! `downed`) and [`STOPS`] (`left`, `leave_timed_out`, `downed`, `gone`, `refused`).
//!
//! Several silos of one process write to the same series; give them recorders of their own where
//! that matters (in tests).

#[cfg(feature = "metrics")]
mod record;
#[cfg(not(feature = "metrics"))]
mod silent;

#[cfg(feature = "metrics")]
pub use record::describe;
#[cfg(feature = "metrics")]
pub(crate) use record::{
    ages, begin, deaths, executor_lag, observe, stopped, table_call, transport, unreached, view,
    view_withdrawn, writer,
};
#[cfg(all(feature = "metrics", feature = "gossip"))]
pub(crate) use record::{agreement, begin_member, died, members, paused, stopped_because};
#[cfg(not(feature = "metrics"))]
pub(crate) use silent::{
    ages, begin, deaths, executor_lag, observe, stopped, table_call, transport, unreached, view,
    view_withdrawn, writer,
};
#[cfg(all(not(feature = "metrics"), feature = "gossip"))]
pub(crate) use silent::{agreement, begin_member, died, members, paused, stopped_because};

macro_rules! names {
    ($($(#[$doc:meta])* $name:ident = $text:literal, $kind:ident: $help:literal;)*) => {
        $($(#[$doc])* pub const $name: &str = $text;)*
        /// Every name.
        pub const ALL: &[&str] = &[$($name),*];
        /// Every name with its kind and its text of help.
        #[cfg(feature = "metrics")]
        const HELP: &[(&str, Kind, &str)] = &[$(($name, Kind::$kind, $help)),*];
    };
}

#[cfg(feature = "metrics")]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Counter,
    Gauge,
    Histogram,
}

names! {
    /// Histogram, seconds.
    PROBE_ROUND_TRIP = "membership_probe_round_trip_seconds", Histogram: "Round trips of answered probes.";
    /// Counter; label `refused`.
    PROBE_MISSES = "membership_probe_misses_total", Counter: "Probes without an answer in time, or whose connection was refused.";
    /// Gauge, 0 to 8; label `scope`.
    HEALTH = "membership_health_score", Gauge: "How much the silo mistrusts itself: 0 (healthy) to 8.";
    /// Counter.
    VOTES_CAST = "membership_votes_cast_total", Counter: "Votes of this silo that are in the table.";
    /// Counter.
    VOTES_RECEIVED = "membership_votes_received_total", Counter: "Votes against this silo.";
    /// Counter; label `result`.
    ROLL_CALLS = "membership_roll_calls_total", Counter: "Roll calls of this silo, by what they gave.";
    /// Gauge.
    UNREACHED = "membership_unreached_silos", Gauge: "Silos that this one does not reach, though others do.";
    /// Gauge.
    VIEW_VERSION = "membership_view_version", Gauge: "The version of the newest view.";
    /// Counter; label `how`.
    VIEWS_LEARNED = "membership_views_learned_total", Counter: "Views of this silo, by how it got them.";
    /// Counter.
    VIEWS_WITHDRAWN = "membership_views_withdrawn_total", Counter: "Views that another silo announced and the table did not have.";
    /// Gauge, seconds.
    VIEW_AGE = "membership_view_age_seconds", Gauge: "How long ago the view changed.";
    /// Gauge, seconds; without a table only.
    BLOCKED = "membership_agreement_blocked_seconds", Gauge: "Without a table: how long members have not agreed; 0 when they do.";
    /// Gauge, seconds.
    TABLE_AGE = "membership_table_age_seconds", Gauge: "How long ago the table was last read or written with success.";
    /// Counter.
    COMMITS = "membership_commits_total", Counter: "Commits of this silo that succeeded.";
    /// Counter.
    COMMITTED_ROWS = "membership_committed_rows_total", Counter: "Rows that the commits of this silo changed.";
    /// Gauge, 0 or 1.
    IS_SCRIBE = "membership_is_scribe", Gauge: "With the setting scribe: 1 where the silo writes its changes itself, and the others ask it.";
    /// Gauge; label `at`.
    CHANGES_WAITING = "membership_changes_waiting", Gauge: "Changes that wait for a commit of this silo, or of another one that it asked.";
    /// Counter.
    CHANGES_WRITTEN_FOR_OTHERS = "membership_changes_written_for_others_total", Counter: "Changes in commits of this silo that others had asked it to write.";
    /// Counter.
    CHANGES_SENT = "membership_changes_sent_total", Counter: "Changes of its own that this silo asked another one to write.";
    /// Counter; label `reason`.
    CHANGES_RETURNED = "membership_changes_returned_total", Counter: "Changes of its own that the silo that was asked did not write.";
    /// Counter; label `reason`.
    CHANGES_TURNED_AWAY = "membership_changes_turned_away_total", Counter: "Changes that others asked this silo to write, and that it does not write.";
    /// Counter.
    CONFLICTS = "membership_commit_conflicts_total", Counter: "Commits of this silo that another commit preceded.";
    /// Counter.
    UNKNOWN_OUTCOMES = "membership_commit_unknown_outcomes_total", Counter: "Commits of this silo with an unknown outcome.";
    /// Histogram, seconds; labels `operation` and `outcome`.
    TABLE_CALL = "membership_table_call_seconds", Histogram: "Calls to the table; the outcome is ok or the kind of the error.";
    /// Counter; label `cause`.
    DEATHS = "membership_deaths_total", Counter: "Silos that this one saw die, by cause.";
    /// Counter; label `cause`.
    STOPS = "membership_stops_total", Counter: "Ends of silos of this process, by cause.";
    /// Gauge; label `status`.
    MEMBERS = "membership_members", Gauge: "Silos in the newest view, by status.";
    /// Counter; label `reason`.
    DROPPED_MESSAGES = "membership_dropped_messages_total", Counter: "Messages that were dropped, and connections that were closed for damage.";
    /// Counter; label `reason`.
    REFUSED_HANDSHAKES = "membership_refused_handshakes_total", Counter: "Incoming connections that were refused.";
    /// Counter.
    MISMATCHED_MEMBERS = "membership_mismatched_members_total", Counter: "Handshakes with silos of the view whose secret or certificate was missing or wrong.";
    /// Histogram, seconds.
    EXECUTOR_LAG = "membership_executor_lag_seconds", Histogram: "How late a task ran that was due.";
    /// Counter.
    PAUSES = "membership_pauses_total", Counter: "Pauses of the process longer than the probe timeout.";
}

/// The upper bounds of buckets in seconds that suit each histogram: around a round trip in a data
/// centre and between regions, around a call to a store up to its timeout, and around the lag at
/// which the silo begins to mistrust itself.
pub const BUCKETS: &[(&str, &[f64])] = &[
    (
        PROBE_ROUND_TRIP,
        &[
            0.000_25, 0.000_5, 0.001, 0.002_5, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5,
        ],
    ),
    (
        TABLE_CALL,
        &[
            0.001, 0.002_5, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0,
        ],
    ),
    (
        EXECUTOR_LAG,
        &[
            0.000_5, 0.001, 0.002_5, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0,
        ],
    ),
];
