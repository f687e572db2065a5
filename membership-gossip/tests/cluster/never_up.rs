//! Members that leave before they were up: for a resolver they are like those that join.

use std::time::Duration;

use membership_gossip::Config;
use membership_gossip::downing::{Downing, Strategy};
use membership_gossip::protocol::Command;
use membership_gossip::state::MemberStatus;

use crate::net::{Expect as _, Net, NodeId, endpoint, secs};

fn strategies() -> [Strategy; 4] {
    let (role, down_if_alone) = (None, true);
    [
        Strategy::KeepMajority { role: None },
        Strategy::KeepOldest {
            down_if_alone,
            role,
        },
        Strategy::StaticQuorum {
            size: 3,
            role: None,
        },
        Strategy::lease_majority(),
    ]
}

/// Five members.
fn cluster(seed: u64, strategy: &Strategy) -> (Net, Config) {
    let mut config = Config::default();
    config.downing = Downing::new(strategy.clone());
    let mut net = Net::cluster(seed, 5, &config);
    net.grants = Some(Default::default());
    (net, config)
}

/// For some time a process is started at an endpoint, leaves, and is started again.
fn come_and_go(net: &mut Net, config: &Config, time: Duration, stays: u64, away: u64) {
    let end = net.now + time;
    while net.now < end {
        let node = net.start(5, config);
        net.join_all(&[node]);
        net.run(secs(stays));
        net.command(node, Command::Leave);
        net.run(secs(away));
        net.kill(node);
    }
}

fn lives(net: &Net, nodes: &[NodeId]) -> bool {
    nodes.iter().any(|node| net.nodes[*node].lives())
}

/// Nobody is moved up during a split, so who comes and goes is never up: both sides decide in time.
#[test]
fn a_process_that_is_started_and_stopped_in_a_split_leaves_one_side() {
    for strategy in strategies() {
        for seed in 0..13 {
            for (stays, away) in [(3, 3), (6, 6), (2, 10), (12, 4)] {
                let (mut net, config) = cluster(seed, &strategy);
                let (left, right) = ([0, 1], [2, 3, 4]);
                net.split(&left, &right);
                // It is at one of both sides.
                let cut = if seed % 2 == 0 { &right[..] } else { &left[..] };
                for other in cut.iter().map(|n| endpoint(*n)) {
                    net.cut.extend([(endpoint(5), other), (other, endpoint(5))]);
                }
                come_and_go(&mut net, &config, secs(120), stays, away);
                let (left, right) = (lives(&net, &left), lives(&net, &right));
                let case = format!("{strategy:?}, seed {seed}, {stays} s, {away} s away");
                assert!(left != right, "{case}: {left} {right}\n{}", net.describe());
            }
        }
    }
}

#[test]
fn who_has_crashed_is_downed_while_a_process_is_started_and_stopped() {
    for strategy in strategies() {
        for seed in 0..13 {
            for (stays, away) in [(3, 3), (6, 6), (2, 10), (12, 4)] {
                let (mut net, config) = cluster(seed, &strategy);
                net.kill(4);
                come_and_go(&mut net, &config, secs(75), stays, away);
                let case = format!("{strategy:?}, seed {seed}, {stays} s, {away} s away");
                let is_gone = net.status(0, 4) >= Some(MemberStatus::Down);
                assert!(is_gone, "{case}\n{}", net.describe());
                net.run(secs(60));
                assert_eq!(net.living(), [0, 1, 2, 3], "{case}");
                assert!(net.is_agreed(), "{case}\n{}", net.describe());
            }
        }
    }
}

/// Somebody crashes, and one process more than the quorum allows is started and stopped.
#[test]
fn who_leaves_before_it_is_up_is_not_one_too_many_for_a_quorum() {
    let [_, _, quorum, _] = strategies();
    for seed in 0..50 {
        let (mut net, config) = cluster(seed, &quorum);
        net.kill(4);
        net.run(secs(8));
        let node = net.start(5, &config);
        net.join_all(&[node]);
        net.run(secs(4));
        net.command(node, Command::Leave);
        net.run(secs(100));
        assert_eq!(
            net.living(),
            [0, 1, 2, 3],
            "seed {seed}\n{}",
            net.describe()
        );
    }
}

/// Two processes join the smaller side and leave it. The larger one asks the arbiter first.
#[test]
fn those_who_leave_before_they_are_up_do_not_ask_first() {
    let [.., lease] = strategies();
    for seed in 0..50 {
        let (mut net, config) = cluster(seed, &lease);
        net.hold_exit = true;
        net.split(&[0, 1], &[2, 3, 4]);
        let joins = [5, 6].map(|at| net.start(at, &config));
        for other in [2, 3, 4].map(endpoint) {
            for joins in [5, 6].map(endpoint) {
                net.cut.extend([(joins, other), (other, joins)]);
            }
        }
        net.join_all(&joins);
        net.run(secs(2));
        joins
            .iter()
            .for_each(|node| net.command(*node, Command::Leave));
        net.run(secs(60));
        assert_eq!(net.living(), [2, 3, 4], "seed {seed}\n{}", net.describe());
    }
}

/// The oldest member is the one that was up first: in a cluster that has not begun there is none.
#[test]
fn nobody_who_was_never_up_is_the_oldest() {
    let mut net = Net::new(1);
    let mut config = Config::default();
    config.min_members = 4;
    let nodes: Vec<_> = (0..3).map(|at| net.start(at, &config)).collect();
    net.join_all(&nodes);
    net.run(secs(20));
    net.hold_exit = true;
    net.command(2, Command::Leave);
    net.run(Duration::from_millis(5));
    assert_eq!(net.status(2, 2), Some(MemberStatus::Leaving));
    assert_eq!(net.view(2).oldest(), None);
}
