//! What the page says of a silo, in the words of `membership why` and `membership status`.

use std::time::Duration;

use membership_core::{
    CauseOfDeath, MembershipEntry, RollCount, SiloAddress, SiloStatus, Suspicion, SuspicionReason,
    WallTime,
};
use serde::Serialize;

use super::picture::Picture;

/// `3 s`, `2 min`, `4 h`, `5 days`: one unit, rounded down.
pub(super) fn span(d: Duration) -> String {
    let s = d.as_secs();
    match s {
        0 => format!("{} ms", d.as_millis()),
        1..120 => format!("{s} s"),
        120..7_200 => format!("{} min", s / 60),
        7_200..172_800 => format!("{} h", s / 3600),
        _ => format!("{} days", s / 86_400),
    }
}

/// `3 s ago`, or `3 s ahead` of this clock.
pub(super) fn ago(at: WallTime, now: WallTime) -> String {
    let (ahead, age) = (at.since(now), now.since(at));
    if ahead >= Duration::from_secs(1) {
        format!("{} ahead", span(ahead))
    } else if age < Duration::from_secs(1) {
        "0 s ago".to_owned()
    } else {
        format!("{} ago", span(age))
    }
}

/// `1 vote`, `2 votes`.
pub(super) fn count(n: usize, one: &str) -> String {
    let ending = if n == 1 { "" } else { "s" };
    format!("{n} {one}{ending}")
}

/// `10.0.0.1:7100, 10.0.0.2:7100 and 3 more`: who voted against it.
pub(super) fn suspected(entry: &MembershipEntry) -> String {
    let votes = entry.suspicions.iter().take(3);
    let names: Vec<String> = votes.map(|s| s.accuser.endpoint().to_string()).collect();
    let names = names.join(", ");
    match entry.suspicions.len().saturating_sub(3) {
        0 => names,
        more => format!("{names} and {more} more"),
    }
}

/// `voted 12 s ago`, `evicted 3 min ago by …: disk full`.
pub(super) fn ending(entry: &MembershipEntry, now: WallTime) -> String {
    let Some(death) = &entry.death else {
        return String::new();
    };
    let when = ago(death.at, now);
    match &death.cause {
        CauseOfDeath::Evicted { by, reason } => format!("evicted {when} by {by}: {reason}"),
        cause => format!("{} {when}", cause.as_str()),
    }
}

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
    let name = match entry.info.silo_name.as_str() {
        "" => String::new(),
        name => format!(" ({name})"),
    };
    let headline = match &entry.death {
        None => format!(
            "{}{name} is not dead: it is {}",
            entry.address, entry.status
        ),
        Some(death) => format!("{}{name} is Dead, {}", entry.address, death.cause.as_str()),
    };
    if let Some(death) = &entry.death {
        add("cause", cause(entry, &death.cause, picture));
        let by = death.by.map_or_else(
            || "a person or program that is not a silo".to_owned(),
            |silo| silo.to_string(),
        );
        let when = ago(death.at, picture.now);
        let version = death.version;
        add(
            "declared",
            format!("{} ({when}), in version {version}, by {by}", death.at),
        );
    }
    let host = match entry.info.host_name.as_str() {
        "" => String::new(),
        host => format!(" on host {host}"),
    };
    let started = ago(entry.start_time, picture.now);
    add("started", format!("{} ({started}){host}", entry.start_time));
    add(
        "active",
        match entry.active_since {
            Some(version) => format!("since version {version}"),
            None => "never".to_owned(),
        },
    );
    if let Some(heartbeats) = &picture.heartbeats {
        add(
            "heartbeat",
            match heartbeats.silos.get(&entry.address) {
                Some(beat) => format!(
                    "{} ({}), number {}",
                    beat.at,
                    ago(beat.at, picture.now),
                    beat.counter
                ),
                None => "none is stored".to_owned(),
            },
        );
    }
    let place: Vec<&str> = [entry.info.role.as_str(), entry.info.zone.as_str()]
        .into_iter()
        .filter(|text| !text.is_empty())
        .collect();
    if !place.is_empty() {
        add("role, zone", place.join(", "));
    }
    for (key, value) in &entry.info.metadata {
        add("metadata", format!("{key} = {value}"));
    }
    votes(entry, picture, &mut add);
    (headline, lines)
}

fn cause(entry: &MembershipEntry, cause: &CauseOfDeath, picture: &Picture) -> String {
    match cause {
        CauseOfDeath::Left => "It left by itself, or its join failed.".to_owned(),
        CauseOfDeath::Voted => format!(
            "{} voted that it does not answer.",
            count(entry.suspicions.len(), "silo")
        ),
        CauseOfDeath::Superseded => match newer(entry, picture) {
            Some(newer) => format!("{newer}, a newer process, took its address."),
            None => "A newer process took its address.".to_owned(),
        },
        CauseOfDeath::Evicted { by, reason } => format!("{by} evicted it: {reason}"),
        CauseOfDeath::Stuck => {
            "It was Joining for longer than a join may take, and was voted out.".to_owned()
        }
        other => other.to_string(),
    }
}

fn newer(entry: &MembershipEntry, picture: &Picture) -> Option<SiloAddress> {
    let rows = &picture.snapshot.rows;
    let mut there = rows.at_endpoint(entry.address.endpoint());
    there
        .find(|e| e.address.epoch() > entry.address.epoch())
        .map(|e| e.address)
}

fn votes(entry: &MembershipEntry, picture: &Picture, add: &mut impl FnMut(&'static str, String)) {
    if entry.suspicions.is_empty() {
        return add("votes", "none".to_owned());
    }
    let settings = &picture.snapshot.version_row.settings;
    add(
        "votes",
        format!(
            "{} (in a large enough cluster {} are needed)",
            entry.suspicions.len(),
            settings.num_votes_for_death_declaration
        ),
    );
    if let Some(call) = last_call(entry) {
        add("roll call", of_those(&call));
    }
    for vote in &entry.suspicions {
        let text = format!("{} at {}: {}", vote.accuser, vote.at, evidence(vote));
        add("vote", text);
    }
}

/// The roll call of the last vote that has one, on which the others rest as well.
pub(super) fn last_call(entry: &MembershipEntry) -> Option<RollCount> {
    let votes = entry.suspicions.iter();
    votes
        .filter_map(|vote| Some((vote.at, vote.evidence.roll_call?)))
        .max_by_key(|(at, _)| *at)
        .map(|(_, call)| call)
}

fn of_those(call: &RollCount) -> String {
    let asked = count(call.asked as usize, "silo");
    let silent = match call.silent {
        0 => "all answered".to_owned(),
        some => format!("{some} did not answer the call"),
    };
    format!(
        "{asked} asked: {} failed to reach it, {} reached it; {silent}",
        call.failed, call.reached
    )
}

fn evidence(vote: &Suspicion) -> String {
    let e = &vote.evidence;
    let mut parts = vec![match vote.reason {
        SuspicionReason::Stuck => "Joining for too long".to_owned(),
        SuspicionReason::Challenge => {
            "a challenge, which does not count: no majority was left, and it must show that it writes".to_owned()
        }
        _ => format!(
            "{} in a row, the last after {}",
            count(e.misses as usize, "missed probe"),
            span(Duration::from_millis(e.timeout_ms))
        ),
    }];
    match e.last_answer {
        Some(at) => parts.push(format!(
            "last answer {} before the vote",
            span(vote.at.since(at))
        )),
        None if vote.reason != SuspicionReason::Stuck => {
            parts.push("it never answered this silo".to_owned());
        }
        None => {}
    }
    if let Some(via) = e.via {
        parts.push(format!("its consent, written by {via}"));
    }
    if e.stale {
        parts.push("its heartbeat was stale".to_owned());
    }
    parts.push(match e.accuser_health {
        0 => "voter healthy".to_owned(),
        score => format!("voter's own health score {score} of 8"),
    });
    parts.join("; ")
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ages_have_one_unit() {
        let now = WallTime::from_millis(1_000_000_000_000);
        for (ms, text) in [
            (0, "0 s ago"),
            (3_400, "3 s ago"),
            (119_000, "119 s ago"),
            (120_000, "2 min ago"),
            (86_400_000, "24 h ago"),
        ] {
            assert_eq!(ago(now.minus(Duration::from_millis(ms)), now), text);
        }
        assert_eq!(ago(now.plus(Duration::from_secs(5)), now), "5 s ahead");
        assert_eq!(span(Duration::from_millis(250)), "250 ms");
    }
}
