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
//! | [`VIEWS_WITHDRAWN`] | counter | | | views that another silo announced and the table did not have |
//! | [`VIEW_AGE`] | gauge | seconds | | how long ago the view changed |
//! | [`TABLE_AGE`] | gauge | seconds | | how long ago the table was last read or written with success |
//! | [`COMMITS`] | counter | | | commits of this silo that succeeded |
//! | [`COMMITTED_ROWS`] | counter | | | rows that they changed |
//! | [`CONFLICTS`] | counter | | | commits that another commit preceded |
//! | [`UNKNOWN_OUTCOMES`] | counter | | | commits with an unknown outcome |
//! | [`TABLE_CALL`] | histogram | seconds | `operation`, `outcome` | calls to the table; the outcome is `ok` or the kind of the error |
//! | [`STOPS`] | counter | | `cause` | ends of a silo: `left`, `unclean`, `voted`, `evicted`, `superseded`, `stuck`, `removed`, `unreachable`, `join_failed` |
//! | [`MEMBERS`] | gauge | | `status` | silos in the newest view, by status |
//! | [`DROPPED_MESSAGES`] | counter | | `reason` | messages that were dropped; connections that were closed for damage or because there were too many |
//! | [`REFUSED_HANDSHAKES`] | counter | | `reason` | incoming connections that were refused: `unproven` and `handshake` are strangers |
//! | [`MISMATCHED_MEMBERS`] | counter | | | handshakes with silos of the view whose secret or certificate was missing or wrong at one of the two: a rotation in the wrong order |
//! | [`EXECUTOR_LAG`] | histogram | seconds | | how late a task ran that was due |
//! | [`PAUSES`] | counter | | | pauses of the process longer than the probe timeout |
//!
//! Several silos of one process write to the same series; give them recorders of their own where
//! that matters (in tests).

#[cfg(feature = "metrics")]
mod record;
#[cfg(not(feature = "metrics"))]
mod silent;

#[cfg(feature = "metrics")]
pub(crate) use record::{
    ages, executor_lag, observe, stopped, table_call, transport, unreached, view, view_withdrawn,
};
#[cfg(not(feature = "metrics"))]
pub(crate) use silent::{
    ages, executor_lag, observe, stopped, table_call, transport, unreached, view, view_withdrawn,
};

macro_rules! names {
    ($($(#[$doc:meta])* $name:ident = $text:literal;)*) => {
        $($(#[$doc])* pub const $name: &str = $text;)*
        /// Every name.
        pub const ALL: &[&str] = &[$($name),*];
    };
}

names! {
    /// Histogram, seconds.
    PROBE_ROUND_TRIP = "membership_probe_round_trip_seconds";
    /// Counter; label `refused`.
    PROBE_MISSES = "membership_probe_misses_total";
    /// Gauge, 0 to 8; label `scope`.
    HEALTH = "membership_health_score";
    /// Counter.
    VOTES_CAST = "membership_votes_cast_total";
    /// Counter.
    VOTES_RECEIVED = "membership_votes_received_total";
    /// Counter; label `result`.
    ROLL_CALLS = "membership_roll_calls_total";
    /// Gauge.
    UNREACHED = "membership_unreached_silos";
    /// Gauge.
    VIEW_VERSION = "membership_view_version";
    /// Counter.
    VIEWS_WITHDRAWN = "membership_views_withdrawn_total";
    /// Gauge, seconds.
    VIEW_AGE = "membership_view_age_seconds";
    /// Gauge, seconds.
    TABLE_AGE = "membership_table_age_seconds";
    /// Counter.
    COMMITS = "membership_commits_total";
    /// Counter.
    COMMITTED_ROWS = "membership_committed_rows_total";
    /// Counter.
    CONFLICTS = "membership_commit_conflicts_total";
    /// Counter.
    UNKNOWN_OUTCOMES = "membership_commit_unknown_outcomes_total";
    /// Histogram, seconds; labels `operation` and `outcome`.
    TABLE_CALL = "membership_table_call_seconds";
    /// Counter; label `cause`.
    STOPS = "membership_stops_total";
    /// Gauge; label `status`.
    MEMBERS = "membership_members";
    /// Counter; label `reason`.
    DROPPED_MESSAGES = "membership_dropped_messages_total";
    /// Counter; label `reason`.
    REFUSED_HANDSHAKES = "membership_refused_handshakes_total";
    /// Counter.
    MISMATCHED_MEMBERS = "membership_mismatched_members_total";
    /// Histogram, seconds.
    EXECUTOR_LAG = "membership_executor_lag_seconds";
    /// Counter.
    PAUSES = "membership_pauses_total";
}
