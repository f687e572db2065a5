//! This library as a simulated system: the virtual cluster of `membership_testing`, with a
//! recorder.
//!
//! First detection is the time at which the first silo publishes a view in which another silo is
//! Dead (voted out, evicted or stuck). A silo dies by a commit to the table, so all silos learn of
//! the same death, at the latest with the next read. A false death is one whose silo was running. A
//! silo that stopped because it was declared dead is restarted at its address a second later, as by
//! a supervisor.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::net::SocketAddr;
use std::ops::Range;
use std::rc::Rc;
use std::time::Duration;

use membership_core::hooks::ProtocolVariant;
use membership_core::{CauseOfDeath, ClusterView, Config, SiloAddress, SiloStatus, TableId};
use membership_testing::checks::{self, Check, Fact};
use membership_testing::{
    Builder, Cluster, GroundTruth, ProcessId, TableTraffic, sharing_protocols,
};

use crate::arena::{Arena, Failure, Member, Record, Traffic};

/// How long a supervisor takes to restart a silo that stopped.
const SUPERVISOR: Duration = Duration::from_secs(1);

/// The content of a version of the table, computed once for all silos that publish it.
#[derive(Debug)]
struct Version {
    active: usize,
    /// A hash of the Active silos.
    who: u64,
    /// The silos that were declared dead, with the versions of that.
    dead: Vec<(u64, SiloAddress)>,
}

/// Records what each silo publishes.
#[derive(Debug, Default)]
struct Watch {
    record: Record,
    versions: BTreeMap<(TableId, u64), Rc<Version>>,
    /// The last publication of each process.
    last: Vec<Option<Published>>,
}

/// The table, the version, and the hash of the Active silos.
#[derive(Clone, Copy, Debug)]
struct Published {
    name: (TableId, u64),
    who: u64,
}

struct Watcher(Rc<RefCell<Watch>>);

impl Check for Watcher {
    fn invariant(&self) -> &'static str {
        "record"
    }

    fn observe(&mut self, fact: &Fact<'_>, truth: &GroundTruth) -> Result<(), String> {
        if let Fact::Published { process, view } = fact {
            self.0.borrow_mut().published(*process, view, truth);
        }
        Ok(())
    }
}

impl Watch {
    fn published(&mut self, process: ProcessId, view: &ClusterView, truth: &GroundTruth) {
        let Some(by) = truth.record(process).map(|record| record.host) else {
            return;
        };
        let name = (view.table_id(), view.version());
        let version = Rc::clone(
            self.versions
                .entry(name)
                .or_insert_with(|| Rc::new(Version::of(view))),
        );
        if self.last.len() <= process.0 {
            self.last.resize(process.0 + 1, None);
        }
        let Some(last) = self.last.get_mut(process.0) else {
            return;
        };
        let before = last.replace(Published {
            name,
            who: version.who,
        });
        if let Some(before) = before.filter(|before| before.name.0 == name.0) {
            for (_, silo) in version.dead.iter().filter(|(at, _)| *at > before.name.1) {
                if let Some(owner) = truth.owner(silo) {
                    self.record.died(truth.now, by, owner.host);
                }
            }
        }
        // Votes and joining silos change the view, but not the set of members that the application
        // uses.
        if before.is_none_or(|before| before.who != version.who) {
            self.record.counts(truth.now, by, version.active);
        }
    }
}

impl Version {
    fn of(view: &ClusterView) -> Self {
        let declared =
            |cause: &CauseOfDeath| !matches!(cause, CauseOfDeath::Left | CauseOfDeath::Superseded);
        let dead = view.members().filter(|e| e.status == SiloStatus::Dead);
        let dead = dead.filter_map(|e| {
            e.death
                .as_ref()
                .filter(|d| declared(&d.cause))
                .map(|d| (d.version, e.address))
        });
        let (mut active, mut who) = (0, DefaultHasher::new());
        for entry in view.active() {
            active += 1;
            entry.address.hash(&mut who);
        }
        Self {
            active,
            who: who.finish(),
            dead: dead.collect(),
        }
    }
}

/// A simulated cluster and its record.
pub struct Ours {
    /// The cluster, for what other systems do not have: a table, clocks, leaving.
    pub cluster: Cluster,
    watch: Rc<RefCell<Watch>>,
    /// The processes of each member, in the order of their starts.
    processes: Vec<Vec<ProcessId>>,
    /// When the hold of each member ends.
    held: Vec<Duration>,
    killed: Vec<bool>,
    /// Whether silos that were declared dead are restarted.
    pub supervised: bool,
}

/// How the cluster is built.
#[derive(Clone, Debug)]
pub struct Make {
    /// The seed.
    pub seed: u64,
    /// The configuration of every silo.
    pub config: Config,
    /// How the silos differ from this protocol.
    pub variant: ProtocolVariant,
    /// The latency of a table call, in each direction.
    pub table: (Duration, Duration),
    /// Whether frames are encoded and counted.
    pub bytes: bool,
    /// Whether to check every invariant; after a violation the simulation stops.
    pub watched: bool,
}

impl Make {
    /// These settings with the default table, bytes counted, and every invariant checked.
    pub const fn new(seed: u64, config: Config) -> Self {
        Self {
            seed,
            config,
            variant: ProtocolVariant::STANDARD,
            table: (Duration::from_millis(1), Duration::from_millis(6)),
            bytes: true,
            watched: true,
        }
    }

    /// Builds a cluster without silos.
    ///
    /// # Errors
    /// When the configuration is not valid.
    pub fn build(self) -> Result<Ours, Failure> {
        self.build_with(|builder| builder)
    }

    /// Builds a cluster without silos, with more options.
    ///
    /// # Errors
    /// When the configuration is not valid.
    pub fn build_with(self, more: impl FnOnce(Builder) -> Builder) -> Result<Ours, Failure> {
        self.build_beside(Vec::new(), more)
    }

    /// The same, with more observers.
    ///
    /// # Errors
    /// When the configuration is not valid.
    pub fn build_beside(
        self,
        observers: Vec<Box<dyn Check>>,
        more: impl FnOnce(Builder) -> Builder,
    ) -> Result<Ours, Failure> {
        let watch = Rc::new(RefCell::new(Watch::default()));
        let builder = Cluster::builder()
            .seed(self.seed)
            .config(self.config)
            .variant(self.variant)
            .machines(sharing_protocols(self.variant));
        let builder = builder
            .table_latency(self.table.0, self.table.1)
            .count_bytes(self.bytes)
            .hash_inputs(false);
        let mut checks = if self.watched {
            checks::all()
        } else {
            Vec::new()
        };
        checks.push(Box::new(Watcher(Rc::clone(&watch))));
        checks.extend(observers);
        let cluster = more(builder.checks(checks)).build()?;
        Ok(Ours {
            cluster,
            watch,
            processes: Vec::new(),
            held: Vec::new(),
            killed: Vec::new(),
            supervised: true,
        })
    }
}

impl Ours {
    /// The process of a member that was started last.
    pub fn process(&self, member: Member) -> ProcessId {
        self.processes
            .get(member)
            .and_then(|processes| processes.last().copied())
            .unwrap_or(ProcessId(usize::MAX))
    }

    /// Whether a member runs.
    pub fn runs(&self, member: Member) -> bool {
        self.cluster.is_running(self.process(member))
    }

    /// Adds silos as members that were started on the cluster itself.
    pub fn adopt(&mut self, started: &[ProcessId]) -> Range<Member> {
        let first = self.processes.len();
        self.processes
            .extend(started.iter().map(|process| vec![*process]));
        self.held.resize(self.processes.len(), Duration::ZERO);
        self.killed.resize(self.processes.len(), false);
        first..self.processes.len()
    }

    /// Advances virtual time until a condition on the cluster and the processes of each member is
    /// true, but at most by `at_most`. Returns whether it became true.
    ///
    /// # Errors
    /// Why the simulation stopped.
    pub fn run_until(
        &mut self,
        at_most: Duration,
        mut condition: impl FnMut(&Cluster, &[Vec<ProcessId>]) -> bool,
    ) -> Result<bool, Failure> {
        let end = self.cluster.now() + at_most;
        loop {
            let step = SUPERVISOR.min(end.saturating_sub(self.cluster.now()));
            if self
                .cluster
                .run_until(step, |cluster| condition(cluster, &self.processes))?
            {
                return Ok(true);
            }
            if self.cluster.now() >= end {
                return Ok(false);
            }
            self.supervise();
        }
    }

    fn supervise(&mut self) {
        if self.supervised {
            let stopped = (0..self.processes.len())
                .filter(|m| !self.runs(*m) && self.killed.get(*m) == Some(&false));
            for member in stopped.collect::<Vec<_>>() {
                self.renew(member);
            }
        }
    }

    fn renew(&mut self, member: Member) {
        let old = self.process(member);
        let new = self.cluster.restart(old);
        if let Some(processes) = self.processes.get_mut(member) {
            processes.push(new);
        }
        let now = self.cluster.now();
        if let Some(until) = self.held.get(member).copied().filter(|until| *until > now) {
            self.cluster.hold(new, until - now);
        }
    }
}

impl Arena for Ours {
    fn now(&self) -> Duration {
        self.cluster.now()
    }

    fn start(&mut self, members: usize, within: Duration) -> Range<Member> {
        let first = self.processes.len();
        let begin = self.cluster.now();
        let mut moments: Vec<Duration> = (0..members)
            .map(|_| self.cluster.rng().between(Duration::ZERO, within))
            .collect();
        moments.sort();
        for (member, moment) in (first..).zip(moments) {
            // If the simulation stops, the next call that advances time returns why.
            let _ = self
                .cluster
                .run_for((begin + moment).saturating_sub(self.cluster.now()));
            let started = self.cluster.start_at(endpoint(member));
            self.adopt(&[started]);
        }
        let _ = self
            .cluster
            .run_for((begin + within).saturating_sub(self.cluster.now()));
        first..self.processes.len()
    }

    fn kill(&mut self, member: Member) {
        if let Some(killed) = self.killed.get_mut(member) {
            *killed = true;
        }
        self.cluster.kill(self.process(member));
    }

    fn restart(&mut self, member: Member) {
        if let Some(killed) = self.killed.get_mut(member) {
            *killed = false;
        }
        self.renew(member);
    }

    fn hold(&mut self, member: Member, time: Duration) {
        let until = self.cluster.now() + time;
        if let Some(held) = self.held.get_mut(member) {
            *held = until;
        }
        self.cluster.hold(self.process(member), time);
    }

    fn pause(&mut self, member: Member, time: Duration) {
        self.cluster.pause(self.process(member), time);
    }

    fn loss(&mut self, member: Member, egress: f64, ingress: f64) {
        let process = self.process(member);
        self.cluster.egress_loss(process, egress);
        self.cluster.ingress_loss(process, ingress);
    }

    fn partition(&mut self, groups: &[Vec<Member>]) {
        if groups.is_empty() {
            self.cluster.heal();
            return;
        }
        let groups: Vec<Vec<ProcessId>> = groups
            .iter()
            .map(|group| group.iter().map(|m| self.process(*m)).collect())
            .collect();
        self.cluster.partition(&groups);
    }

    fn run_for(&mut self, time: Duration) -> Result<(), Failure> {
        let end = self.cluster.now() + time;
        while self.cluster.now() < end {
            let step = SUPERVISOR.min(end - self.cluster.now());
            self.cluster.run_for(step)?;
            self.supervise();
        }
        Ok(())
    }

    fn record(&self) -> Record {
        self.watch.borrow().record.clone()
    }

    fn all_count(&self, members: Range<Member>, size: usize) -> Option<Duration> {
        self.watch.borrow().record.all_count(members, size)
    }

    fn forget(&mut self) {
        self.watch.borrow_mut().record.forget();
    }

    fn table(&self) -> Option<TableTraffic> {
        Some(self.cluster.table_traffic())
    }

    fn sent(&self, member: Member) -> Traffic {
        let processes = self.processes.get(member).map_or(&[][..], Vec::as_slice);
        processes.iter().fold(Traffic::default(), |sum, id| {
            sum.plus(Traffic {
                messages: self.cluster.messages_sent(*id),
                bytes: self.cluster.bytes_sent(*id),
            })
        })
    }
}

/// The address of a machine.
pub fn endpoint(member: Member) -> SocketAddr {
    let number = u32::try_from(member).unwrap_or(u32::MAX >> 8) | 10 << 24;
    SocketAddr::from((std::net::Ipv4Addr::from(number + 1), 7100))
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use membership_core::protocol::{Effect, Input, Protocol, Setup};
    use membership_core::{MonoTime, Now};
    use membership_testing::Machine;

    use super::*;
    use crate::arena::settled;
    use crate::systems::System;

    /// The protocol with a bug: after a while it publishes again what it published first.
    struct Forgetful {
        protocol: Protocol,
        first: Option<ClusterView>,
        published: u32,
    }

    impl Forgetful {
        fn machine(setup: Setup) -> Box<dyn Machine> {
            Box::new(Self {
                protocol: Protocol::new(setup),
                first: None,
                published: 0,
            })
        }
    }

    impl Machine for Forgetful {
        fn handle(&mut self, now: Now, input: Input, effects: &mut Vec<Effect>) {
            self.protocol.handle(now, input, effects);
            let views: Vec<_> = effects
                .iter()
                .filter_map(|e| {
                    if let Effect::Publish(view) = e {
                        Some(view.clone())
                    } else {
                        None
                    }
                })
                .collect();
            for view in views {
                self.published += 1;
                let first = self.first.get_or_insert(view).clone();
                if self.published == 6 {
                    effects.push(Effect::Publish(first));
                }
            }
        }
        fn next_wakeup(&self) -> Option<MonoTime> {
            self.protocol.next_wakeup()
        }
        fn me(&self) -> Option<SiloAddress> {
            self.protocol.me()
        }
        fn status(&self) -> SiloStatus {
            self.protocol.status()
        }
        fn view(&self) -> Option<&ClusterView> {
            self.protocol.view()
        }
    }

    #[test]
    fn a_broken_invariant_ends_the_experiment() {
        let with_bug = |make: Make| {
            let mut ours = make
                .build_with(|builder| builder.machines(Box::new(Forgetful::machine)))
                .unwrap();
            settled(&mut ours, 8, Duration::from_secs(60))
        };
        let make = System::Membership.make(4, 8).unwrap();
        let failure = with_bug(make.clone()).unwrap_err();
        assert!(
            failure.what.contains("P2 is violated") && failure.what.contains("seed 4"),
            "{failure}"
        );
        // Without checks, as where speed is measured, the run does not fail.
        let unwatched = with_bug(Make {
            watched: false,
            ..make
        })
        .err();
        assert!(unwatched.is_none_or(|failure| !failure.what.contains("is violated")));
    }
}
