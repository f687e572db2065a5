//! Records what happens under the names in [`super`].

use std::time::Duration;

use membership_core::protocol::{Observation, Termination};
use membership_core::{ClusterView, Operation, SiloStatus};
use metrics::{counter, gauge, histogram};

use super::*;
use crate::transport::TransportStats;

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
    // It says nothing of others any more.
    unreached(0);
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
