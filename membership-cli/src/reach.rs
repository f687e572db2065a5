//! Who does not reach whom: what the silos answer when they are asked, for `status` and `doctor`.
//!
//! The table knows nothing of a partial partition, because nobody dies of it. Each silo knows whom it
//! does not reach though others do. What it answers is shown as its word, and nothing rests on it.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use membership::transport::{Security, TransportError, ask_reach};
use membership_core::protocol::NotReached;
use membership_core::{ClusterName, ClusterView, SiloAddress, SiloStatus};
use serde_json::{Value, json};

use crate::exit::Failure;
use crate::inspect::Inspection;
use crate::text::count;

/// With fewer Active silos nobody can be reached by some and not by others.
const FEWEST: usize = 3;
/// So many silos are asked first, and then so many more if none answers. If all of these refuse this
/// program, no other has to say so in its log.
const FIRST: [usize; 2] = [1, 2];
/// How long an answer may take. A silo far away answers within a second.
const LIMIT: Duration = Duration::from_secs(3);
/// At most this many names in a line, and lines.
const MAX_NAMES: usize = 8;
const MAX_LINES: usize = 20;

/// What the silos answered.
pub(crate) struct Reach {
    asked: usize,
    answers: BTreeMap<SiloAddress, Vec<NotReached>>,
}

/// Asks the Active silos that seem to live. None if there are too few of them for a partial partition.
pub(crate) async fn ask(
    inspection: &Inspection,
    cluster: &ClusterName,
    security: Security,
) -> Result<Option<Reach>, Failure> {
    let rows = &inspection.snapshot.rows;
    let active = rows.entries().filter(|e| e.status == SiloStatus::Active);
    let living = active.filter(|e| !inspection.seems_stale(e));
    let mut silos: BTreeSet<SiloAddress> = living.map(|e| e.address).collect();
    if silos.len() < FEWEST {
        return Ok(None);
    }
    let asked = silos.len();
    let view = ClusterView::new(inspection.snapshot.clone());
    let mut answers = BTreeMap::new();
    for first in FIRST {
        if answers.is_empty() {
            let some = (0..first).filter_map(|_| silos.pop_first()).collect();
            let answered = ask_reach(cluster, &view, &some, security.clone(), LIMIT).await;
            answers = answered.map_err(unasked)?;
        }
    }
    if !answers.is_empty() {
        let answered = ask_reach(cluster, &view, &silos, security, LIMIT).await;
        answers.append(&mut answered.map_err(unasked)?);
    }
    // Only silos that the table has: an answer may name any.
    for (by, unreached) in &mut answers {
        let lives =
            |silo: &SiloAddress| rows.get(silo).is_some_and(|e| e.status != SiloStatus::Dead);
        unreached.retain(|u| u.silo != *by && lives(&u.silo));
        unreached.sort_unstable_by_key(|u| u.silo);
        unreached.dedup_by_key(|u| u.silo);
    }
    Ok(Some(Reach { asked, answers }))
}

fn unasked(error: TransportError) -> Failure {
    Failure::usage(format!("the silos cannot be asked: {error}"))
}

impl Reach {
    /// Whether the silos say that somebody does not reach somebody whom others reach.
    pub(crate) fn is_partial(&self) -> bool {
        self.answers.values().any(|unreached| !unreached.is_empty())
    }

    pub(crate) fn nobody_answered(&self) -> bool {
        self.answers.is_empty()
    }

    /// One line for people.
    pub(crate) fn summary(&self) -> String {
        let asked = count(self.asked, "Active silo");
        if self.nobody_answered() {
            return "not known: no silo answered this machine. Ask from the silos' network, with the \
                    --secret-file and --tls-… of a silo"
                .to_owned();
        }
        let cut = self.answers.values().filter(|u| !u.is_empty()).count();
        let answered = format!("{} of {asked} answered", self.answers.len());
        match cut {
            0 => format!("{answered}; each reaches all that others reach"),
            some => format!(
                "a partial partition: {answered}, and {some} of them do not reach silos that others \
                 reach. Nobody is declared dead for it: repair the network between them"
            ),
        }
    }

    /// Who does not reach whom, a line for each silo.
    pub(crate) fn lines(&self) -> Vec<String> {
        let cut = self.answers.iter().filter(|(_, u)| !u.is_empty());
        let line = |(by, unreached): (&SiloAddress, &Vec<NotReached>)| {
            format!("{by} does not reach {}", listed(unreached))
        };
        let mut lines: Vec<String> = cut.map(line).collect();
        if let Some(more @ 1..) = lines.len().checked_sub(MAX_LINES) {
            lines.truncate(MAX_LINES);
            lines.push(format!(
                "and {} more do not reach some",
                count(more, "silo")
            ));
        }
        lines
    }

    pub(crate) fn as_json(&self) -> Value {
        let partial: Vec<Value> = self
            .answers
            .iter()
            .filter(|(_, unreached)| !unreached.is_empty())
            .map(|(by, unreached)| json!({"silo": by, "unreached": as_json(unreached)}))
            .collect();
        json!({"asked": self.asked, "answered": self.answers.len(), "partial": partial})
    }
}

/// `10.0.3.9:7100@1 (3 of 5 do), … and 4 more`. Nobody is asked about a silo that only the survey of a
/// large cluster has met.
pub(crate) fn listed(unreached: &[NotReached]) -> String {
    let one = |u: &NotReached| match u.roll_call {
        call if call.asked == 0 => format!("{} (nobody else was asked)", u.silo),
        call => format!("{} ({} of {} do)", u.silo, call.reached, call.asked),
    };
    let mut names: Vec<String> = unreached.iter().take(MAX_NAMES).map(one).collect();
    if let Some(more @ 1..) = unreached.len().checked_sub(MAX_NAMES) {
        names.push(format!("and {more} more"));
    }
    names.join(", ")
}

/// With the counts of the roll call about each.
pub(crate) fn as_json(unreached: &[NotReached]) -> Value {
    let one = |u: &NotReached| {
        let call = u.roll_call;
        json!({"silo": u.silo, "asked": call.asked, "failed": call.failed, "reached": call.reached, "silent": call.silent})
    };
    unreached.iter().map(one).collect()
}

#[cfg(test)]
mod tests {
    use membership_core::RollCount;

    use super::*;

    fn silo(port: u16) -> SiloAddress {
        SiloAddress::new([127, 0, 0, 1].into(), port, 1)
    }

    fn cut(ports: std::ops::Range<u16>) -> Vec<NotReached> {
        let mut call = RollCount::default();
        (call.asked, call.reached) = (5, 3);
        ports
            .map(|port| NotReached::new(silo(port), call))
            .collect()
    }

    fn reach(answers: impl IntoIterator<Item = (u16, Vec<NotReached>)>) -> Reach {
        let answers = answers.into_iter().map(|(by, u)| (silo(by), u));
        Reach {
            asked: 6,
            answers: answers.collect(),
        }
    }

    #[test]
    fn each_silo_that_does_not_reach_another_has_a_line() {
        let reach = reach([(1, cut(2..3)), (2, cut(1..2)), (3, Vec::new())]);
        assert!(reach.is_partial());
        assert_eq!(
            reach.lines(),
            [
                "127.0.0.1:1@1 does not reach 127.0.0.1:2@1 (3 of 5 do)",
                "127.0.0.1:2@1 does not reach 127.0.0.1:1@1 (3 of 5 do)",
            ]
        );
        assert!(reach.summary().contains("3 of 6 Active silos answered"));
    }

    #[test]
    fn names_and_lines_are_bounded() {
        let reach = reach((1..100).map(|by| (by, cut(200..4_000))));
        let lines = reach.lines();
        assert_eq!(lines.len(), MAX_LINES + 1);
        assert!(lines.iter().all(|line| line.len() < 500), "{lines:?}");
        assert!(lines[0].ends_with("and 3792 more"), "{}", lines[0]);
    }

    #[test]
    fn silence_is_no_good_news() {
        let silent = reach([]);
        assert!(!silent.is_partial() && silent.summary().starts_with("not known"));
        assert!(
            reach([(1, Vec::new())])
                .summary()
                .contains("each reaches all")
        );
    }
}
