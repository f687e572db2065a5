//! Our protocol as a world of members: the virtual cluster of `membership_core::testing`, watched.
//!
//! First detection is the moment at which the first silo publishes a view in which the other one is Dead (voted out, evicted or stuck);
//! since a silo dies by a commit to the table, everybody learns the same death, at the latest with the next read. A false death is one
//! whose silo was running. A silo that stopped because it was declared dead is started anew at its address a second later, as a supervisor
//! does.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::net::SocketAddr;
use std::ops::Range;
use std::rc::Rc;
use std::time::Duration;

use membership_core::protocol::{Manner, Protocol};
use membership_core::testing::checks::{self, Check, Fact};
use membership_core::testing::{Builder, Circumstances, Cluster, ProcessId, TableTraffic};
use membership_core::{CauseOfDeath, ClusterView, Config, SiloAddress, SiloStatus, TableId};

use crate::arena::{Arena, Member, Record, Traffic, Trouble};

/// How long a supervisor takes to start again what stopped.
const SUPERVISOR: Duration = Duration::from_secs(1);

/// What a version of the table says: computed once, whoever publishes it.
#[derive(Debug)]
struct Version {
    active: usize,
    /// Equal where the same silos are Active.
    who: u64,
    /// Who was declared dead, with the version of that.
    dead: Vec<(u64, SiloAddress)>,
}

/// Takes down who publishes what.
#[derive(Debug, Default)]
struct Watch {
    record: Record,
    versions: BTreeMap<(TableId, u64), Rc<Version>>,
    /// By process: what it published last.
    last: Vec<Option<Published>>,
}

/// The table, the version, and who is Active in it.
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

    fn see(&mut self, fact: &Fact<'_>, truth: &Circumstances) -> Result<(), String> {
        if let Fact::Published { process, view } = fact {
            self.0.borrow_mut().published(*process, view, truth);
        }
        Ok(())
    }
}

impl Watch {
    fn published(&mut self, process: ProcessId, view: &ClusterView, truth: &Circumstances) {
        let Some(by) = truth.life(process).map(|life| life.place) else {
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
                if let Some(life) = truth.owner(silo) {
                    self.record.died(truth.now, by, life.place);
                }
            }
        }
        // Votes, and whoever is still joining, change the view, but not the set of members that the application is to use.
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

/// A virtual cluster and its record.
pub struct Ours {
    /// The cluster itself, for what other systems have not: a table, clocks, leaving.
    pub cluster: Cluster,
    watch: Rc<RefCell<Watch>>,
    /// The processes of each member, the last one last.
    lives: Vec<Vec<ProcessId>>,
    /// Until when each member's machine is held.
    held: Vec<Duration>,
    killed: Vec<bool>,
    /// Whether silos that were declared dead are started anew.
    pub supervised: bool,
}

/// How the cluster is made.
#[derive(Clone, Debug)]
pub struct Make {
    /// Decides every throw of the dice.
    pub seed: u64,
    /// Of every silo.
    pub config: Config,
    /// Where its silos do otherwise than this protocol.
    pub manner: Manner,
    /// How long a table call takes in either direction.
    pub table: (Duration, Duration),
    /// Whether frames are encoded and counted.
    pub bytes: bool,
    /// Whether every invariant is watched: one that is broken makes the world stand still.
    pub watched: bool,
}

impl Make {
    /// With these settings, the usual table, bytes counted, and every invariant watched.
    pub const fn new(seed: u64, config: Config) -> Self {
        Self {
            seed,
            config,
            manner: Manner::OWN,
            table: (Duration::from_millis(1), Duration::from_millis(6)),
            bytes: true,
            watched: true,
        }
    }

    /// The world without anybody.
    ///
    /// # Errors
    /// When the configuration is not valid.
    pub fn build(self) -> Result<Ours, Trouble> {
        self.build_with(|builder| builder)
    }

    fn build_with(self, more: impl FnOnce(Builder) -> Builder) -> Result<Ours, Trouble> {
        let watch = Rc::new(RefCell::new(Watch::default()));
        let manner = self.manner;
        let builder = Cluster::builder().seed(self.seed).config(self.config);
        let builder = builder.machines(Box::new(move |setup| {
            Box::new(Protocol::new(setup).behaving(manner))
        }));
        let builder = builder
            .table_latency(self.table.0, self.table.1)
            .count_bytes(self.bytes);
        let mut checks = if self.watched {
            checks::all()
        } else {
            Vec::new()
        };
        checks.push(Box::new(Watcher(Rc::clone(&watch))));
        let cluster = more(builder.checks(checks)).build()?;
        Ok(Ours {
            cluster,
            watch,
            lives: Vec::new(),
            held: Vec::new(),
            killed: Vec::new(),
            supervised: true,
        })
    }
}

impl Ours {
    /// The process of a member that was started last.
    pub fn process(&self, member: Member) -> ProcessId {
        self.lives
            .get(member)
            .and_then(|lives| lives.last().copied())
            .unwrap_or(ProcessId(usize::MAX))
    }

    /// Whether it runs.
    pub fn runs(&self, member: Member) -> bool {
        self.cluster.is_running(self.process(member))
    }

    /// Takes in silos that were started on the cluster itself.
    pub fn adopt(&mut self, started: &[ProcessId]) -> Range<Member> {
        let first = self.lives.len();
        self.lives
            .extend(started.iter().map(|process| vec![*process]));
        self.held.resize(self.lives.len(), Duration::ZERO);
        self.killed.resize(self.lives.len(), false);
        first..self.lives.len()
    }

    /// Lets time pass until a condition on the cluster and the processes of each member holds, but at most so long; says whether it held.
    ///
    /// # Errors
    /// What made the world stand still.
    pub fn run_until(
        &mut self,
        at_most: Duration,
        mut condition: impl FnMut(&Cluster, &[Vec<ProcessId>]) -> bool,
    ) -> Result<bool, Trouble> {
        let end = self.cluster.now() + at_most;
        loop {
            let step = SUPERVISOR.min(end.saturating_sub(self.cluster.now()));
            if self
                .cluster
                .run_until(step, |cluster| condition(cluster, &self.lives))?
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
            let stopped = (0..self.lives.len())
                .filter(|m| !self.runs(*m) && self.killed.get(*m) == Some(&false));
            for member in stopped.collect::<Vec<_>>() {
                self.renew(member);
            }
        }
    }

    fn renew(&mut self, member: Member) {
        let old = self.process(member);
        let new = self.cluster.restart(old);
        if let Some(lives) = self.lives.get_mut(member) {
            lives.push(new);
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
        let first = self.lives.len();
        let begin = self.cluster.now();
        let mut moments: Vec<Duration> = (0..members)
            .map(|_| self.cluster.dice().between(Duration::ZERO, within))
            .collect();
        moments.sort();
        for (member, moment) in (first..).zip(moments) {
            // Should the world stand still, whoever lets time pass next hears of it.
            let _ = self
                .cluster
                .run_for((begin + moment).saturating_sub(self.cluster.now()));
            let started = self.cluster.start_at(endpoint(member));
            self.adopt(&[started]);
        }
        let _ = self
            .cluster
            .run_for((begin + within).saturating_sub(self.cluster.now()));
        first..self.lives.len()
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

    fn run_for(&mut self, time: Duration) -> Result<(), Trouble> {
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
        let lives = self.lives.get(member).map_or(&[][..], Vec::as_slice);
        lives.iter().fold(Traffic::default(), |sum, id| {
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
    use membership_core::testing::Machine;
    use membership_core::{MonoTime, Now};

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
        let trouble = with_bug(make.clone()).unwrap_err();
        assert!(
            trouble.what.contains("P2 does not hold") && trouble.what.contains("seed 4"),
            "{trouble}"
        );
        // Nobody watches where speed is measured: then the world only looks odd.
        let unwatched = with_bug(Make {
            watched: false,
            ..make
        })
        .err();
        assert!(unwatched.is_none_or(|trouble| !trouble.what.contains("does not hold")));
    }
}
