//! One member whose links to others are broken in both directions, while all others reach each other.

use std::time::Duration;

use membership_gossip::Config;
use membership_gossip::downing::{Downing, Strategy};

use crate::net::{Expect as _, Net, NodeId, secs};

/// The member with broken links.
const BAD: NodeId = 4;

pub(crate) fn strategies(members: usize) -> [Strategy; 4] {
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

/// They may lose that one, and nobody with it.
#[test]
fn one_member_with_broken_links_ends_nobody_else() {
    let mut wrong = Vec::new();
    for (members, broken) in [(7, 2), (7, 4), (7, 5), (12, 8), (20, 5), (20, 10), (20, 15)] {
        for strategy in strategies(members) {
            for seed in 0..5 {
                let mut net = with_broken_links(seed, members, broken, strategy.clone());
                net.run(secs(200));
                let living = net.living();
                let others = living.iter().filter(|n| **n != BAD).count();
                if others + 1 < members {
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

/// Only who is at one end of a broken link watches more than usual, and that many at most: half of the
/// members that crash at one moment, or the other side of a split, make nobody do so.
#[test]
fn a_crash_of_many_and_a_split_make_nobody_watch_more() {
    let usual = Config::default().monitored_by as usize;
    let most = |net: &Net| {
        let watched = net
            .living()
            .into_iter()
            .map(|n| net.nodes[n].protocol.watched().len());
        watched.max().unwrap_or(0)
    };
    let keep_majority = Strategy::KeepMajority { role: None };
    let mut ends_watch = 0;
    for seed in 0..3 {
        let mut crash = Net::cluster(seed, 100, &Config::default());
        (50..100).for_each(|n| crash.kill(n));
        let mut split = Net::cluster(seed, 20, &Config::default());
        let (left, right): (Vec<_>, Vec<_>) = (0..20).partition(|n| n % 2 == 0);
        split.split(&left, &right);
        let mut broken = with_broken_links(seed, 80, 60, keep_majority.clone());
        for _ in 0..60 {
            for net in [&mut crash, &mut split, &mut broken] {
                net.run(secs(1));
            }
            assert!(
                most(&crash) <= usual && most(&split) <= usual,
                "seed {seed}"
            );
            ends_watch = ends_watch.max(most(&broken));
        }
    }
    assert_eq!(ends_watch, 64);
}
