//! Records what happens under the names in [`super`].

use std::time::Duration;

use membership_core::protocol::{
    Learned, Observation, RollCallResult, Termination, Unwritten, WriterState,
};
use membership_core::{Change, ChangeKind, ClusterView, Operation, SiloAddress, SiloStatus};
use metrics::{counter, describe_counter, describe_gauge, describe_histogram, gauge, histogram};

use super::*;
use crate::transport::TransportStats;

/// Gives the process's recorder the texts of help. Call it once, after the recorder is installed.
pub fn describe() {
    for (name, kind, help) in HELP {
        match kind {
            Kind::Counter => describe_counter!(*name, *help),
            Kind::Gauge => describe_gauge!(*name, *help),
            Kind::Histogram => describe_histogram!(*name, *help),
        }
    }
}

/// Counters without labels.
const PLAIN: [&str; 11] = [
    VOTES_CAST,
    VOTES_RECEIVED,
    VIEWS_WITHDRAWN,
    COMMITS,
    COMMITTED_ROWS,
    CHANGES_WRITTEN_FOR_OTHERS,
    CHANGES_SENT,
    CONFLICTS,
    UNKNOWN_OUTCOMES,
    MISMATCHED_MEMBERS,
    PAUSES,
];
/// The causes of [`DEATHS`].
const CAUSES: [&str; 6] = ["left", "voted", "evicted", "superseded", "stuck", "removed"];
/// The causes of [`STOPS`] beside those.
const ENDS: [&str; 4] = ["unclean", "unreachable", "join_failed", "panicked"];
/// The reasons of [`CHANGES_TURNED_AWAY`].
const TURNED_AWAY: [Unwritten; 2] = [Unwritten::Refused, Unwritten::Elsewhere];
/// The reasons of [`REFUSED_HANDSHAKES`].
const REFUSALS: [&str; 8] = [
    "cluster",
    "unproven",
    "secret",
    "certificate",
    "version",
    "handshake",
    "timeout",
    "too_many",
];
/// The reasons of [`DROPPED_MESSAGES`]: first those of the transport, then those of the protocol.
const DROPS: [&str; 16] = [
    "queue_full",
    "no_connection",
    "too_large",
    "oversized",
    "garbage",
    "bad_delta",
    "dial_elsewhere",
    "not_a_member",
    "not_joined",
    "not_me",
    "own_message",
    "same_address",
    "wrong_cluster",
    "wrong_instance",
    "wrong_peer",
    "wrong_protocol",
];

/// A silo begins: every counter is there, with 0 if it is new.
pub(crate) fn begin() {
    let zero = |name: &'static str, label: &'static str, values: &[&'static str]| {
        for value in values {
            counter!(name, label => *value).increment(0);
        }
    };
    for name in PLAIN {
        counter!(name).increment(0);
    }
    zero(PROBE_MISSES, "refused", &["false", "true"]);
    zero(
        ROLL_CALLS,
        "result",
        &RollCallResult::ALL.map(RollCallResult::as_str),
    );
    zero(VIEWS_LEARNED, "how", &Learned::ALL.map(Learned::as_str));
    let reasons = Unwritten::ALL.map(Unwritten::as_str);
    zero(CHANGES_RETURNED, "reason", &reasons);
    let reasons = TURNED_AWAY.map(Unwritten::as_str);
    zero(CHANGES_TURNED_AWAY, "reason", &reasons);
    zero(DEATHS, "cause", &CAUSES);
    zero(STOPS, "cause", &CAUSES);
    zero(STOPS, "cause", &ENDS);
    zero(REFUSED_HANDSHAKES, "reason", &REFUSALS);
    zero(DROPPED_MESSAGES, "reason", &DROPS);
}

/// The causes of [`DEATHS`] and [`STOPS`] without a table.
#[cfg(feature = "gossip")]
const DOWNED: [&str; 2] = ["left", "downed"];
#[cfg(feature = "gossip")]
const ENDS_OF_MEMBERS: [&str; 4] = ["leave_timed_out", "gone", "refused", "panicked"];

/// A member without a table begins: the counters that it has are there.
#[cfg(feature = "gossip")]
pub(crate) fn begin_member() {
    for name in [MISMATCHED_MEMBERS, PAUSES] {
        counter!(name).increment(0);
    }
    for cause in DOWNED {
        counter!(DEATHS, "cause" => cause).increment(0);
    }
    for cause in DOWNED.into_iter().chain(ENDS_OF_MEMBERS) {
        counter!(STOPS, "cause" => cause).increment(0);
    }
    for reason in REFUSALS {
        counter!(REFUSED_HANDSHAKES, "reason" => reason).increment(0);
    }
    // The first ones are those of the transport.
    for reason in DROPS.into_iter().take(5) {
        counter!(DROPPED_MESSAGES, "reason" => reason).increment(0);
    }
}

/// Counts the silos that died from one view of this silo to the next.
pub(crate) fn deaths(changes: &[Change]) {
    for change in changes.iter().filter(|c| c.kind == ChangeKind::Died) {
        let death = change.entry.death.as_ref();
        let cause = death.map_or("removed", |death| death.cause.as_str());
        counter!(DEATHS, "cause" => cause).increment(1);
    }
}

pub(crate) fn observe(observation: &Observation) {
    match observation {
        Observation::ProbeAnswered { round_trip, .. } => {
            histogram!(PROBE_ROUND_TRIP).record(*round_trip)
        }
        Observation::ProbeMissed { refused, .. } => {
            counter!(PROBE_MISSES, "refused" => if *refused { "true" } else { "false" })
                .increment(1);
        }
        Observation::Health { score, local } => {
            gauge!(HEALTH, "scope" => "all").set(f64::from(*score));
            gauge!(HEALTH, "scope" => "local").set(f64::from(*local));
        }
        Observation::VoteCast { .. } => counter!(VOTES_CAST).increment(1),
        Observation::VoteReceived { .. } => counter!(VOTES_RECEIVED).increment(1),
        Observation::Committed { rows } => {
            counter!(COMMITS).increment(1);
            counter!(COMMITTED_ROWS).increment(*rows as u64);
        }
        Observation::Conflict => counter!(CONFLICTS).increment(1),
        Observation::UnknownOutcome => counter!(UNKNOWN_OUTCOMES).increment(1),
        Observation::Dropped { reason } => {
            counter!(DROPPED_MESSAGES, "reason" => *reason).increment(1)
        }
        Observation::RollCallEnded { result } => {
            counter!(ROLL_CALLS, "result" => result.as_str()).increment(1)
        }
        Observation::Paused(_) => counter!(PAUSES).increment(1),
        Observation::WrittenForOthers { changes } => {
            counter!(CHANGES_WRITTEN_FOR_OTHERS).increment(*changes as u64)
        }
        Observation::ChangesSent { changes, .. } => {
            counter!(CHANGES_SENT).increment(*changes as u64)
        }
        Observation::ChangeReturned { why, .. } => {
            counter!(CHANGES_RETURNED, "reason" => why.as_str()).increment(1)
        }
        Observation::ChangesTurnedAway { changes, why, .. } => {
            counter!(CHANGES_TURNED_AWAY, "reason" => why.as_str()).increment(*changes as u64)
        }
        Observation::ViewLearned { how, .. } => {
            counter!(VIEWS_LEARNED, "how" => how.as_str()).increment(1)
        }
        _ => {}
    }
}

pub(crate) fn view(view: &ClusterView) {
    gauge!(VIEW_VERSION).set(view.version() as f64);
    let mut count = [0u32; SiloStatus::ALL.len()];
    for member in view.members() {
        count[member.status as usize] += 1;
    }
    for status in SiloStatus::ALL {
        gauge!(MEMBERS, "status" => status.as_str()).set(f64::from(count[status as usize]));
    }
}

/// Sets how many silos this one does not reach, though others do.
pub(crate) fn unreached(silos: usize) {
    gauge!(UNREACHED).set(silos as f64);
}

/// Sets whether the silo `me` is the scribe, and how many changes wait.
pub(crate) fn writer(me: Option<SiloAddress>, state: &WriterState) {
    let is_scribe = state.scribe.is_some() && state.scribe == me;
    gauge!(IS_SCRIBE).set(f64::from(u8::from(is_scribe)));
    gauge!(CHANGES_WAITING, "at" => "here").set(state.waiting as f64);
    let away = f64::from(u8::from(state.asked.is_some()));
    gauge!(CHANGES_WAITING, "at" => "another").set(away);
}

/// The members of a view without a table, by status.
#[cfg(feature = "gossip")]
pub(crate) fn members(count: impl Iterator<Item = (&'static str, usize)>) {
    for (status, members) in count {
        gauge!(MEMBERS, "status" => status).set(members as f64);
    }
}

/// How old the view is, and for how long members have not agreed, without a table.
#[cfg(feature = "gossip")]
pub(crate) fn agreement(view: Duration, blocked: Duration) {
    gauge!(VIEW_AGE).set(view.as_secs_f64());
    gauge!(BLOCKED).set(blocked.as_secs_f64());
}

/// Counts a member without a table that was downed, or left.
#[cfg(feature = "gossip")]
pub(crate) fn died(cause: &'static str) {
    counter!(DEATHS, "cause" => cause).increment(1);
}

#[cfg(feature = "gossip")]
pub(crate) fn paused() {
    counter!(PAUSES).increment(1);
}

/// A member without a table has ended.
#[cfg(feature = "gossip")]
pub(crate) fn stopped_because(cause: &'static str) {
    counter!(STOPS, "cause" => cause).increment(1);
    unreached(0);
}

pub(crate) fn ages(view: Duration, table: Duration) {
    gauge!(VIEW_AGE).set(view.as_secs_f64());
    gauge!(TABLE_AGE).set(table.as_secs_f64());
}

pub(crate) fn view_withdrawn() {
    counter!(VIEWS_WITHDRAWN).increment(1);
}

pub(crate) fn table_call(operation: Operation, outcome: &'static str, took: Duration) {
    histogram!(TABLE_CALL, "operation" => operation.as_str(), "outcome" => outcome).record(took);
}

pub(crate) fn stopped(termination: &Termination) {
    let cause = match termination {
        Termination::Left { clean: true } => "left",
        Termination::Left { clean: false } => "unclean",
        Termination::DeclaredDead(dead) => dead.cause(),
        Termination::Unreachable { .. } => "unreachable",
        Termination::JoinFailed(_) => "join_failed",
        Termination::Panicked { .. } => "panicked",
        _ => "other",
    };
    counter!(STOPS, "cause" => cause).increment(1);
    // It says nothing of others any more, and writes nothing.
    unreached(0);
    writer(None, &WriterState::IDLE);
}

pub(crate) fn executor_lag(late: Duration) {
    histogram!(EXECUTOR_LAG).record(late);
}

/// Adds what was dropped and refused between two readings of the statistics.
pub(crate) fn transport(before: &TransportStats, now: &TransportStats) {
    let reasons = [
        (
            "queue_full",
            before.dropped_queue_full,
            now.dropped_queue_full,
        ),
        (
            "no_connection",
            before.dropped_no_connection,
            now.dropped_no_connection,
        ),
        ("too_large", before.dropped_too_large, now.dropped_too_large),
        ("oversized", before.closed_oversized, now.closed_oversized),
        ("garbage", before.closed_garbage, now.closed_garbage),
    ];
    for (reason, before, now) in reasons {
        if now > before {
            counter!(DROPPED_MESSAGES, "reason" => reason).increment(now - before);
        }
    }
    let refusals = [
        ("cluster", before.refused_cluster, now.refused_cluster),
        ("unproven", before.refused_unproven, now.refused_unproven),
        ("secret", before.refused_secret, now.refused_secret),
        (
            "certificate",
            before.refused_certificate,
            now.refused_certificate,
        ),
        ("version", before.refused_version, now.refused_version),
        ("handshake", before.refused_handshake, now.refused_handshake),
        ("timeout", before.handshake_timeouts, now.handshake_timeouts),
        ("too_many", before.refused_too_many, now.refused_too_many),
    ];
    for (reason, before, now) in refusals {
        if now > before {
            counter!(REFUSED_HANDSHAKES, "reason" => reason).increment(now - before);
        }
    }
    let (before, now) = (before.mismatched_members, now.mismatched_members);
    if now > before {
        counter!(MISMATCHED_MEMBERS).increment(now - before);
    }
}

#[cfg(test)]
#[path = "tests.rs"]
mod tests;
