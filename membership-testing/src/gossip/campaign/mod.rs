//! Random campaigns of members without a store: a cluster forms under faults that are drawn from a
//! seed, then come more faults, then none, and all must agree; then the network is split once more,
//! cleanly, and the resolver is judged.

mod fault;
mod strategy;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use membership_core::{MonoTime, SiloAddress};
use membership_gossip::downing::{Strategy, Verdict};
use membership_gossip::protocol::{Command, Notice};
use membership_gossip::state::{MemberStatus, State};
use membership_gossip::{Config, Founding};

pub use fault::Fault;
pub use strategy::config;

use super::checks::Checks;
use super::net::{Net, NodeId, endpoint};

/// How long members may take to agree after the faults. It has room for a resolver, for the operator
/// below, and for the founding of a new cluster.
const SETTLE: Duration = Duration::from_secs(150);
/// When the operator ends all clusters but the largest.
const OPERATOR: Duration = Duration::from_secs(75);
/// How long nothing is wrong.
const CALM: Duration = Duration::from_secs(12);
/// Within this time who is gone meets somebody who knows it.
const MEET: Duration = Duration::from_secs(30);
/// The spread of a decision within a side.
const SPREAD: Duration = Duration::from_secs(15);

/// What happened in one or many runs, by name.
pub type Counts = BTreeMap<&'static str, u64>;

/// How a campaign runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// The number of members.
    pub members: usize,
    /// The number of faults.
    pub faults: usize,
}

impl Default for Options {
    fn default() -> Self {
        let (members, faults) = (20, 6);
        Self { members, faults }
    }
}

/// A run that broke a rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Broken {
    /// Every broken rule: its name, when, where and how.
    pub violations: Vec<String>,
    /// The faults, and what members decided, in the order of time.
    pub story: Vec<String>,
}

/// Runs the campaign of a seed: what happened.
///
/// # Errors
/// The rules that did not hold.
pub fn run(seed: u64, options: &Options) -> Result<Counts, Box<Broken>> {
    run_with(seed, options, &config(seed, options.members))
}

/// The same with a configuration of the caller's.
///
/// # Errors
/// The rules that did not hold.
pub fn run_with(seed: u64, options: &Options, config: &Config) -> Result<Counts, Box<Broken>> {
    let mut run = Run::new(seed, options, config);
    let end = run.all();
    let mut violations = run.checks.0.borrow().violations.clone();
    violations.extend(end.err());
    if run.net.unreadable > 0 {
        violations.push(format!("G7: {} unreadable messages", run.net.unreadable));
    }
    if !violations.is_empty() {
        let story = run.story();
        return Err(Box::new(Broken { violations, story }));
    }
    run.count_notices();
    let mut counts = std::mem::take(&mut run.counts);
    for (what, n) in &run.checks.0.borrow().counts {
        *counts.entry(what).or_default() += n;
    }
    Ok(counts)
}

/// One run.
struct Run<'a> {
    net: Net,
    checks: Checks,
    options: &'a Options,
    config: &'a Config,
    counts: Counts,
    /// Members that an operator has downed: no resolver has decided that.
    operator: BTreeSet<SiloAddress>,
    /// What was done, for whoever looks for the cause of a violation.
    faults: Vec<(MonoTime, String)>,
}

impl<'a> Run<'a> {
    fn new(seed: u64, options: &'a Options, config: &'a Config) -> Self {
        let mut net = Net::new(seed);
        let checks = Checks::new(config);
        checks.0.borrow_mut().bound_states(options.members);
        net.watcher = Some(Box::new(checks.clone()));
        net.encode = seed.is_multiple_of(4);
        net.grants = Some(BTreeMap::new());
        Self {
            net,
            checks,
            options,
            config,
            counts: Counts::new(),
            operator: BTreeSet::new(),
            faults: Vec::new(),
        }
    }

    fn count(&mut self, what: &'static str) {
        *self.counts.entry(what).or_default() += 1;
    }

    fn note(&mut self, what: impl std::fmt::Display) {
        self.faults.push((self.net.now, what.to_string()));
    }

    fn story(&self) -> Vec<String> {
        let mut all = self.faults.clone();
        for (node, process) in self.net.nodes.iter().enumerate() {
            for (at, notice) in &process.notices {
                if let Notice::Decided(decision) = notice {
                    let (verdict, down) = (decision.verdict, decision.down.len());
                    let (reached, unreached) = (decision.reached, decision.unreached);
                    let what = format!(
                        "{node} decides {verdict:?} of {reached} and {unreached}, {down} are downed"
                    );
                    all.push((*at, what));
                }
            }
        }
        all.sort();
        let line = |(at, what): (MonoTime, String)| format!("{at} {what}");
        all.into_iter().map(line).collect()
    }

    /// Everything; the broken rule, if the members do not come to agree.
    fn all(&mut self) -> Result<(), String> {
        let members: Vec<NodeId> = (0..self.options.members)
            .map(|at| self.net.start(at, self.config))
            .collect();
        self.net.join_all(&members);
        let first = Duration::from_secs(self.net.below(10) as u64);
        self.pass(first);
        for _ in 0..self.options.faults {
            self.fault();
            let time = Duration::from_millis(self.net.below(30_000) as u64);
            self.pass(time);
            self.merges();
        }
        self.net.heal();
        self.note("the faults end");
        // A flag may still follow the silence of before, while the next answers are on their way.
        self.pass(self.config.heartbeat_interval * 3);
        self.settle()?;
        self.calm();
        self.clean_split()?;
        self.net.heal();
        self.note("the split ends");
        self.settle()
    }

    /// Lets time pass, and looks at pairs of members once per second.
    fn pass(&mut self, time: Duration) {
        let end = self.net.now + time;
        while self.net.now < end {
            let step = Duration::from_secs(1).min(end.since(self.net.now));
            self.net.run(step);
            self.pairs();
        }
    }

    /// Members of one cluster that live, of which one knows that the other one is gone.
    fn pairs(&mut self) {
        let living = self.net.living();
        let protocol = |node: NodeId| &self.net.nodes[node].protocol;
        let gone = |by: NodeId, of: NodeId| {
            let (by, of) = (protocol(by), protocol(of));
            let is_cluster = by.founding().is_some() && by.founding() == of.founding();
            let status = by.gossip().state().status(&of.me());
            is_cluster && status.is_some_and(|status| status >= MemberStatus::Down)
        };
        let knows = |by: NodeId, of: NodeId| {
            let status = protocol(by).gossip().state().status(&protocol(of).me());
            status.is_some_and(|status| status < MemberStatus::Down)
        };
        let mut pairs = Vec::new();
        for (place, one) in living.iter().enumerate() {
            for two in living.iter().skip(place + 1) {
                pairs.push((*one, *two, gone(*one, *two), gone(*two, *one)));
            }
        }
        let (at, mut facts) = (self.net.now, self.checks.0.borrow_mut());
        if matches!(self.config.downing.strategy, Strategy::LeaseMajority { .. }) {
            let serves = |node: NodeId| {
                let status = self.net.nodes[node].protocol.status();
                let by_operator = self.operator.contains(&self.net.me(node));
                status == Some(MemberStatus::Up) && !by_operator
            };
            for (one, two, ..) in pairs.iter().filter(|(_, _, a, b)| *a && *b) {
                if !serves(*one) || !serves(*two) {
                    continue;
                }
                facts.both_live(at, *one, *two);
            }
        }
        let quiet = self.net.cut.is_empty() && self.net.loss == 0.0;
        let met: BTreeMap<NodeId, NodeId> = pairs
            .iter()
            .flat_map(|(one, two, of_two, of_one)| {
                let gone = of_two.then_some((*two, *one));
                gone.into_iter().chain(of_one.then_some((*one, *two)))
            })
            // Others have no reason to speak: two that are gone for each other, or never met.
            .filter(|(node, by)| knows(*node, *by))
            .filter(|(node, _)| quiet && !self.net.is_paused(*node))
            .collect();
        facts.gone_but_alive(at, &met, MEET);
    }

    /// Merges the states of a few members of one cluster.
    fn merges(&mut self) {
        let living = self.net.living();
        let mut states: Vec<State> = Vec::new();
        let founding = living
            .first()
            .map(|n| self.net.nodes[*n].protocol.founding());
        for _ in 0..3 {
            let one = self.net.below(living.len());
            let Some(node) = living.get(one).map(|node| &self.net.nodes[*node]) else {
                continue;
            };
            if Some(node.protocol.founding()) == founding {
                states.push((**node.protocol.gossip().state()).clone());
            }
        }
        self.checks.0.borrow_mut().merges(self.net.now, &states);
    }

    /// Waits until exactly all members live, and agree. Who is down or gone is started anew at its
    /// endpoint, as an operator would.
    fn settle(&mut self) -> Result<(), String> {
        let begun = self.net.now;
        let mut operator = false;
        while !self.is_whole() {
            let took = self.net.now.since(begun);
            if !operator && took > OPERATOR {
                operator = true;
                self.end_smaller_clusters();
            }
            if took >= SETTLE {
                return Err(format!("G13 {}: {}", self.net.now, self.net.describe()));
            }
            self.end_waiting_first_seed();
            for at in 0..self.options.members {
                if self.is_occupied(at) {
                    continue;
                }
                let node = self.net.start(at, self.config);
                self.join(node, operator);
            }
            self.pass(Duration::from_secs(1));
        }
        self.count("agreed at the end");
        Ok(())
    }

    /// A process joins as an operator lets it: if the first contact point founds alone, those that
    /// were restarted are told of members that live. With `one_is_left` all of those are of one cluster,
    /// in which the contact points may not be.
    fn join(&mut self, node: NodeId, one_is_left: bool) {
        let first_seed = self.config.founding == Founding::FirstSeed;
        let up = |node: &NodeId| self.net.nodes[*node].protocol.status() == Some(MemberStatus::Up);
        let living = self.net.living();
        let up: Vec<_> = living.into_iter().filter(up).collect();
        // Fewer may be about to end.
        let enough = one_is_left && !up.is_empty() || up.len() * 2 > self.options.members;
        if !first_seed || !enough {
            return self.net.join_all(&[node]);
        }
        let points = up.iter().take(3);
        let points = points.map(|n| self.net.me(*n).endpoint()).collect();
        self.net.join(node, points);
    }

    /// Ends a first seed that was told of members which have all ended before they took it in: they say
    /// that they are in no cluster, and it founds none. Started anew, it is told whom it can [join](Self::join),
    /// or founds.
    fn end_waiting_first_seed(&mut self) {
        let living = self.net.living().into_iter();
        let mut first = living.filter(|node| self.net.me(*node).endpoint() == endpoint(0));
        let waits_in_vain = |node: &NodeId| {
            let waiting = self.net.nodes[*node].protocol.waiting();
            waiting.is_some_and(|w| w.needed.is_none() && w.asked.is_none() && w.silent.is_empty())
        };
        if let Some(node) = first.find(waits_in_vain) {
            self.count("first seeds that waited in vain");
            self.note(format_args!(
                "{node} is ended: nobody that it was told of is a member"
            ));
            self.net.kill(node);
        }
    }

    fn is_whole(&self) -> bool {
        let paused = |node: &NodeId| self.net.is_paused(*node);
        !self.net.living().iter().any(paused)
            && self.net.living().len() == self.options.members
            && self.net.is_agreed()
    }

    fn is_occupied(&self, at: usize) -> bool {
        let living = self.net.living();
        living
            .iter()
            .any(|n| self.net.me(*n).endpoint() == endpoint(at))
    }

    /// Ends all clusters but the largest, as an operator would: those of other foundings, and sides
    /// of a split that both went on. They are counted, not hidden.
    fn end_smaller_clusters(&mut self) {
        let mut clusters = BTreeMap::<_, Vec<NodeId>>::new();
        for node in self.net.living() {
            let protocol = &self.net.nodes[node].protocol;
            let members = protocol.gossip().roster().addresses().to_vec();
            let cluster = clusters.entry((protocol.founding(), members));
            cluster.or_default().push(node);
        }
        if clusters.len() < 2 {
            return;
        }
        let foundings = clusters.keys().filter_map(|(founding, _)| *founding);
        let foundings: BTreeSet<_> = foundings.collect();
        let what = if foundings.len() > 1 {
            "islands"
        } else {
            "both sides lived"
        };
        self.count(what);
        self.note(format_args!("{what}: the smaller clusters are ended"));
        let largest = clusters.values().max_by_key(|nodes| nodes.len()).cloned();
        for node in self.net.living() {
            if !largest.as_ref().is_some_and(|nodes| nodes.contains(&node)) {
                self.net.kill(node);
            }
        }
    }

    /// Nothing is wrong, so nobody is flagged and little is sent.
    fn calm(&mut self) {
        let facts = || self.checks.0.borrow_mut();
        facts().calm(Some(self.net.now));
        self.net.run(CALM);
        facts().calm(None);
        self.count("calm times");
    }

    /// The network splits in two while all agree, with at most one change under way, and nothing else
    /// is wrong until all sides have decided: what the strategies assume.
    fn clean_split(&mut self) -> Result<(), String> {
        let living = self.net.living();
        let mut order = living.clone();
        for place in (1..order.len()).rev() {
            let other = self.net.below(place + 1);
            order.swap(place, other);
        }
        let cut = 1 + self.net.below(order.len().saturating_sub(1));
        let (left, right) = order.split_at(cut.min(order.len()));
        let change = self.net.below(3) == 0;
        self.note(format_args!("clean split {left:?} {right:?}"));
        if let (true, Some(one)) = (change, left.first()) {
            self.net.command(*one, Command::Leave);
            self.note(format_args!("{one} leaves"));
            self.count("clean splits with a change under way");
        }
        self.net.split(left, right);
        self.checks.0.borrow_mut().split_begins();
        let begun = self.net.now;
        let downing = &self.config.downing;
        let unstable = downing
            .down_all_when_unstable
            .unwrap_or(downing.stable_after);
        let time = self.detection() + downing.stable_after + unstable + SPREAD;
        while self.net.now.since(begun) < time {
            self.pass(Duration::from_secs(1));
            self.heirs(&living);
        }
        let serves = |node: &&NodeId| {
            let node = &self.net.nodes[**node];
            node.lives() && node.protocol.status() == Some(MemberStatus::Up)
        };
        let side = |side: &[NodeId]| side.iter().filter(serves).copied().collect::<Vec<_>>();
        let (left, right) = (side(left), side(right));
        let mut facts = self.checks.0.borrow_mut();
        facts.split_is_over(self.net.now, [&left, &right]);
        Ok(())
    }

    /// The time from the last sign of life until all of a side know who is silent.
    fn detection(&self) -> Duration {
        self.config.acceptable_heartbeat_pause + self.config.heartbeat_interval * 10
    }

    fn heirs(&self, members: &[NodeId]) {
        let living = members.iter().filter(|n| self.net.nodes[**n].lives());
        let living: Vec<_> = living.map(|n| (*n, self.net.me(*n))).collect();
        let margin = self.config.downing.removal_margin();
        self.checks
            .0
            .borrow_mut()
            .heirs(self.net.now, margin, &living);
    }

    fn count_notices(&mut self) {
        let foundings = self.checks.0.borrow().foundings();
        *self.counts.entry("foundings").or_default() += foundings as u64;
        let mut all = Vec::new();
        for (_, notice) in self.net.nodes.iter().flat_map(|node| &node.notices) {
            all.extend(match notice {
                Notice::Decided(decision) => Some(match decision.verdict {
                    Verdict::DownUnreachable => "down-unreachable",
                    Verdict::DownReachable => "down-reachable",
                    Verdict::DownAll => "down-all",
                    Verdict::DownIndirectlyConnected => "down-indirect",
                    _ => "ask-lease",
                }),
                Notice::LinkBroken { .. } => Some("broken links"),
                Notice::Founded(_) => Some("founded"),
                Notice::Paused(_) => Some("noticed pauses"),
                _ => None,
            });
        }
        for what in all {
            self.count(what);
        }
    }
}
