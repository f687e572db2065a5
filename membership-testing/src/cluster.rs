//! The simulation loop: processes one event after another in virtual time, and passes every fact to
//! the checkers.

use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::time::Duration;

use crate::checks::{Check, Fact, Load};
use crate::clock::VirtualTime;
use crate::describe;
use crate::events::{Event, EventQueue};
use crate::ground_truth::{GroundTruth, ProcessId};
use crate::hostile::Hostile;
use crate::machine::MachineFactory;
use crate::network::{Flap, Latency, Network};
use crate::process::Process;
use crate::rng::Rng;
use crate::size::Sizes;
use crate::stats::Stats;
use crate::store::Store;
use crate::trace::Trace;
use crate::violation::Violation;
use membership_core::protocol::{Command, Effect, Input, LinkId, PeerIdentity};
use membership_core::{ClusterName, Config, TableLimits};

/// Lines of the trace in a violation.
const SHOWN: usize = 60;

/// A cluster in virtual time. All silos, the network and the table run in one thread, and a seed
/// decides everything that is random.
///
/// See the [crate](crate) for an example.
pub struct Cluster {
    pub(super) seed: u64,
    pub(super) rng: Rng,
    pub(super) now: VirtualTime,
    pub(super) name: ClusterName,
    pub(super) config: Config,
    pub(super) limits: TableLimits,
    pub(super) refuse: bool,
    pub(super) queue: EventQueue,
    pub(super) processes: Vec<Process>,
    pub(super) listeners: BTreeMap<SocketAddr, ProcessId>,
    /// Addresses without a listener at which nobody refuses a connection either.
    pub(super) silent: BTreeSet<SocketAddr>,
    /// Processes that nobody can dial.
    pub(super) deaf: BTreeSet<ProcessId>,
    /// Draws only when connections are seen to end, so that this changes nothing else in a run.
    pub(super) endings: Rng,
    pub(super) network: Network,
    pub(super) store: Store,
    pub(super) truth: GroundTruth,
    pub(super) checks: Vec<Box<dyn Check>>,
    pub(super) trace: Trace,
    pub(super) stats: Stats,
    pub(super) violation: Option<Violation>,
    pub(super) factory: MachineFactory,
    pub(super) scratch: Vec<Effect>,
    pub(super) load: Option<Load>,
    pub(super) last_views: describe::LastViews,
    /// The number of the process that was found last not to publish the current table.
    pub(super) laggard: Cell<usize>,
    /// Flapping links, by number.
    pub(super) flaps: BTreeMap<u64, Flap>,
    pub(super) flaps_so_far: u64,
    /// Directions between zones that are blocked.
    pub(super) cuts: Vec<(usize, usize)>,
    /// The zone that the row of each silo names.
    pub(super) zone_names: Option<crate::builder::ZoneNames>,
    pub(super) defaults: Defaults,
    pub(super) count_bytes: bool,
    pub(super) hash_inputs: bool,
    pub(super) sizes: Sizes,
    pub(super) hostile: Option<Hostile>,
    /// A planted bug that changes the table's answers.
    #[cfg(test)]
    pub(super) planted_bug: Option<PlantedBug>,
}

/// Changes an answer of the table.
#[cfg(test)]
pub(super) type PlantedBug = Box<dyn FnMut(&mut Input)>;

/// Latencies without faults.
#[derive(Clone, Copy, Debug)]
pub(super) struct Defaults {
    pub latency: Latency,
    pub table: (Duration, Duration),
}

impl std::fmt::Debug for Cluster {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let version = self
            .store
            .truth
            .as_ref()
            .map(membership_core::Snapshot::version);
        let mut f = f.debug_struct("Cluster");
        f.field("seed", &self.seed)
            .field("now", &self.now)
            .field("running", &self.running().len())
            .field("version", &version);
        f.finish_non_exhaustive()
    }
}

impl Cluster {
    /// Advances virtual time.
    ///
    /// # Errors
    /// The first violated invariant. After a violation the simulation does not continue.
    pub fn run_for(&mut self, time: Duration) -> Result<(), Violation> {
        let until = self.now + time;
        self.run_to(until, |_| false).map(|_| ())
    }

    /// Advances virtual time until a condition is true, but at most by `at_most`. Returns whether
    /// it became true. The condition is evaluated after every event that may have changed a
    /// published view or the set of running processes, and at the end.
    ///
    /// # Errors
    /// As for [`run_for`](Self::run_for).
    pub fn run_until(
        &mut self,
        at_most: Duration,
        condition: impl FnMut(&Self) -> bool,
    ) -> Result<bool, Violation> {
        let until = self.now + at_most;
        self.run_to(until, condition)
    }

    fn run_to(
        &mut self,
        until: VirtualTime,
        mut condition: impl FnMut(&Self) -> bool,
    ) -> Result<bool, Violation> {
        let mut looked_at = None;
        self.truth.record_latency(self.longest_latency());
        loop {
            if let Some(violation) = &self.violation {
                return Err(violation.clone());
            }
            let changes = (
                self.stats.views,
                self.stats.commits,
                self.stats.starts,
                self.stats.kills,
                self.stats.stops,
            );
            if looked_at != Some(changes) {
                looked_at = Some(changes);
                if condition(self) {
                    return Ok(true);
                }
            }
            let Some((at, event)) = self.queue.next(until) else {
                break;
            };
            self.set_time(at);
            self.dispatch(event);
        }
        self.set_time(until);
        Ok(condition(self))
    }

    /// The longest latency that a message can have now. Faults that change it begin and end
    /// between two runs of the loop.
    fn longest_latency(&self) -> Duration {
        let network = &self.network;
        let mut slowest = network.longest_delay().max(network.longest_between());
        for latency in [network.latency(), network.latency_between(0, 1)] {
            slowest = slowest.max(latency.high).max(latency.slow);
        }
        slowest
    }

    fn set_time(&mut self, now: VirtualTime) {
        self.now = self.now.max(now);
        self.truth.now = self.now;
    }

    fn dispatch(&mut self, event: Event) {
        match event {
            Event::Wake(id) => self.wake(id),
            Event::Deliver {
                from,
                to,
                header,
                body,
            } => {
                self.feed(
                    to,
                    Some(from),
                    Input::Message {
                        link: LinkId(from.0 as u64),
                        peer: PeerIdentity::Proven(header.instance),
                        header,
                        body,
                    },
                );
            }
            Event::Undeliverable { to, endpoint } => {
                self.feed(
                    to,
                    None,
                    Input::SendFailed {
                        to: endpoint,
                        refused: true,
                        reason: "connection refused".to_owned(),
                    },
                );
            }
            Event::Disconnected { process, peer } => {
                self.stats.disconnects += 1;
                self.feed(process, None, Input::Disconnected { peer });
            }
            Event::TableCall {
                process,
                call,
                what,
                answer,
            } => self.execute_call(process, call, what, answer),
            Event::Answer { process, input } => {
                if matches!(input, Input::Start) {
                    self.listen(process);
                }
                self.feed(process, None, input);
            }
            Event::GiveUp {
                process,
                call,
                input,
            } => self.give_up(process, call, input),
            Event::Command { process, command } => {
                if command == Command::BeginLeave
                    && let Some(record) = self.truth.records.get_mut(process.0)
                {
                    record.leaving.get_or_insert(self.now);
                }
                self.feed(process, None, Input::Command(command));
            }
            Event::Resume(id) => self.resume(id, false),
            Event::StallAgain(id) => self.stall_again(id),
            Event::Starve(id) => self.stall_executor(id),
            Event::Release(id) => self.release(id, false),
            Event::Forge => self.forge(),
            Event::Flap(number) => self.toggle_flap(number),
            Event::Chatter(id) => self.chatter(id),
            Event::TableUp => self.table_up(false),
            Event::NetworkUp => self.network_up(),
        }
    }

    pub(super) fn observe(&mut self, fact: &Fact<'_>) {
        if let Some(load) = &mut self.load {
            // It only measures, and never fails.
            let _ = load.observe(fact, &self.truth);
        }
        let broken = self.checks.iter_mut().find_map(|c| {
            c.observe(fact, &self.truth)
                .err()
                .map(|what| (c.invariant(), what))
        });
        if let Some((invariant, what)) = broken {
            self.fail(invariant, what);
        }
        if matches!(fact, Fact::Committed { .. } | Fact::Settled { .. }) {
            self.count_judged();
        }
    }

    /// The checkers that count judged cases judge at commits, or all the time.
    fn count_judged(&mut self) {
        for check in &self.checks {
            match check.invariant() {
                "P6" => {
                    self.stats.outage_commits = check.judged();
                    self.stats.outage_runs = check.judged().min(1);
                }
                "P10" => self.stats.deaths_judged = check.judged(),
                "P11" => self.stats.splits_judged = check.judged(),
                "P12" => self.stats.majorities_judged = check.judged(),
                "P13" => self.stats.sides_judged = check.judged(),
                "P14" => self.stats.blocked_joins_judged = check.judged(),
                "P15" => self.stats.minutes_judged = check.judged(),
                _ => {}
            }
        }
    }

    pub(super) fn fail(&mut self, invariant: &'static str, what: String) {
        if self.violation.is_none() {
            self.violation = Some(Violation::new(
                self.seed,
                invariant,
                what,
                self.now,
                self.trace.tail(SHOWN),
            ));
        }
    }

    pub(super) fn note(&mut self, id: ProcessId, what: String) {
        let who = self.truth.process_name(id);
        self.trace.line(self.now, who, what);
    }

    pub(super) fn note_world(&mut self, what: String) {
        self.trace.line(self.now, "world", what);
    }
}
