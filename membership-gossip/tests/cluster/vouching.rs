//! Others are asked whether they reach a process that joins, and what they say comes late.

use std::time::Duration;

use membership_gossip::Config;

use crate::net::{Expect as _, Net, NodeId, endpoint, secs};

const MEMBERS: usize = 10;

/// Starts a process that the first member reaches, and nobody else.
fn start_beside_the_first(net: &mut Net, at: usize) -> NodeId {
    let node = net.start(at, &Config::default());
    for other in 1..MEMBERS {
        net.unroutable.insert((endpoint(other), endpoint(at)));
    }
    net.join(node, vec![endpoint(0)]);
    node
}

fn was_taken_in(net: &Net, nodes: &[NodeId]) -> bool {
    let known = |node: &NodeId| net.view(0).member(&net.me(*node)).is_some();
    nodes.iter().any(known)
}

/// Several of them ask again and again, so that members look at what is not answered at any time; and
/// messages take as long as they do between regions.
#[test]
fn who_does_not_reach_a_process_says_so_in_time() {
    for seed in 0..10 {
        let mut net = Net::cluster(seed, MEMBERS, &Config::default());
        net.latency = (Duration::from_millis(100), Duration::from_millis(200));
        let mut joiners = Vec::new();
        for at in 0..4 {
            joiners.push(start_beside_the_first(&mut net, MEMBERS + at));
            let wait = net.below(1_500) as u64;
            net.run(Duration::from_millis(wait));
        }
        for _ in 0..300 {
            net.run(secs(1));
            let at = net.now;
            assert!(!was_taken_in(&net, &joiners), "seed {seed}, {at}");
        }
        let living = net.living().len();
        assert_eq!(living, MEMBERS + joiners.len(), "seed {seed}");
    }
}

/// What others have said waits for a member that stood still: that they said nothing is not so.
#[test]
fn who_stood_still_hears_others_before_it_takes_a_process_in() {
    for seed in 0..10 {
        for time in [2_500, 3_500, 8_000] {
            let mut net = Net::cluster(seed, MEMBERS, &Config::default());
            let joiner = start_beside_the_first(&mut net, MEMBERS);
            net.run(Duration::from_millis(50 + 100 * seed));
            net.pause(0, Duration::from_millis(time));
            for _ in 0..60 {
                net.run(secs(1));
                let (at, taken) = (net.now, was_taken_in(&net, &[joiner]));
                assert!(!taken, "seed {seed}, {time} ms, {at}");
            }
        }
    }
}
