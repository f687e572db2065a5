//! P15: a fault does not make silos flood the network, however long it lasts.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use super::{Check, Fact, changed, newly_dead};
use crate::clock::VirtualTime;
use crate::ground_truth::{GroundTruth, ProcessId, ProcessRecord};
use crate::interval::Interval;
use membership_core::protocol::Effect;
use membership_core::{Config, SiloAddress, SiloStatus, Snapshot};

const STEP: Duration = Duration::from_secs(5);
/// The steps of a minute.
const STEPS: usize = 12;

/// The share of messages besides probes and their answers, while nothing happens.
const BESIDES: f64 = 1.025;
/// How much more than the quiet load a fault may cost, as a factor.
const MOST: f64 = 3.0;
/// Messages per silo for each silo that fails: it is asked about, probed, and told of.
const PER_VICTIM: f64 = 4.0;
/// Messages per silo for each commit of a silo: the changes go to every silo, and a silo that is
/// behind asks for them.
const PER_COMMIT: f64 = 2.0;
/// The same where changes are passed on: each silo tells four others.
const PER_COMMIT_PASSED_ON: f64 = PER_COMMIT + 4.0;
/// Messages per silo for each silo that joins, for each step in which it does. The first contact
/// costs four, and whom it does not reach the joining silo tries again once per probe period.
const PER_JOINING_STEP: f64 = 2.0;

/// P15: messages per silo in any minute, as the mean over all running silos, are at most 3 times the
/// quiet load, and 4 more for each silo that failed shortly before or in that minute. Joins and
/// commits cost messages without any fault, and are allowed for by their number; so are the answers to
/// messages that the network delivers twice.
///
/// Does not judge while peers forge messages: their number is not the protocol's.
#[derive(Debug, Default)]
pub struct Flood {
    steps: VecDeque<Step>,
    judged: u64,
    joining: BTreeSet<SiloAddress>,
}

/// What happened in five seconds.
#[derive(Debug, Default)]
struct Step {
    began: VirtualTime,
    sent: u64,
    /// The messages of each kind.
    kinds: BTreeMap<&'static str, u64>,
    commits: u64,
    /// The silos that joined at any time.
    joining: BTreeSet<SiloAddress>,
    /// The silos that were declared dead.
    dead: BTreeSet<SiloAddress>,
    /// How many processes ran, on average: one that ended after a second counts for that second, as the
    /// messages that it sent do.
    running: f64,
    /// The share of messages that arrived twice, at most.
    twice: f64,
}

/// The most messages per silo and second while nothing happens: probes on every ring once per
/// period, and as many answers. With fewer targets than rings, the period is shorter in proportion.
#[must_use]
pub fn quiet_load(config: &Config) -> f64 {
    let period = config.probe_period;
    2.0 * f64::from(config.num_probed_silos) / period.as_secs_f64() * BESIDES
}

impl Flood {
    /// The processes that began to fail, or to be out of reach, since `from`: they ended, paused,
    /// were held or lost messages, or a direction from or to them was cut.
    fn failed(truth: &GroundTruth, from: VirtualTime) -> BTreeSet<ProcessId> {
        let began = |interval: &Interval| interval.began_during(from, truth.now);
        let all = began(&truth.network_down) || began(&truth.rough_network);
        let cut = truth.blocks.iter().filter(|(_, i)| began(i));
        let mut hosts: BTreeSet<usize> = cut.flat_map(|((a, b), _)| [*a, *b]).collect();
        let lossy = truth.lossy.iter().filter(|(_, i)| began(i));
        hosts.extend(lossy.map(|(host, _)| *host));
        let failed = |r: &ProcessRecord| {
            r.ended.map_or_else(
                || all || hosts.contains(&r.host) || began(&r.paused) || began(&r.held),
                |end| end >= from,
            )
        };
        let records = truth.records.iter().enumerate();
        records
            .filter(|(_, record)| failed(record))
            .map(|(i, _)| ProcessId(i))
            .collect()
    }

    /// Judges the minute that has just ended.
    fn judge(&mut self, truth: &GroundTruth) -> Result<(), String> {
        let running: f64 = self.steps.iter().map(|s| s.running).sum();
        if running <= 0.0 || truth.lies {
            return Ok(());
        }
        self.judged += 1;
        let silos = running / STEPS as f64;
        let sent: u64 = self.steps.iter().map(|s| s.sent).sum();
        let each = sent as f64 / silos;
        let commits: u64 = self.steps.iter().map(|s| s.commits).sum();
        let joining: usize = self.steps.iter().map(|s| s.joining.len()).sum();
        // Half of the quiet load are answers, and a probe that arrives twice is answered twice.
        let answers: f64 = self.steps.iter().map(|s| 1.0 + s.twice / 2.0).sum();
        let per_commit = if truth.flood_above.is_some() {
            PER_COMMIT_PASSED_ON
        } else {
            PER_COMMIT
        };
        let most = quiet_load(&truth.config) * STEP.as_secs_f64() * answers * MOST
            + commits as f64 * per_commit
            + joining as f64 * PER_JOINING_STEP;
        if each <= most {
            return Ok(());
        }
        let began = self.steps.front().map_or(truth.now, |step| step.began);
        // Who failed shortly before is noticed in this minute.
        let noticed = truth.config.failure_window + truth.config.max_probe_timeout;
        let from = began.saturating_sub(truth.longest(noticed));
        let mut victims = Self::failed(truth, from);
        let dead = self.steps.iter().flat_map(|step| &step.dead);
        victims.extend(dead.filter_map(|silo| truth.owners.get(silo)));
        let most = most + victims.len() as f64 * PER_VICTIM;
        if each <= most {
            return Ok(());
        }
        Err(format!(
            "each silo sent {each:.0} messages in one minute, more than {most:.0}; {} silos had failed, {commits} commits were made; {}",
            victims.len(),
            self.kinds(silos)
        ))
    }

    /// The kinds of messages that each silo sent most.
    fn kinds(&self, silos: f64) -> String {
        let mut kinds: BTreeMap<&'static str, u64> = BTreeMap::new();
        for (kind, sent) in self.steps.iter().flat_map(|step| &step.kinds) {
            *kinds.entry(kind).or_default() += sent;
        }
        let mut kinds: Vec<_> = kinds.into_iter().collect();
        kinds.sort_by_key(|(_, sent)| std::cmp::Reverse(*sent));
        let told = kinds.iter().take(5);
        let told = told.map(|(kind, sent)| format!("{kind} {:.0}", *sent as f64 / silos));
        told.collect::<Vec<_>>().join(", ")
    }

    /// Begins a new step when the last one is over.
    fn advance(&mut self, truth: &GroundTruth) -> Result<(), String> {
        let Some(last) = self.steps.back_mut() else {
            self.begin(truth.now);
            return Ok(());
        };
        let end = last.began + STEP;
        if truth.now < end {
            return Ok(());
        }
        let ran = |r: &ProcessRecord| {
            let until = r.ended.unwrap_or(end).min(end);
            until.saturating_sub(r.started.max(last.began))
        };
        let ran: Duration = truth.records.iter().map(ran).sum();
        last.running = ran.as_secs_f64() / STEP.as_secs_f64();
        let judgement = if self.steps.len() == STEPS {
            self.judge(truth)
        } else {
            Ok(())
        };
        if truth.now >= end + STEP {
            // Nothing happened for a while, not even a timer.
            self.steps.clear();
        }
        if self.steps.len() == STEPS {
            self.steps.pop_front();
        }
        self.begin(end.max(truth.now.saturating_sub(STEP)));
        judgement
    }

    fn begin(&mut self, began: VirtualTime) {
        self.steps.push_back(Step {
            began,
            joining: self.joining.clone(),
            ..Step::default()
        });
    }

    fn note(&mut self, fact: &Fact<'_>, truth: &GroundTruth) {
        let Some(step) = self.steps.back_mut() else {
            return;
        };
        step.twice = step.twice.max(truth.twice);
        match fact {
            Fact::Effect {
                effect: Effect::Send { body, .. },
                ..
            } => {
                step.sent += 1;
                *step.kinds.entry(body.name()).or_default() += 1;
            }
            Fact::Created(table) => {
                self.joining = joining(table).collect();
                step.joining.extend(joining(table));
            }
            Fact::Committed {
                before,
                after,
                request,
            } => {
                step.commits += u64::from(request.committer.is_some());
                self.joining = joining(after).collect();
                step.joining.extend(joining(after));
                // A silo may become Active in the commit that inserts it.
                step.joining
                    .extend(changed(request).filter(|silo| before.rows.get(silo).is_none()));
                let dead = newly_dead(before, after, request);
                step.dead
                    .extend(dead.map(|d| d.silo()).filter(|s| truth.owner(s).is_some()));
            }
            _ => {}
        }
    }
}

fn joining(table: &Snapshot) -> impl Iterator<Item = SiloAddress> {
    table
        .rows
        .entries()
        .filter(|e| e.status == SiloStatus::Joining)
        .map(|e| e.address)
}

impl Check for Flood {
    fn invariant(&self) -> &'static str {
        "P15"
    }

    fn observe(&mut self, fact: &Fact<'_>, truth: &GroundTruth) -> Result<(), String> {
        let judgement = self.advance(truth);
        self.note(fact, truth);
        judgement
    }

    fn judged(&self) -> u64 {
        self.judged
    }
}
