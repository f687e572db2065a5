//! Effects as lines of text, for the trace. Frequent and routine effects have no line.

use std::collections::{BTreeMap, VecDeque};
use std::fmt::Write as _;
use std::net::SocketAddr;

use crate::ground_truth::GroundTruth;
use membership_core::protocol::{
    Destination, Effect, Finding, Message, Notice, Observation, Termination,
};
use membership_core::{
    ClusterView, CommitRequest, MembershipEntry, RowChange, SiloAddress, SiloStatus, TableId,
};

/// How many views keep their texts.
const KEPT: usize = 16;

/// The views that were described last, by version and digest, with their texts: in a large cluster
/// thousands of silos publish the same views.
#[derive(Debug, Default)]
pub(super) struct LastViews(VecDeque<((TableId, u64, u128), String)>);

impl LastViews {
    fn view(&mut self, v: &ClusterView, truth: &GroundTruth) -> &str {
        let which = (v.table_id(), v.version(), v.digest());
        let known = self.0.iter().position(|(last, _)| *last == which);
        let at = known.unwrap_or_else(|| {
            if self.0.len() >= KEPT {
                self.0.pop_front();
            }
            self.0.push_back((which, view(v, truth)));
            self.0.len() - 1
        });
        self.0.get(at).map_or("", |(_, text)| text)
    }
}

/// The line for an effect; none for routine effects (probes, heartbeats, reads, measurements).
pub(super) fn effect(
    effect: &Effect,
    verbose: bool,
    truth: &GroundTruth,
    last_views: &mut LastViews,
) -> Option<String> {
    match effect {
        Effect::Send { to, body, .. } if verbose || is_rare(body) => {
            message(body, truth).map(|m| format!("sends {m} to {}", destination(to, truth)))
        }
        Effect::Initialize { .. } => Some("initializes the table".to_owned()),
        Effect::Commit { request, .. } => Some(format!("commits {}", commit(request, truth))),
        Effect::Publish(v) => Some(format!("publishes {}", last_views.view(v, truth))),
        Effect::Tell(notice) => notice_text(notice, verbose, truth),
        Effect::Observe(o) if verbose => observation_text(o, truth),
        Effect::Stop(end) => Some(format!("stops: {}", termination(end, truth))),
        _ => None,
    }
}

fn is_rare(body: &Message) -> bool {
    matches!(
        body,
        Message::RollCall { .. }
            | Message::RollAnswer { .. }
            | Message::RollResult { .. }
            | Message::YouAreDead { .. }
            | Message::Forward { .. }
            | Message::Receipt { .. }
            | Message::AskVouched { .. }
            | Message::Vouched { .. }
    )
}

fn endpoint(at: &SocketAddr, truth: &GroundTruth) -> String {
    truth
        .records
        .iter()
        .find(|l| l.endpoint == *at)
        .map_or_else(|| at.to_string(), |l| format!("address of {}", l.name))
}

fn destination(to: &Destination, truth: &GroundTruth) -> String {
    match to {
        Destination::Endpoint(at) => endpoint(at, truth),
        Destination::Fresh(at) => format!("{} (dialled afresh)", endpoint(at, truth)),
        Destination::Link(link) => usize::try_from(link.0)
            .ok()
            .and_then(|i| truth.records.get(i))
            .map_or_else(|| "a link".to_owned(), |l| l.name.clone()),
        other => format!("{other:?}"),
    }
}

fn names(silos: &[SiloAddress], truth: &GroundTruth) -> String {
    let names: Vec<String> = silos.iter().map(|silo| truth.name(silo)).collect();
    names.join(", ")
}

fn message(body: &Message, truth: &GroundTruth) -> Option<String> {
    Some(match body {
        Message::Probe { .. } | Message::ProbeAck { .. } => return None,
        Message::Identity { silo, .. } => format!(
            "identity ({})",
            silo.map_or_else(|| "no epoch yet".to_owned(), |s| truth.name(&s))
        ),
        Message::RollCall { suspects, .. } => {
            let suspects: Vec<SiloAddress> = suspects.iter().map(|(silo, _)| *silo).collect();
            format!("roll-call about {}", names(&suspects, truth))
        }
        Message::RollAnswer {
            findings, missed, ..
        } => {
            let finding = |(silo, finding): &(SiloAddress, Finding)| {
                let what = match finding {
                    Finding::Reached => "reached",
                    Finding::Failed {
                        consent: Some(_), ..
                    } => "failed, with its vote",
                    Finding::Failed { consent: None, .. } => "failed",
                    Finding::Unknown => "unknown",
                };
                format!("{} {what}", truth.name(silo))
            };
            let mut parts: Vec<String> = findings.iter().map(finding).collect();
            if !missed.is_empty() {
                parts.push(format!("missed {}", names(missed, truth)));
            }
            format!("roll-answer: {}", parts.join(", "))
        }
        Message::RollResult {
            suspects, reached, ..
        } => format!(
            "roll-result: no majority against {}, {reached} reached",
            names(suspects, truth)
        ),
        Message::AskDelta { have, .. } => format!("ask-delta from v{have}"),
        Message::Delta(d) | Message::News(d) => {
            format!(
                "{} {} to v{}",
                body.name(),
                d.from
                    .map_or_else(|| "of everything".to_owned(), |v| format!("from v{v}")),
                d.to()
            )
        }
        Message::Farewell { version, .. }
        | Message::YouAreDead { version }
        | Message::Announce { version, .. } => {
            format!("{} at v{version}", body.name())
        }
        Message::Forward { changes } => {
            let changes: Vec<&str> = changes.iter().map(|(_, c)| c.name()).collect();
            format!("forward: {}", changes.join(", "))
        }
        Message::Receipt { changes, waiting } => {
            let changes: Vec<String> = changes.iter().map(|(_, s)| s.to_string()).collect();
            format!("receipt: {}; {waiting} wait", changes.join(", "))
        }
        Message::AskVouched { words, .. } => {
            let silos: Vec<SiloAddress> = words.iter().map(|(silo, _)| *silo).collect();
            format!("ask-vouched for {}", names(&silos, truth))
        }
        Message::Vouched { silos, .. } => format!("vouched for {}", names(silos, truth)),
        other => other.name().to_owned(),
    })
}

fn row(entry: &MembershipEntry, truth: &GroundTruth) -> String {
    let mut text = format!("{} {}", truth.name(&entry.address), entry.status);
    if let Some(death) = &entry.death {
        let _ = write!(text, " ({})", death.cause);
    }
    if !entry.suspicions.is_empty() {
        let accusers: Vec<String> = entry
            .suspicions
            .iter()
            .map(|v| truth.name(&v.accuser))
            .collect();
        let _ = write!(text, " accused by {}", accusers.join(", "));
    }
    text
}

pub(super) fn commit(request: &CommitRequest, truth: &GroundTruth) -> String {
    let changes: Vec<String> = request
        .changes
        .iter()
        .map(|change| match change {
            RowChange::Insert(r) => r
                .entry()
                .map_or_else(|| r.key().to_owned(), |e| format!("+{}", row(e, truth))),
            RowChange::Update(r) => r
                .entry()
                .map_or_else(|| r.key().to_owned(), |e| row(e, truth)),
            RowChange::Remove(key) => format!(
                "-{}",
                key.parse()
                    .map_or_else(|_| key.clone(), |silo: SiloAddress| truth.name(&silo))
            ),
        })
        .collect();
    format!(
        "v{}: {}",
        request.next_version(),
        if changes.is_empty() {
            "no row".to_owned()
        } else {
            changes.join("; ")
        }
    )
}

fn view(view: &ClusterView, truth: &GroundTruth) -> String {
    let mut text = format!("v{}:", view.version());
    let mut by_status: BTreeMap<SiloStatus, Vec<SiloAddress>> = BTreeMap::new();
    for entry in view.members() {
        by_status
            .entry(entry.status)
            .or_default()
            .push(entry.address);
    }
    for (status, silos) in by_status {
        if silos.len() > 8 {
            let _ = write!(text, " {} {status}", silos.len());
        } else {
            let names: Vec<String> = silos.iter().map(|silo| truth.name(silo)).collect();
            let _ = write!(text, " {} {status}", names.join(" "));
        }
    }
    text
}

fn notice_text(notice: &Notice, verbose: bool, truth: &GroundTruth) -> Option<String> {
    Some(match notice {
        Notice::Joining { version, .. } => format!("tells: joining at v{version}"),
        Notice::JoinProgress(p) if verbose => {
            let unreached: Vec<String> = p.unreached.iter().map(|u| truth.name(&u.silo)).collect();
            format!(
                "tells: still joining, {} ({})",
                p.waiting_for,
                unreached.join(", ")
            )
        }
        Notice::JoinProgress(_) => return None,
        Notice::Active { version } => format!("tells: active at v{version}"),
        Notice::LeaveBegun { version } => format!("tells: leaving begun at {version:?}"),
        Notice::Answered { answer, .. } => format!("tells: answer {answer:?}"),
        Notice::Refreshed { result, .. } => {
            format!(
                "tells: refreshed {}",
                result
                    .as_ref()
                    .map_or_else(|e| e.kind().as_str().to_owned(), |v| format!("v{v}"))
            )
        }
        Notice::Table(state) => format!("tells: table {state:?}"),
        Notice::SettingsDiffer { .. } => "tells: settings differ".to_owned(),
        Notice::PartialPartition { unreached } if unreached.is_empty() => {
            "tells: others reach no silo that it does not reach".to_owned()
        }
        Notice::PartialPartition { unreached } => {
            let unreached: Vec<SiloAddress> = unreached.iter().map(|one| one.silo).collect();
            format!(
                "tells: others reach {}, it does not",
                names(&unreached, truth)
            )
        }
        Notice::Suspended(on) => format!("tells: {}", if *on { "suspended" } else { "going on" }),
        other => format!("tells: {other:?}"),
    })
}

fn observation_text(observation: &Observation, truth: &GroundTruth) -> Option<String> {
    Some(match observation {
        Observation::ProbeMissed {
            peer,
            misses,
            refused,
        } => {
            format!(
                "misses {} ({misses} in a row{})",
                truth.name(peer),
                if *refused { ", refused" } else { "" }
            )
        }
        Observation::Health { score, local } => format!("feels {score} (local {local})"),
        Observation::VoteCast { suspect } => format!("has voted against {}", truth.name(suspect)),
        Observation::VoteReceived { accuser } => format!("is accused by {}", truth.name(accuser)),
        Observation::Conflict => "meets a conflict".to_owned(),
        Observation::UnknownOutcome => "does not know the outcome".to_owned(),
        Observation::Dropped { reason } => format!("drops a message: {reason}"),
        Observation::Paused(by) => format!("notices a pause of {:.1}s", by.as_secs_f64()),
        // The messages of a call and what follows it have lines of their own; so have those of changes that
        // another silo writes, and the views.
        Observation::ProbeAnswered { .. }
        | Observation::Committed { .. }
        | Observation::RollCallEnded { .. }
        | Observation::WrittenForOthers { .. }
        | Observation::ChangesSent { .. }
        | Observation::ChangeReturned { .. }
        | Observation::ChangesTurnedAway { .. }
        | Observation::ViewLearned { .. } => return None,
        other => format!("observes {other:?}"),
    })
}

pub(super) fn termination(end: &Termination, truth: &GroundTruth) -> String {
    match end {
        Termination::Left { clean: true } => "left".to_owned(),
        Termination::Left { clean: false } => "left, unconfirmed".to_owned(),
        Termination::DeclaredDead(d) => {
            let accusers: Vec<String> = d.votes.iter().map(|v| truth.name(&v.accuser)).collect();
            format!(
                "declared dead ({}) at v{}, votes: {}",
                d.cause(),
                d.version,
                if accusers.is_empty() {
                    "none".to_owned()
                } else {
                    accusers.join(", ")
                }
            )
        }
        Termination::Unreachable { why, clean } => {
            let how = if *clean { "left" } else { "left, unconfirmed" };
            format!("{how}: {why}")
        }
        Termination::JoinFailed(e) => format!("join failed: {e}"),
        other => format!("{other:?}"),
    }
}
