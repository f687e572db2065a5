//! The stage of a scenario: a cluster whose silos have joined and are quiet, what is seen of it,
//! and how a scenario is run for many seeds.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::error::Error;
use std::fmt::Debug;
use std::ops::Range;
use std::rc::Rc;
use std::time::Duration;

use membership_core::protocol::{Effect, Message};
use membership_core::{SiloAddress, SiloStatus};
use membership_testing::checks::{self, Check, Fact};
use membership_testing::{Builder, Cluster, GroundTruth, ProcessId, VirtualTime};

pub const S: fn(u64) -> Duration = Duration::from_secs;
pub const MS: fn(u64) -> Duration = Duration::from_millis;
/// A cluster is quiet for this long before something happens.
const QUIET: Duration = Duration::from_secs(60);

/// How a scenario ends for one seed: well, or with what went wrong.
pub type Outcome = Result<(), Box<dyn Error>>;

/// Fails a scenario, unless a condition holds.
macro_rules! require {
    ($condition:expr, $($what:tt)+) => {
        if $condition {
        } else {
            return Err(format!($($what)+).into());
        }
    };
}
pub(crate) use require;

fn seeds(usual: Range<u64>) -> Range<u64> {
    membership_testing::seeds::chosen(usual).unwrap()
}

/// Runs a scenario for all seeds, and then fails if it failed for any of them.
pub fn for_seeds(usual: Range<u64>, scenario: impl Fn(u64) -> Outcome) {
    for_each(&[()], usual, |seed, ()| scenario(seed));
}

/// In how many runs a scenario fails, and how many there are.
pub fn count(usual: Range<u64>, scenario: impl Fn(u64) -> Outcome) -> (usize, usize) {
    let all: Vec<bool> = seeds(usual).map(|seed| scenario(seed).is_err()).collect();
    (all.iter().filter(|fails| **fails).count(), all.len())
}

/// Runs a scenario for each of these cases and all seeds, and then fails if any run failed.
pub fn for_each<C: Copy + Debug>(
    cases: &[C],
    usual: Range<u64>,
    scenario: impl Fn(u64, C) -> Outcome,
) {
    let (mut runs, mut failed) = (0, Vec::new());
    for case in cases {
        for seed in seeds(usual.clone()) {
            runs += 1;
            if let Err(error) = scenario(seed, *case) {
                let what = error.to_string();
                let first: Vec<&str> = what.lines().take(2).map(str::trim).collect();
                let first = first.join(", ");
                let run = format!("{case:?} seed {seed}");
                failed.push(format!("{}: {first}", run.trim_start_matches("() ")));
            }
        }
    }
    assert!(
        failed.is_empty(),
        "{} of {runs} runs fail\n{}",
        failed.len(),
        failed.join("\n")
    );
}

/// Collects a time for each seed, and prints and returns the median and the 99th percentile.
pub fn times(
    what: &str,
    usual: Range<u64>,
    scenario: impl Fn(u64) -> Result<Duration, Box<dyn Error>>,
) -> (Duration, Duration) {
    let mut all: Vec<Duration> = seeds(usual)
        .map(|seed| scenario(seed).unwrap_or_else(|e| panic!("seed {seed}: {e}")))
        .collect();
    all.sort_unstable();
    let at = |share: usize| all[(all.len() * share / 100).min(all.len() - 1)];
    let (median, p99) = (at(50), at(99));
    println!(
        "{what}: median {:.1} s, 99 % within {:.1} s, {} runs",
        median.as_secs_f64(),
        p99.as_secs_f64(),
        all.len()
    );
    (median, p99)
}

/// What a scenario sees besides what it can ask the cluster.
#[derive(Debug, Default)]
struct Seen {
    /// The commits that declared silos dead: when, and whom.
    deaths: Vec<(VirtualTime, Vec<SiloAddress>)>,
    /// When each process last answered a probe.
    answered: BTreeMap<ProcessId, VirtualTime>,
}

/// A check that only looks.
struct Watch(Rc<RefCell<Seen>>);

impl Check for Watch {
    fn invariant(&self) -> &'static str {
        "watch"
    }

    fn observe(&mut self, fact: &Fact<'_>, truth: &GroundTruth) -> Result<(), String> {
        match fact {
            Fact::Committed { before, after, .. } => {
                let was_dead = |silo: &SiloAddress| {
                    before
                        .rows
                        .get(silo)
                        .is_some_and(|e| e.status == SiloStatus::Dead)
                };
                let dead: Vec<SiloAddress> = after
                    .rows
                    .entries()
                    .filter(|e| e.status == SiloStatus::Dead && !was_dead(&e.address))
                    .map(|e| e.address)
                    .collect();
                if !dead.is_empty() {
                    self.0.borrow_mut().deaths.push((truth.now, dead));
                }
            }
            Fact::Effect {
                process,
                effect: Effect::Send { body, .. },
            } if matches!(**body, Message::ProbeAck { .. }) => {
                self.0.borrow_mut().answered.insert(*process, truth.now);
            }
            _ => {}
        }
        Ok(())
    }
}

/// A cluster in which nothing is wrong yet.
pub struct Stage {
    pub cluster: Cluster,
    /// The silos that joined at the beginning.
    pub silos: Vec<ProcessId>,
    seen: Rc<RefCell<Seen>>,
}

impl Stage {
    /// A cluster whose silos have all joined and have been quiet for a minute.
    pub fn set(seed: u64, silos: usize) -> Result<Self, Box<dyn Error>> {
        Self::set_as(seed, silos, |builder| builder)
    }

    /// The same, of a cluster that is built in this way.
    pub fn set_as(
        seed: u64,
        silos: usize,
        with: impl FnOnce(Builder) -> Builder,
    ) -> Result<Self, Box<dyn Error>> {
        let seen = Rc::new(RefCell::new(Seen::default()));
        let mut all = checks::all();
        all.push(Box::new(Watch(seen.clone())));
        let mut cluster = with(Cluster::builder().seed(seed).checks(all)).build()?;
        // A few at a time, because no scenario is about joins of many.
        let mut left = silos;
        while left > 0 {
            cluster.start(left.min(20));
            cluster.run_until_agreed(S(300))?;
            left -= left.min(20);
        }
        cluster.run_for(QUIET)?;
        let silos = cluster.running();
        Ok(Self {
            cluster,
            silos,
            seen,
        })
    }

    /// Three zones of equal size, of which the first two have just lost the link between them.
    pub fn with_a_lost_link(seed: u64, silos: usize) -> Result<Self, Box<dyn Error>> {
        let mut stage = Self::set(seed, silos)?;
        let usual = stage.cluster.network().latency();
        stage.cluster.zones(3, usual);
        stage.cluster.cut_zones(0, 1);
        Ok(stage)
    }

    /// Draws this many silos.
    pub fn draw(&mut self, how_many: usize) -> Vec<ProcessId> {
        let mut all = self.silos.clone();
        self.cluster.rng().shuffle(&mut all);
        all.truncate(how_many);
        all
    }

    /// Splits the silos, in a drawn order, into sides of these sizes.
    pub fn sides(&mut self, sizes: &[usize]) -> Vec<Vec<ProcessId>> {
        let mut drawn = self.draw(self.silos.len());
        sizes
            .iter()
            .map(|n| drawn.drain(..(*n).min(drawn.len())).collect())
            .collect()
    }

    pub fn name(&self, silo: ProcessId) -> &str {
        self.cluster.truth().process_name(silo)
    }

    /// Whether a silo has no row, or one that is Dead.
    pub fn is_dead(&self, silo: ProcessId) -> bool {
        let row = self.cluster.row(silo);
        row.is_none_or(|e| e.status == SiloStatus::Dead)
    }

    /// The silos of these that no longer run, or are Dead in the table.
    pub fn lost(&self, silos: &[ProcessId]) -> Vec<ProcessId> {
        silos
            .iter()
            .copied()
            .filter(|id| !self.cluster.is_running(*id) || self.is_dead(*id))
            .collect()
    }

    /// Fails if any of these silos was lost.
    pub fn all_live(&self, silos: &[ProcessId]) -> Outcome {
        let lost = self.lost(silos);
        let names: Vec<&str> = lost.iter().map(|id| self.name(*id)).collect();
        require!(
            lost.is_empty(),
            "{} of {} silos that should live died: {}",
            lost.len(),
            silos.len(),
            names.join(" ")
        );
        Ok(())
    }

    /// Ends all faults: the cluster must recover, and none of these silos may have been lost.
    pub fn ends_well_for(&mut self, silos: &[ProcessId]) -> Outcome {
        self.all_live(silos)?;
        self.cluster.settle()?;
        self.all_live(silos)
    }

    /// The commits since a time that declared silos dead, each with the dead.
    pub fn deaths_since(&self, from: VirtualTime) -> Vec<Vec<SiloAddress>> {
        let seen = self.seen.borrow();
        let since = seen.deaths.iter().filter(|(at, _)| *at >= from);
        since.map(|(_, dead)| dead.clone()).collect()
    }

    /// When a silo last answered a probe.
    pub fn last_answer(&self, silo: ProcessId) -> VirtualTime {
        let seen = self.seen.borrow();
        seen.answered.get(&silo).copied().unwrap_or_default()
    }

    /// Runs until each of these silos publishes exactly these silos as Active. Returns how long that
    /// took; none if it took longer than `at_most`.
    pub fn until_settled(
        &mut self,
        silos: &[ProcessId],
        at_most: Duration,
    ) -> Result<Option<Duration>, Box<dyn Error>> {
        let wanted: BTreeSet<SiloAddress> = silos
            .iter()
            .filter_map(|id| self.cluster.address(*id))
            .collect();
        let from = self.cluster.now();
        let settled = |c: &Cluster, id: ProcessId| {
            c.view(id).is_some_and(|view| {
                view.active().count() == wanted.len()
                    && view.active().all(|m| wanted.contains(&m.address))
            })
        };
        // While the silo that was behind still is, the others need no look.
        let mut behind = None;
        let done = self.cluster.run_until(at_most, |c| {
            if behind.is_some_and(|id| !settled(c, id)) {
                return false;
            }
            behind = silos.iter().copied().find(|id| !settled(c, *id));
            behind.is_none()
        })?;
        Ok(done.then(|| self.cluster.now() - from))
    }

    /// The messages that these silos send per silo and second, in the next `time`.
    pub fn load(&mut self, silos: &[ProcessId], time: Duration) -> Result<f64, Box<dyn Error>> {
        let sent = |c: &Cluster| -> u64 { silos.iter().map(|id| c.messages_sent(*id)).sum() };
        let before = sent(&self.cluster);
        self.cluster.run_for(time)?;
        let messages = sent(&self.cluster) - before;
        Ok(messages as f64 / silos.len() as f64 / time.as_secs_f64())
    }
}
