//! One member whose links to others are broken in both directions, while all others reach each other.

use std::time::Duration;

use membership_gossip::Config;
use membership_gossip::downing::{Downing, Strategy};
use membership_gossip::state::MemberStatus;

use crate::net::{Expect as _, Net, NodeId, endpoint, secs};

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
                let order = shuffled(&mut net, members);
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

/// A cluster in which two groups do not reach each other, and a third one reaches both; with the groups.
fn with_groups(seed: u64, sizes: [usize; 3], strategy: Strategy) -> (Net, [Vec<NodeId>; 3]) {
    let members = sizes.iter().sum::<usize>();
    let mut config = Config::default();
    config.downing = Downing::new(strategy);
    let mut net = Net::cluster(seed, members, &config);
    net.grants = Some(Default::default());
    let mut order = shuffled(&mut net, members);
    let groups = sizes.map(|size| order.drain(..size).collect::<Vec<_>>());
    net.split(&groups[0], &groups[1]);
    (net, groups)
}

fn shuffled(net: &mut Net, members: usize) -> Vec<NodeId> {
    let mut order: Vec<NodeId> = (0..members).collect();
    for at in 0..members {
        let other = at + net.below(members - at);
        order.swap(at, other);
    }
    order
}

/// Of two groups that do not reach each other one goes, also if both are as large, and nobody of the third.
/// Where others always help nobody is flagged, and all stay.
#[test]
fn two_groups_do_not_end_the_third() {
    let mut wrong = Vec::new();
    for sizes in [
        [3, 3, 3],
        [4, 4, 4],
        [2, 3, 4],
        [3, 3, 1],
        [5, 5, 2],
        [7, 7, 6],
    ] {
        let members = sizes.iter().sum();
        for strategy in strategies(members) {
            for seed in 0..5 {
                let (mut net, groups) = with_groups(seed, sizes, strategy.clone());
                net.run(secs(200));
                let settled = net.try_run_until(secs(60), Net::is_agreed);
                let living = net.living();
                let lives =
                    |group: &Vec<NodeId>| group.iter().filter(|n| living.contains(n)).count();
                let lived = groups.each_ref().map(lives);
                let one_goes = lived == [0, sizes[1], sizes[2]] || lived == [sizes[0], 0, sizes[2]];
                if settled.is_err() || !(one_goes || lived == sizes) {
                    let case = format!("{}, {sizes:?}, seed {seed}", strategy.name());
                    wrong.push(format!("{case}: {lived:?} live"));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

/// The network splits while they find out which group it is, and both are as large: anywhere, or along the two
/// groups, and at times in one direction first.
#[test]
fn a_split_beside_two_equal_groups_leaves_one_side() {
    let (mut wrong, mut one_lives) = (Vec::new(), 0);
    for seed in 0..200 {
        let mut draw = Net::new(seed);
        let members = 6 + draw.below(7);
        let one = 1 + draw.below((members - 1) / 2);
        let sizes = [one, one, members - 2 * one];
        // Mostly about when they decide.
        let wait = 22_000 + draw.below(20_000);
        let wait = if draw.chance(0.7) {
            wait
        } else {
            draw.below(60_000)
        };
        for strategy in strategies(members) {
            let (mut net, groups) = with_groups(seed, sizes, strategy.clone());
            net.run(Duration::from_millis(wait as u64));
            let (left, right) = if net.chance(0.5) {
                let of_one = net.below(groups[2].len() + 1);
                let (with_one, with_other) = groups[2].split_at(of_one);
                (
                    [&groups[0], with_one].concat(),
                    [&groups[1], with_other].concat(),
                )
            } else {
                let mut left = shuffled(&mut net, members);
                let right = left.split_off(1 + net.below(members - 1));
                (left, right)
            };
            if net.chance(0.5) {
                for (from, to) in left
                    .iter()
                    .flat_map(|a| right.iter().map(move |b| (*a, *b)))
                {
                    net.cut.insert((endpoint(from), endpoint(to)));
                }
                let late = net.below(3_000);
                net.run(Duration::from_millis(late as u64));
            }
            net.split(&left, &right);
            net.run(secs(150));
            let living = net.living();
            let (a, b): (Vec<NodeId>, Vec<_>) = living.iter().partition(|n| left.contains(n));
            if !a.is_empty() && !b.is_empty() {
                let case = format!("{}, {groups:?}, seed {seed}", strategy.name());
                wrong.push(format!("{case}, after {wait} ms: {a:?} and {b:?} live"));
            }
            one_lives += usize::from(a.is_empty() != b.is_empty());
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
    assert!(one_lives > 500, "{one_lives}");
}

/// The network splits at the moment at which it is decided which of two groups goes, or that both do, so that
/// those on the larger side never hear of it.
#[test]
fn a_split_at_a_decision_leaves_one_side() {
    let (mut wrong, mut splits) = (Vec::new(), 0);
    for (sizes, most_know) in [([3, 3, 4], 1), ([3, 3, 6], 5)] {
        let members = sizes.iter().sum();
        for strategy in strategies(members) {
            for seed in 0..30 {
                let know = 1 + seed as usize % most_know;
                let (mut net, groups) = with_groups(seed, sizes, strategy.clone());
                let Some((left, right)) = split_at_decision(&mut net, &groups, know) else {
                    continue;
                };
                splits += 1;
                net.run(secs(150));
                let living = net.living();
                let lives = |side: &[NodeId]| side.iter().any(|n| living.contains(n));
                if lives(&left) && lives(&right) {
                    let case = format!("{}, {groups:?}, seed {seed}", strategy.name());
                    wrong.push(format!("{case}, {know} know: {living:?} live"));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
    assert!(splits > 200, "{splits}");
}

/// Splits the network once somebody of the third group knows who is downed: it, the others that stay, and so
/// many of the third, from the rest. None: others help, and nobody is downed.
fn split_at_decision(
    net: &mut Net,
    groups: &[Vec<NodeId>; 3],
    know: usize,
) -> Option<(Vec<NodeId>, Vec<NodeId>)> {
    let knows = |net: &Net, node: &NodeId| {
        let view = net.view(*node);
        view.members().any(|m| m.status() == MemberStatus::Down)
    };
    let decided = |net: &Net| groups[2].iter().copied().find(|n| knows(net, n));
    net.run(secs(20));
    let by = (0..5_000).find_map(|_| {
        net.run(Duration::from_millis(10));
        decided(net)
    })?;
    let others = groups[2].iter().filter(|n| **n != by);
    let unaware: Vec<_> = others.skip(know - 1).collect();
    let stays = |n: &NodeId| net.status(by, *n) == Some(MemberStatus::Up);
    let (left, right): (Vec<_>, Vec<_>) =
        (0..net.nodes.len()).partition(|n| stays(n) && !unaware.contains(&n));
    net.split(&left, &right);
    Some((left, right))
}
