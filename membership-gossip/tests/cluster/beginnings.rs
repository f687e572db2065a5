//! A split while a cluster begins: some are up, or nobody is yet.

use std::time::Duration;

use membership_gossip::Config;
use membership_gossip::downing::{Downing, Strategy};
use membership_gossip::protocol::Command;
use membership_gossip::state::MemberStatus;

use crate::net::{Expect as _, Net, NodeId, endpoint, secs};

const MEMBERS: usize = 7;

fn serving(net: &Net, nodes: &[NodeId]) -> Vec<NodeId> {
    let is_up = |n: &&NodeId| {
        let node = &net.nodes[**n];
        node.lives() && node.protocol.status() == Some(MemberStatus::Up)
    };
    nodes.iter().filter(is_up).copied().collect()
}

/// A network in which all start, until `until`; and its members by `left`.
fn starting(
    seed: u64,
    strategy: &Strategy,
    until: impl Fn(&Net) -> bool,
    left: impl Fn(&Net, NodeId) -> bool,
) -> Option<(Net, Vec<NodeId>, Vec<NodeId>)> {
    let mut config = Config::default();
    config.downing = Downing::new(strategy.clone());
    let mut net = Net::new(seed);
    net.grants = Some(Default::default());
    let all: Vec<_> = (0..MEMBERS).map(|at| net.start(at, &config)).collect();
    net.join_all(&all);
    while !until(&net) {
        if net.now.since(membership_core::MonoTime::ZERO) > secs(60) {
            return None;
        }
        net.run(Duration::from_millis(1));
    }
    let (left, right): (Vec<_>, Vec<_>) = all.iter().partition(|n| left(&net, **n));
    Some((net, left, right))
}

fn knows_all(net: &Net, node: NodeId) -> bool {
    net.nodes[node].protocol.gossip().state().members().len() == MEMBERS
}

/// The side without a majority of the contact points has a member that leaves before anybody was up: a
/// member that leaves counts for a resolver.
#[test]
fn who_leaves_a_cluster_that_has_not_begun_lets_no_second_one_begin() {
    let mut split = 0;
    for seed in 0..60 {
        let all_known = |net: &Net| (0..MEMBERS).all(|n| knows_all(net, n));
        let Some((mut net, left, right)) =
            starting(seed, &Strategy::lease_majority(), all_known, |_, n| n < 3)
        else {
            continue;
        };
        if !serving(&net, &left).is_empty() || !serving(&net, &right).is_empty() {
            continue;
        }
        split += 1;
        net.split(&left, &right);
        net.run(secs(10));
        net.command(4, Command::Leave);
        for _ in 0..120 {
            net.run(secs(1));
            let (left, right) = (serving(&net, &left), serving(&net, &right));
            let at = net.now;
            assert!(
                left.is_empty() || right.is_empty(),
                "seed {seed}, {at}: {left:?}, {right:?}"
            );
        }
        assert_eq!(
            serving(&net, &left),
            left,
            "seed {seed}\n{}",
            net.describe()
        );
        net.heal();
        net.run(secs(60));
        assert_eq!(net.living(), left, "seed {seed}\n{}", net.describe());
    }
    assert!(
        split > 10,
        "{split} networks were split before anybody was up"
    );
}

/// The first are up, and the others, with a majority of the contact points, do not know it yet.
#[test]
fn a_split_at_the_moment_of_the_beginning_leaves_one_side() {
    let strategies = [
        Strategy::lease_majority(),
        Strategy::KeepMajority { role: None },
        Strategy::KeepOldest {
            down_if_alone: true,
            role: None,
        },
        Strategy::StaticQuorum {
            size: 4,
            role: None,
        },
    ];
    for strategy in strategies {
        let mut split = 0;
        for seed in 0..400 {
            let all: Vec<_> = (0..MEMBERS).collect();
            let know = 1 + usize::try_from(seed).unwrap() % 5;
            let begun = |net: &Net| serving(net, &all).len() >= know;
            let is_up = |net: &Net, n| !serving(net, &[n]).is_empty();
            let Some((mut net, left, right)) = starting(seed, &strategy, begun, is_up) else {
                continue;
            };
            let asks = matches!(strategy, Strategy::LeaseMajority { .. });
            let know_the_same = (0..MEMBERS).all(|n| knows_all(&net, n));
            if right.iter().filter(|n| **n < 3).count() < 2 || !(asks || know_the_same) {
                continue;
            }
            split += 1;
            net.split(&left, &right);
            // Both may be up until the sides have decided.
            net.run(secs(90));
            let (left, right) = (serving(&net, &left), serving(&net, &right));
            let case = format!("{strategy:?}, seed {seed}");
            assert!(
                left.is_empty() || right.is_empty(),
                "{case}: {left:?} and {right:?} are up\n{}",
                net.describe()
            );
            assert_ne!((left.len(), right.len()), (0, 0), "{case}: nobody is up");
        }
        assert!(
            split > 5,
            "{strategy:?}: {split} networks were split while they began"
        );
    }
}

/// A member that leaves before anybody is up does not begin for all others: those that join have not seen
/// its state, and another leader may begin with fewer of them.
#[test]
fn who_leaves_before_anybody_is_up_begins_nothing() {
    let has_begun = |net: &Net| net.view(4).members().any(|m| m.up_number().is_some());
    let mut left = 0;
    for seed in 0..20 {
        let mut net = Net::new(seed);
        let config = Config::default();
        let nodes: Vec<_> = (0..5).map(|at| net.start(at, &config)).collect();
        net.join_all(&nodes);
        let knows_all = |net: &Net| net.view(4).members().count() == 5;
        while !knows_all(&net) {
            net.run(Duration::from_millis(1));
        }
        if has_begun(&net) {
            continue;
        }
        left += 1;
        net.split(&[4], &[0, 1, 2, 3]);
        net.command(4, Command::Leave);
        net.run(secs(8));
        assert!(!has_begun(&net), "seed {seed}\n{}", net.describe());
    }
    assert!(left >= 10, "{left}");
}

/// Many join a small cluster while each fifth message is lost. Who was taken in, and has not heard it, is
/// missed: so many of them for so long that nearly all were downed.
#[test]
fn many_join_while_messages_are_lost() {
    for seed in 0..3 {
        let (members, all) = (2, 122);
        let mut net = Net::cluster(seed, members, &Config::default());
        net.loss = 0.2;
        for at in members..all {
            let joiner = net.start(at, &Config::default());
            net.join(joiner, vec![endpoint(0), endpoint(1)]);
        }
        let in_it = |net: &Net| (0..all).all(|n| net.nodes[n].protocol.status().is_some());
        let took = net.run_until(secs(60), in_it);
        net.heal();
        net.run_until(secs(60), Net::is_agreed);
        assert_eq!(net.living().len(), all, "seed {seed}, after {took:?}");
    }
}

/// A cluster is split, and a process joins by a contact point of the side that ends before all of it knows.
/// The others never knew of it, and whoever it could watch is gone: it finds those that go on.
#[test]
fn who_joined_the_side_that_ended_joins_the_other_one() {
    let strategies = [
        Strategy::KeepMajority { role: None },
        Strategy::lease_majority(),
    ];
    let mut cases = [0, 0];
    for (strategy, seed) in strategies.iter().flat_map(|s| (0..40).map(move |n| (s, n))) {
        let mut config = Config::default();
        config.downing = Downing::new(strategy.clone());
        // Who becomes weakly up is counted by a strategy, and ends.
        config.weakly_up_after = None;
        let has_begun = seed % 2 == 1;
        let mut net = Net::new(seed);
        net.grants = Some(Default::default());
        let all: Vec<_> = (0..20).map(|at| net.start(at, &config)).collect();
        net.join_all(&all);
        let all_know = |net: &Net| all.iter().all(|n| net.view(*n).members().count() == 20);
        let is_ready = |net: &Net| all_know(net) && (!has_begun || net.is_agreed());
        while !is_ready(&net) {
            net.run(Duration::from_millis(1));
        }
        let (go_on, end): (Vec<_>, Vec<_>) = all.iter().partition(|n| **n != 2 && **n < 12);
        net.split(&go_on, &end);
        net.run(secs(if has_begun { 15 } else { 30 }));
        let one = net.start(20, &config);
        net.split(&[one], &go_on);
        net.join_all(&[one]);
        net.run(secs(3));
        for node in end {
            net.run(Duration::from_millis(500));
            net.kill(node);
        }
        net.run(secs(30));
        let case = format!("{strategy:?}, seed {seed}");
        // Where some began before the split the strategy ends that side, and this process with it.
        if net.nodes[one].lives() && net.status(one, one) == Some(MemberStatus::Joining) {
            cases[usize::from(has_begun)] += 1;
            assert_eq!(serving(&net, &go_on), go_on, "{case}");
            net.heal();
            net.run(secs(60));
            assert_eq!(net.living().len(), 12, "{case}\n{}", net.describe());
            assert!(net.is_agreed(), "{case}\n{}", net.describe());
        }
    }
    assert!(cases.iter().all(|n| *n > 10), "{cases:?}");
}
