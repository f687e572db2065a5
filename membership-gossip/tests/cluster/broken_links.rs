//! One member whose links to others are broken in both directions, while all others reach each other.

use std::time::Duration;

use membership_gossip::Config;
use membership_gossip::downing::{Downing, Strategy};

use crate::net::{Expect as _, Net, NodeId, secs};

/// The member with broken links.
const BAD: NodeId = 4;

fn strategies(members: usize) -> [Strategy; 4] {
    let size = u32::try_from(members / 2 + 1).unwrap();
    [
        Strategy::KeepMajority { role: None },
        Strategy::StaticQuorum { size, role: None },
        Strategy::KeepOldest {
            down_if_alone: true,
            role: None,
        },
        Strategy::lease_majority(),
    ]
}

/// A cluster in which one member does not reach so many others, nor they it.
fn with_broken_links(seed: u64, members: usize, broken: usize, strategy: Strategy) -> Net {
    let mut config = Config::default();
    config.downing = Downing::new(strategy);
    let mut net = Net::cluster(seed, members, &config);
    net.grants = Some(Default::default());
    let mut others: Vec<NodeId> = (0..members).filter(|n| *n != BAD).collect();
    while others.len() > broken {
        let at = net.below(others.len());
        others.swap_remove(at);
    }
    net.split(&[BAD], &others);
    net
}

/// They may lose that one, and at most one with it: a single flag does not say which of two it is.
#[test]
fn one_member_with_broken_links_ends_at_most_one_other() {
    let mut wrong = Vec::new();
    for (members, broken) in [(7, 2), (7, 4), (7, 5), (12, 8), (20, 5), (20, 10), (20, 15)] {
        for strategy in strategies(members) {
            for seed in 0..10 {
                let mut net = with_broken_links(seed, members, broken, strategy.clone());
                net.run(secs(200));
                let living = net.living();
                let others = living.iter().filter(|n| **n != BAD).count();
                if others + 2 < members {
                    let case = format!("{strategy:?}, {broken} links of {members}, seed {seed}");
                    wrong.push(format!("{case}: {living:?} live"));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

/// The network splits while they find out who it is.
#[test]
fn a_split_beside_broken_links_leaves_one_side() {
    let (mut wrong, mut one_lives) = (Vec::new(), 0);
    for (members, broken) in [(5, 2), (7, 4), (8, 5), (12, 8)] {
        for strategy in strategies(members) {
            for seed in 0..40 {
                let mut net = with_broken_links(seed, members, broken, strategy.clone());
                let wait = Duration::from_millis(net.below(70_000) as u64);
                net.run(wait);
                let mut order: Vec<NodeId> = (0..members).collect();
                for at in 0..members {
                    let other = at + net.below(members - at);
                    order.swap(at, other);
                }
                let cut = 1 + net.below(members - 1);
                let (left, right) = order.split_at(cut);
                net.split(left, right);
                net.run(secs(150));
                let living = net.living();
                let (a, b): (Vec<NodeId>, Vec<_>) = living.iter().partition(|n| left.contains(n));
                if !a.is_empty() && !b.is_empty() {
                    let case = format!("{strategy:?}, {broken} links of {members}, seed {seed}");
                    wrong.push(format!("{case}, after {wait:?}: {a:?} and {b:?} live"));
                }
                one_lives += usize::from(a.is_empty() != b.is_empty());
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
    assert!(one_lives > 400, "{one_lives}");
}
