//! What the page says of a silo: the [words](crate::words) of the program, as labelled lines.

use membership_core::{MembershipEntry, SiloStatus};
use serde::Serialize;

use super::picture::Picture;
use crate::words::{
    active, ago, cause, declared, evidence, headline, last_call, roll_call, started, votes,
};

/// A line of an explanation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(super) struct Line {
    pub(super) label: &'static str,
    pub(super) text: String,
}

/// Everything that its row tells of one silo: a headline, and lines.
pub(super) fn explain(entry: &MembershipEntry, picture: &Picture) -> (String, Vec<Line>) {
    let mut lines = Vec::new();
    let mut add = |label, text| lines.push(Line { label, text });
    if let Some(death) = &entry.death {
        add("cause", cause(entry, death, &picture.snapshot.rows));
        add("declared", declared(death, picture.now));
    }
    add("started", started(entry, picture.now));
    add("active", active(entry));
    if let Some(heartbeats) = &picture.heartbeats {
        let text = match heartbeats.silos.get(&entry.address) {
            Some(beat) => format!(
                "{} ({}), number {}",
                beat.at,
                ago(beat.at, picture.now),
                beat.counter
            ),
            None => "none is stored".to_owned(),
        };
        add("heartbeat", text);
    }
    let place = [entry.info.role.as_str(), entry.info.zone.as_str()];
    let place: Vec<&str> = place.into_iter().filter(|text| !text.is_empty()).collect();
    if !place.is_empty() {
        add("role, zone", place.join(", "));
    }
    for (key, value) in &entry.info.metadata {
        add("metadata", format!("{key} = {value}"));
    }
    let settings = &picture.snapshot.version_row.settings;
    add("votes", votes(entry, settings));
    if let Some(call) = last_call(&entry.suspicions) {
        add("roll call", roll_call(&call));
    }
    for vote in &entry.suspicions {
        let text = format!("{} at {}: {}", vote.accuser, vote.at, evidence(vote));
        add("vote", text);
    }
    (headline(entry), lines)
}

/// What a change of status is called in the time line.
pub(super) const fn happening(status: SiloStatus) -> &'static str {
    match status {
        SiloStatus::Created | SiloStatus::Joining => "started",
        SiloStatus::Active => "active",
        SiloStatus::ShuttingDown | SiloStatus::Stopping => "leaving",
        _ => "dead",
    }
}
