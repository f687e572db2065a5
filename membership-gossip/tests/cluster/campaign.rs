//! Random faults over many seeds, under all checkers; then the faults end, and the living must agree.

use std::collections::BTreeMap;
use std::time::Duration;

use membership_gossip::downing::Verdict;
use membership_gossip::protocol::{Command, Notice};
use membership_gossip::{Config, Preset};

use crate::checks::Checks;
use crate::net::{Net, NodeId, secs};

/// What happened in all runs.
type Counts = BTreeMap<&'static str, u64>;

fn add(counts: &mut Counts, what: &'static str, n: u64) {
    *counts.entry(what).or_default() += n;
}

/// One run: a cluster forms under faults, then some more, then all is well.
fn run(seed: u64, members: usize, config: &Config, counts: &mut Counts) {
    let mut net = Net::new(seed);
    let checks = Checks::default();
    net.watcher = Some(Box::new(checks.clone()));
    net.encode = seed.is_multiple_of(4);
    for i in 0..members {
        net.start(i, config);
    }
    let all: Vec<NodeId> = (0..members).collect();
    net.join_all(&all);
    let first = secs(net.below(10) as u64);
    net.run(first);
    for _ in 0..6 {
        fault(&mut net, members, config, counts);
        let time = Duration::from_millis(net.below(30_000) as u64);
        net.run(time);
    }
    net.heal();
    // Who is down or gone is started anew at its endpoint, as an operator would.
    let settle = secs(150);
    let begun = net.now;
    let mut parted = false;
    while !is_whole(&net, members) {
        if !parted && net.now.since(begun) > secs(75) {
            parted = true;
            end_smaller_clusters(&mut net, counts);
        }
        assert!(
            net.now.since(begun) < settle,
            "seed {seed}: G13: {}",
            net.describe()
        );
        for at in 0..members {
            if !occupied(&net, at) {
                let node = net.start(at, config);
                net.join_all(&[node]);
            }
        }
        net.run(secs(1));
    }
    let facts = checks.0.borrow();
    assert!(
        facts.violations.is_empty(),
        "seed {seed}: {:#?}",
        facts.violations
    );
    for (what, n) in &facts.counts {
        add(counts, what, *n);
    }
    for node in &net.nodes {
        for (_, notice) in &node.notices {
            match notice {
                Notice::Decided(decision) => add(counts, verdict(decision.verdict), 1),
                Notice::LinkBroken { .. } => add(counts, "links", 1),
                Notice::Founded(_) => add(counts, "founded", 1),
                _ => {}
            }
        }
    }
    add(counts, "foundings", facts.foundings() as u64);
}

const fn verdict(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::DownUnreachable => "down-unreachable",
        Verdict::DownReachable => "down-reachable",
        Verdict::DownAll => "down-all",
        Verdict::DownIndirectlyConnected => "down-indirect",
        Verdict::AskLease => "ask-lease",
    }
}

/// Ends all clusters but the largest, as an operator would: those of other foundings, and sides of a
/// split that both went on. They are counted, not hidden.
fn end_smaller_clusters(net: &mut Net, counts: &mut Counts) {
    let mut clusters = BTreeMap::<_, Vec<NodeId>>::new();
    for node in net.living() {
        let founding = net.nodes[node].protocol.founding();
        let members: Vec<_> = net.view(node).members().map(|m| m.address()).collect();
        clusters.entry((founding, members)).or_default().push(node);
    }
    let foundings: std::collections::BTreeSet<_> = clusters
        .keys()
        .filter_map(|(founding, _)| *founding)
        .collect();
    if clusters.len() < 2 {
        return;
    }
    let what = if foundings.len() > 1 {
        "islands"
    } else {
        "both sides lived"
    };
    add(counts, what, 1);
    let largest = clusters.values().max_by_key(|nodes| nodes.len()).cloned();
    for node in net.living() {
        if !largest.as_ref().is_some_and(|nodes| nodes.contains(&node)) {
            net.kill(node);
        }
    }
}

fn occupied(net: &Net, at: usize) -> bool {
    let endpoint = crate::net::endpoint(at);
    net.living()
        .iter()
        .any(|n| net.me(*n).endpoint() == endpoint)
}

fn is_whole(net: &Net, members: usize) -> bool {
    net.living().len() == members && net.is_agreed()
}

fn fault(net: &mut Net, members: usize, config: &Config, counts: &mut Counts) {
    let living = net.living();
    if living.is_empty() {
        return;
    }
    let one = living[net.below(living.len())];
    match net.below(8) {
        0 => {
            net.kill(one);
            add(counts, "crashes", 1);
        }
        1 => {
            // A restart at the same endpoint.
            let at = (0..members).find(|at| crate::net::endpoint(*at) == net.me(one).endpoint());
            net.kill(one);
            let time = Duration::from_millis(net.below(4_000) as u64);
            net.run(time);
            let node = net.start(at.unwrap(), config);
            net.join_all(&[node]);
            add(counts, "restarts", 1);
        }
        2 => {
            let cut = net.below(living.len());
            let (left, right) = living.split_at(cut);
            net.split(left, right);
            add(counts, "splits", 1);
        }
        3 => {
            // Some links, in one direction.
            for _ in 0..members {
                let (a, b) = (
                    living[net.below(living.len())],
                    living[net.below(living.len())],
                );
                let link = (net.me(a).endpoint(), net.me(b).endpoint());
                net.cut.insert(link);
            }
            add(counts, "links cut", 1);
        }
        4 => {
            net.loss = net.below(40) as f64 / 100.0;
            add(counts, "loss", 1);
        }
        5 => {
            let time = Duration::from_millis(net.below(12_000) as u64);
            net.pause(one, time);
            add(counts, "pauses", 1);
        }
        6 => {
            net.command(one, Command::Leave);
            add(counts, "leaves", 1);
        }
        _ => {
            net.heal();
            add(counts, "heals", 1);
        }
    }
}

/// A campaign in which something never happens proves nothing about it.
#[allow(
    clippy::print_stdout,
    clippy::disallowed_macros,
    reason = "what happened is for whoever runs a campaign"
)]
fn floors(counts: &Counts, due: &[&str]) {
    println!("{counts:?}");
    let faults = [
        "crashes",
        "restarts",
        "splits",
        "links cut",
        "loss",
        "pauses",
        "leaves",
        "heals",
    ];
    if std::env::var("MEMBERSHIP_GOSSIP_SEEDS").is_err() {
        for what in faults.iter().chain(due) {
            assert!(
                counts.get(what).is_some_and(|n| *n > 0),
                "no {what}: {counts:?}"
            );
        }
    }
}

/// The seeds of a run: few by default, others by `MEMBERSHIP_GOSSIP_SEEDS=0..5000`.
fn seeds(usual: u64) -> std::ops::Range<u64> {
    let Ok(text) = std::env::var("MEMBERSHIP_GOSSIP_SEEDS") else {
        return 0..usual;
    };
    let (from, to) = text
        .split_once("..")
        .expect("MEMBERSHIP_GOSSIP_SEEDS is from..to");
    from.parse().unwrap()..to.parse().unwrap()
}

#[test]
fn five_members_of_the_default_preset() {
    let mut counts = Counts::new();
    for seed in seeds(80) {
        run(seed, 5, &Config::default(), &mut counts);
    }
    floors(
        &counts,
        &[
            "agreements",
            "removals",
            "down-unreachable",
            "down-reachable",
            "links",
        ],
    );
    // Under the default founding and resolver both sides of a split do not live.
    assert_eq!(counts.get("both sides lived"), None, "{counts:?}");
}

#[test]
fn twenty_members_of_the_default_preset() {
    let mut counts = Counts::new();
    for seed in seeds(12) {
        run(seed, 20, &Config::default(), &mut counts);
    }
    floors(
        &counts,
        &["agreements", "removals", "down-unreachable", "links"],
    );
}

#[test]
fn five_members_of_the_specification() {
    let mut counts = Counts::new();
    let mut config = Config::preset(Preset::Akka);
    // The specification leaves downing to the operator.
    config.downing = membership_gossip::downing::Downing::default();
    for seed in seeds(30) {
        run(seed, 5, &config, &mut counts);
    }
    floors(
        &counts,
        &[
            "agreements",
            "removals",
            "down-unreachable",
            "down-reachable",
        ],
    );
}
