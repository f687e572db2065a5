//! Members that are restarted before others miss them, and what becomes of the cluster that they were
//! members of.

use std::time::Duration;

use membership_gossip::{Config, Preset};

use crate::net::{Expect as _, Net, NodeId, endpoint, foundings, secs};

/// All contact points end at once and are back before anybody has missed them.
#[test]
fn contact_points_that_are_restarted_quickly_found_no_second_cluster() {
    for seed in 0..10 {
        for (members, away) in [
            (5, 500),
            (7, 500),
            (7, 2_000),
            (7, 4_000),
            (20, 1_000),
            (7, 8_000),
        ] {
            let mut net = Net::cluster(seed, members, &Config::default());
            (0..3).for_each(|node| net.kill(node));
            net.run(Duration::from_millis(away));
            let again: Vec<_> = (0..3).map(|at| net.start(at, &Config::default())).collect();
            net.join_all(&again);
            let took = net.try_run_until(secs(90), Net::is_agreed);
            let case = format!("seed {seed}, {members} members, {away} ms away");
            assert!(
                took.is_ok(),
                "{case}: {} foundings\n{}",
                foundings(&net),
                net.describe()
            );
            assert_eq!(
                (foundings(&net), net.living().len()),
                (1, members),
                "{case}"
            );
        }
    }
}

/// All but one are restarted at once.
#[test]
fn all_but_one_are_restarted_at_once() {
    for seed in 0..10 {
        for (members, away) in [(3, 500), (4, 1_000), (5, 500), (5, 3_000), (5, 10_000)] {
            let mut net = Net::cluster(seed, members, &Config::default());
            let old = members - 1;
            (0..old).for_each(|node| net.kill(node));
            net.run(Duration::from_millis(away));
            let again: Vec<_> = (0..old)
                .map(|at| net.start(at, &Config::default()))
                .collect();
            net.join_all(&again);
            net.run(secs(90));
            let case = format!("seed {seed}, {members} members, {away} ms away");
            assert_eq!(foundings(&net), 1, "{case}\n{}", net.describe());
            assert_eq!(net.living().len(), members, "{case}\n{}", net.describe());
            assert!(net.is_agreed(), "{case}\n{}", net.describe());
        }
    }
}

/// Contact points that come up one minute apart, and others before them.
#[test]
fn contact_points_come_up_one_minute_apart() {
    for seed in 0..10 {
        let mut net = Net::new(seed);
        let points: Vec<_> = (0..3).map(endpoint).collect();
        for at in [4, 3, 2, 1, 0] {
            let node = net.start(at, &Config::default());
            net.join(node, points.clone());
            net.run(secs(60));
        }
        net.run_until(secs(30), Net::is_agreed);
        assert_eq!(foundings(&net), 1);
    }
}

/// The half of the contact points is dead for good: who joins later finds the others.
#[test]
fn half_of_the_contact_points_are_dead_for_good() {
    for seed in 0..10 {
        let mut net = Net::new(seed);
        let points: Vec<_> = (0..5).map(endpoint).collect();
        for at in 0..5 {
            let node = net.start(at, &Config::default());
            net.join(node, points.clone());
        }
        net.run_until(secs(60), Net::is_agreed);
        for dead in [0, 1] {
            net.kill(dead);
            net.run(secs(40));
        }
        for at in 5..9 {
            let node = net.start(at, &Config::default());
            net.join(node, points.clone());
        }
        net.run_until(secs(40), Net::is_agreed);
        assert_eq!((foundings(&net), net.living().len()), (1, 7));
    }
}

/// The founder is cut off, the other contact points are restarted and found once more, and one of them is
/// dead for good: two clusters that have not begun, each with one contact point of three.
#[test]
fn of_two_clusters_that_have_not_begun_one_gives_way() {
    fn founder(net: &Net, of: &[NodeId]) -> Option<NodeId> {
        let has_founded = |node: &&NodeId| net.nodes[**node].protocol.founding().is_some();
        of.iter().find(has_founded).copied()
    }
    for seed in 0..20 {
        let mut net = Net::new(seed);
        let all: Vec<_> = (0..3).map(|at| net.start(at, &Config::default())).collect();
        net.join_all(&all);
        while founder(&net, &all).is_none() {
            net.run(Duration::from_millis(1));
        }
        let first = founder(&net, &all).unwrap();
        let others: Vec<_> = (0..3).filter(|n| *n != first).collect();
        net.split(&[first], &others);
        others.iter().for_each(|n| net.kill(*n));
        net.run(secs(1));
        let again: Vec<_> = others
            .iter()
            .map(|at| net.start(*at, &Config::default()))
            .collect();
        net.join_all(&again);
        while founder(&net, &again).is_none() {
            net.run(Duration::from_millis(1));
        }
        let second = founder(&net, &again).unwrap();
        let dead = again.into_iter().find(|n| *n != second).unwrap();
        net.kill(dead);
        net.heal();
        assert_eq!(foundings(&net), 2, "seed {seed}");
        net.run_until(secs(30), Net::is_agreed);
        assert_eq!((foundings(&net), net.living().len()), (1, 2), "seed {seed}");
    }
}

/// In the specification only the first seed founds: it is told of members of the cluster, lest it found
/// another one, and they end before they take it in. Whoever asks it waits with it, until it is started
/// again with its own contact points.
#[test]
fn a_first_seed_that_was_told_of_members_which_ended_founds_once_it_is_started_again() {
    let config = Config::preset(Preset::Akka);
    for seed in 0..10 {
        let mut net = Net::cluster(seed, 5, &config);
        net.kill(0);
        net.run(secs(10));
        let told = net.start(0, &config);
        net.join(told, (1..4).map(endpoint).collect());
        net.run(secs(1));
        (1..5).for_each(|node| net.kill(node));
        let others: Vec<_> = (1..5).map(|at| net.start(at, &config)).collect();
        net.join_all(&others);
        net.run(secs(120));
        let waiting = |node: NodeId| net.nodes[node].protocol.waiting();
        assert!(others.iter().all(|node| waiting(*node).is_some()));
        let waiting = waiting(told).expect("it waits");
        assert_eq!((waiting.needed, waiting.asked), (None, None), "{waiting}");
        assert_eq!(waiting.answered.len(), 3, "{waiting}");
        net.kill(told);
        let again = net.start(0, &config);
        net.join_all(&[again]);
        net.run_until(secs(60), Net::is_agreed);
        assert_eq!((foundings(&net), net.living().len()), (1, 5), "seed {seed}");
    }
}
