//! What the rows tell of a silo, in the words of `membership why`, `membership status` and the page.
//! Text of others (names, reasons) is as it is stored: whoever shows it makes it harmless.
//!
//! ```
//! use std::time::Duration;
//! use membership::words::{count, span};
//!
//! assert_eq!(span(Duration::from_secs(200)), "3 min");
//! assert_eq!(count(2, "vote"), "2 votes");
//! ```

mod concern;

use std::time::Duration;

use membership_core::{
    CauseOfDeath, Death, MembershipEntry, RollCount, Rows, SharedSettings, SiloAddress, Suspicion,
    SuspicionReason, WallTime,
};

pub use concern::{Concern, LATELY};

/// Whether a character of others' text controls a terminal, ends a line, hides or reorders what
/// stands beside it, or cannot be seen, so that two names look the same: controls, ends of lines, and
/// what Unicode calls default ignorable.
///
/// ```
/// use membership::words::misleads;
/// assert!("\u{1b}\u{9b}\u{202e}\u{61c}\u{2028}\u{200b}\u{feff}\u{e0041}".chars().all(misleads));
/// assert!(!"zone 1, Zürich, \u{5d0}".chars().any(misleads));
/// ```
#[must_use]
pub fn misleads(c: char) -> bool {
    c.is_control()
        || matches!(c,
            '\u{ad}'
            | '\u{34f}'
            | '\u{61c}'
            | '\u{115f}'..='\u{1160}'
            | '\u{17b4}'..='\u{17b5}'
            | '\u{180b}'..='\u{180f}'
            | '\u{200b}'..='\u{200f}'
            | '\u{2028}'..='\u{202e}'
            | '\u{2060}'..='\u{206f}'
            | '\u{3164}'
            | '\u{fe00}'..='\u{fe0f}'
            | '\u{feff}'
            | '\u{ffa0}'
            | '\u{fff0}'..='\u{fff8}'
            | '\u{1bca0}'..='\u{1bca3}'
            | '\u{1d173}'..='\u{1d17a}'
            | '\u{e0000}'..='\u{e0fff}')
}

/// `3 s`, `2 min`, `4 h`, `5 days`: one unit, rounded down.
#[must_use]
pub fn span(d: Duration) -> String {
    let s = d.as_secs();
    match s {
        0 => format!("{} ms", d.as_millis()),
        1..120 => format!("{s} s"),
        120..7_200 => format!("{} min", s / 60),
        7_200..172_800 => format!("{} h", s / 3600),
        _ => format!("{} days", s / 86_400),
    }
}

/// `3 s ago`, or `3 s ahead` of this clock. A difference below a second is not worth showing.
#[must_use]
pub fn ago(at: WallTime, now: WallTime) -> String {
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
#[must_use]
pub fn count(n: usize, one: &str) -> String {
    let ending = if n == 1 { "" } else { "s" };
    format!("{n} {one}{ending}")
}

/// Who voted against it: `10.0.0.1:7100, 10.0.0.2:7100 and 3 more`.
#[must_use]
pub fn suspected(entry: &MembershipEntry) -> String {
    let votes = entry.suspicions.iter().take(3);
    let names: Vec<String> = votes.map(|s| s.accuser.endpoint().to_string()).collect();
    let names = names.join(", ");
    match entry.suspicions.len().saturating_sub(3) {
        0 => names,
        more => format!("{names} and {more} more"),
    }
}

/// How and when it ended: `voted 12 s ago`, `evicted 3 min ago by …: disk full`; empty for one that
/// is not Dead.
#[must_use]
pub fn ending(entry: &MembershipEntry, now: WallTime) -> String {
    let Some(death) = &entry.death else {
        return String::new();
    };
    let when = ago(death.at, now);
    match &death.cause {
        CauseOfDeath::Evicted { by, reason } => format!("evicted {when} by {by}: {reason}"),
        cause => format!("{} {when}", cause.as_str()),
    }
}

/// How it ended, for a line that has its own time: `voted`, `evicted by …: disk full`.
#[must_use]
pub fn end(entry: &MembershipEntry) -> String {
    match entry.death.as_ref().map(|death| &death.cause) {
        Some(CauseOfDeath::Evicted { by, reason }) => format!("evicted by {by}: {reason}"),
        Some(cause) => cause.as_str().to_owned(),
        None => String::new(),
    }
}

/// `10.0.0.1:7100@5 (silo-1) is Dead, voted`.
#[must_use]
pub fn headline(entry: &MembershipEntry) -> String {
    let name = match entry.info.silo_name.as_str() {
        "" => String::new(),
        name => format!(" ({name})"),
    };
    match &entry.death {
        None => format!(
            "{}{name} is not dead: it is {}",
            entry.address, entry.status
        ),
        Some(death) => format!("{}{name} is Dead, {}", entry.address, death.cause.as_str()),
    }
}

/// Why it is Dead, in one sentence; `rows` are those of its cluster.
#[must_use]
pub fn cause(entry: &MembershipEntry, death: &Death, rows: &Rows) -> String {
    match &death.cause {
        CauseOfDeath::Left => "It left by itself, or its join failed.".to_owned(),
        CauseOfDeath::Voted => format!(
            "{} voted that it does not answer.",
            count(entry.suspicions.len(), "silo")
        ),
        CauseOfDeath::Superseded => match newer(entry, rows) {
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

fn newer(entry: &MembershipEntry, rows: &Rows) -> Option<SiloAddress> {
    let mut there = rows.at_endpoint(entry.address.endpoint());
    there
        .find(|e| e.address.epoch() > entry.address.epoch())
        .map(|e| e.address)
}

/// When, in which version and by whom it was declared dead.
#[must_use]
pub fn declared(death: &Death, now: WallTime) -> String {
    let by = death.by.map_or_else(
        || "a person or program that is not a silo".to_owned(),
        |silo| silo.to_string(),
    );
    let (at, version) = (death.at, death.version);
    format!("{at} ({}), in version {version}, by {by}", ago(at, now))
}

/// When it started, and where.
#[must_use]
pub fn started(entry: &MembershipEntry, now: WallTime) -> String {
    let host = match entry.info.host_name.as_str() {
        "" => String::new(),
        host => format!(" on host {host}"),
    };
    let at = entry.start_time;
    format!("{at} ({}){host}", ago(at, now))
}

/// Since when it is, or was, Active.
#[must_use]
pub fn active(entry: &MembershipEntry) -> String {
    match entry.active_since {
        Some(version) => format!("since version {version}"),
        None => "never".to_owned(),
    }
}

/// How many voted against it, and how many are needed.
#[must_use]
pub fn votes(entry: &MembershipEntry, settings: &SharedSettings) -> String {
    match entry.suspicions.len() {
        0 => "none".to_owned(),
        some => format!(
            "{some} (in a large enough cluster {} are needed)",
            settings.num_votes_for_death_declaration
        ),
    }
}

/// The roll call of the last vote that has one, on which the others rest as well.
#[must_use]
pub fn last_call<'a>(votes: impl IntoIterator<Item = &'a Suspicion>) -> Option<RollCount> {
    let votes = votes.into_iter();
    votes
        .filter_map(|vote| Some((vote.at, vote.evidence.roll_call?)))
        .max_by_key(|(at, _)| *at)
        .map(|(_, call)| call)
}

/// What the other silos said in a roll call.
#[must_use]
pub fn roll_call(call: &RollCount) -> String {
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

/// On what a vote rests.
#[must_use]
pub fn evidence(vote: &Suspicion) -> String {
    let e = &vote.evidence;
    let mut parts = vec![match vote.reason {
        SuspicionReason::Stuck => "Joining for too long".to_owned(),
        SuspicionReason::Challenge => {
            "a challenge, which does not count: no majority was left, and it must show that it writes"
                .to_owned()
        }
        _ => format!(
            "{} in a row, the last after {}",
            count(e.misses as usize, "missed probe"),
            span(Duration::from_millis(e.timeout_ms))
        ),
    }];
    match e.last_answer {
        Some(at) => parts.push(format!(
            "last answer {at} ({} before the vote)",
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

/// What the row of an arbiter says in its metadata: the claim that got the lease last, who was downed,
/// and the side that goes on.
pub(crate) const LEASE: [&str; 3] = ["lease", "downed", "side"];

/// Whether a row is no silo's, but that of an arbiter of members without a store: it says which side of a
/// split goes on. Whoever removes it lets both go on.
#[must_use]
pub fn is_lease(entry: &MembershipEntry) -> bool {
    let metadata = &entry.info.metadata;
    entry.info.silo_name == LEASE[0] && LEASE.iter().all(|name| metadata.contains_key(*name))
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
        assert_eq!(ago(now.plus(Duration::from_millis(900)), now), "0 s ago");
        assert_eq!(span(Duration::from_millis(250)), "250 ms");
        assert_eq!(count(1, "vote"), "1 vote");
    }
}
