//! Things that do not settle, and members that are well and must not end for it.

use std::time::Duration;

use membership_gossip::Config;
use membership_gossip::downing::{Downing, Strategy};
use membership_gossip::protocol::Command;

use crate::net::{Expect as _, Net, NodeId, endpoint, is_news, secs};

fn strategies() -> [Strategy; 2] {
    [
        Strategy::KeepMajority { role: None },
        Strategy::lease_majority(),
    ]
}

fn config(strategy: &Strategy) -> Config {
    let mut config = Config::default();
    config.downing = Downing::new(strategy.clone());
    config
}

/// Two processes that crash soon after each start end nobody else.
#[test]
fn processes_that_crash_again_and_again_end_nobody_else() {
    for strategy in strategies() {
        let config = config(&strategy);
        for (seed, runs, away) in [(1, 4, 8), (2, 6, 6), (3, 3, 12), (4, 8, 16), (5, 12, 7)] {
            let mut net = Net::cluster(seed, 8, &config);
            let well: Vec<NodeId> = (0..6).collect();
            let mut current = [6, 7];
            // Each is away while the other one comes and goes.
            let mut next = [net.now, net.now + secs((runs + away) / 2)];
            let mut runs_now = [true, true];
            let end = net.now + secs(240);
            while net.now < end {
                for i in 0..2 {
                    if net.now < next[i] {
                        continue;
                    }
                    if runs_now[i] {
                        net.kill(current[i]);
                        next[i] = net.now + secs(away);
                    } else {
                        current[i] = net.start(6 + i, &config);
                        net.join_all(&[current[i]]);
                        next[i] = net.now + secs(runs);
                    }
                    runs_now[i] = !runs_now[i];
                }
                net.run(Duration::from_millis(250));
                let ended: Vec<_> = well.iter().filter(|n| !net.nodes[**n].lives()).collect();
                assert!(
                    ended.is_empty(),
                    "{strategy:?}, {runs} s up, {away} s away: {ended:?} ended at {}",
                    net.now,
                );
            }
        }
    }
}

/// Two members crash one after the other, so that the second crash makes the resolver wait again.
#[test]
fn two_crashes_one_after_the_other_end_nobody_else() {
    for strategy in strategies() {
        let config = config(&strategy);
        for members in [5, 8] {
            for apart in 0..40 {
                let mut net = Net::cluster(1, members, &config);
                net.grants = Some(Default::default());
                net.kill(members - 1);
                net.run(secs(apart));
                net.kill(members - 2);
                net.run(secs(90));
                let well: Vec<_> = (0..members - 2).collect();
                assert_eq!(
                    net.living(),
                    well,
                    "{strategy:?}, {members}, {apart} s apart"
                );
            }
        }
    }
}

/// Five members, split three to two, at the moment in which one side gets the lease.
fn split_until_granted(seed: u64) -> Net {
    let mut net = Net::cluster(seed, 5, &config(&Strategy::lease_majority()));
    net.grants = Some(Default::default());
    net.split(&[0, 1, 2], &[3, 4]);
    let granted = |net: &Net| {
        let grants = net.grants.as_ref().unwrap();
        grants.values().any(|g| !g.downed.is_empty())
    };
    while !granted(&net) {
        net.run(Duration::from_millis(1));
    }
    net
}

/// The split heals while the smaller side waits for its turn to ask the arbiter.
#[test]
fn a_split_that_heals_before_the_smaller_side_asks_ends_nobody_of_the_larger_one() {
    for seed in 0..4 {
        for healed_after in (0..2_400).step_by(100) {
            let mut net = split_until_granted(seed);
            net.run(Duration::from_millis(healed_after));
            net.heal();
            net.run(secs(120));
            let living = net.living();
            let case = format!("seed {seed}, healed after {healed_after} ms: {living:?}");
            assert!([0, 1, 2].iter().all(|n| living.contains(n)), "{case}");
        }
    }
}

/// The leader of the larger side ends with the lease before anybody has heard of it, and the split heals.
#[test]
fn a_leader_that_ends_with_the_lease_takes_nobody_of_its_side_with_it() {
    for seed in 0..10 {
        for healed_after in [0, 200, 2_500, 12_000, 40_000] {
            let mut net = split_until_granted(seed);
            net.kill(0);
            net.run(Duration::from_millis(healed_after));
            net.heal();
            net.run(secs(120));
            let case = format!("seed {seed}, healed after {healed_after} ms");
            assert_eq!(net.living(), [1, 2], "{case}\n{}", net.describe());
        }
    }
}

/// A process joins during a split, another one leaves.
#[test]
fn a_join_and_a_leave_during_a_split_leave_one_side() {
    for strategy in strategies() {
        let config = config(&strategy);
        for seed in 0..60 {
            for members in [2, 3, 4, 5] {
                let mut net = Net::cluster(seed, members, &config);
                net.grants = Some(Default::default());
                let cut = 1 + net.below(members - 1);
                let (left, right): (Vec<_>, Vec<_>) = (0..members).partition(|n| *n < cut);
                net.split(&left, &right);
                let wait = Duration::from_millis(net.below(15_000) as u64);
                net.run(wait);
                let point = net.below(members);
                let node = net.start(members, &config);
                let new = net.me(node).endpoint();
                let others = if point < cut { &right } else { &left };
                for other in others {
                    let other = net.me(*other).endpoint();
                    net.cut.extend([(new, other), (other, new)]);
                }
                net.join(node, vec![endpoint(point)]);
                let wait = Duration::from_millis(net.below(15_000) as u64);
                net.run(wait);
                let leaver = net.below(members);
                net.command(leaver, Command::Leave);
                net.run(secs(100));
                let living = net.living();
                let here = |n: &NodeId| left.contains(n) || (*n == node && point < cut);
                let (a, b): (Vec<_>, Vec<_>) = living.iter().copied().partition(here);
                let case = format!("{strategy:?}, seed {seed}, {cut} of {members}");
                assert!(a.is_empty() || b.is_empty(), "{case}: {a:?} and {b:?} live");
            }
        }
    }
}

/// A member that hears others, and that others do not hear, or the other way round.
#[test]
fn who_is_cut_off_in_one_direction_ends_nobody_else() {
    for strategy in strategies() {
        let config = config(&strategy);
        for members in [3, 4, 5, 8] {
            for deaf in [0, 1, members - 1] {
                for hears in [true, false] {
                    let mut net = Net::cluster(7, members, &config);
                    net.grants = Some(Default::default());
                    for other in (0..members).filter(|n| *n != deaf) {
                        let (one, other) = (endpoint(deaf), endpoint(other));
                        let link = if hears { (one, other) } else { (other, one) };
                        net.cut.insert(link);
                    }
                    net.run(secs(120));
                    let well: Vec<_> = (0..members).filter(|n| *n != deaf).collect();
                    let case = format!("{strategy:?}, {deaf} of {members} hears {hears}");
                    assert_eq!(net.living(), well, "{case}");
                    assert!(net.is_agreed(), "{case}");
                }
            }
        }
    }
}

/// The timers of a member starve in bursts, and it accuses nobody.
#[test]
fn a_member_that_starves_in_bursts_ends_nobody_else() {
    for strategy in strategies() {
        let config = config(&strategy);
        for (on, off) in [
            (900, 300),
            (1_800, 200),
            (3_000, 100),
            (6_000, 500),
            (10_000, 2_000),
        ] {
            for members in [3, 5] {
                let mut net = Net::cluster(3, members, &config);
                net.grants = Some(Default::default());
                let end = net.now + secs(180);
                while net.now < end {
                    net.pause(1, Duration::from_millis(on));
                    net.run(Duration::from_millis(on + off));
                }
                net.run(secs(60));
                let well: Vec<_> = (0..members).filter(|n| *n != 1).collect();
                let lives = well.iter().all(|n| net.nodes[*n].lives());
                assert!(
                    lives,
                    "{strategy:?}: {on} ms on, {off} ms off, {members} members"
                );
            }
        }
    }
}

/// Messages are late by half a minute, all of them: who is dead is missed, who is well is not ended.
#[test]
fn messages_that_are_late_by_half_a_minute_leave_a_cluster() {
    for strategy in strategies() {
        let config = config(&strategy);
        for seed in 0..5 {
            for share in [0.02, 0.3] {
                let mut net = Net::cluster(seed, 5, &config);
                net.grants = Some(Default::default());
                net.delayed = (share, secs(30));
                net.run(secs(120));
                net.kill(4);
                net.run(secs(120));
                net.heal();
                net.run(secs(60));
                assert_eq!(
                    net.living(),
                    [0, 1, 2, 3],
                    "{strategy:?}, seed {seed}, {share}"
                );
                assert!(net.is_agreed());
            }
        }
    }
}

/// A member flagged two others before it was cut off, and one of them takes no news for a while: whether
/// that flag is an old one is known when it has seen the state, and its side waits for it.
#[test]
fn a_side_decides_when_its_members_have_seen_the_state() {
    let mut config = config(&Strategy::KeepMajority { role: None });
    config.relayed_heartbeats = 0;
    for seed in 0..10 {
        let mut net = Net::cluster(seed, 5, &config);
        for flagged in [1, 2].map(endpoint) {
            net.cut.insert((flagged, endpoint(3)));
        }
        net.run(secs(10));
        net.split(&[0, 1, 2], &[3, 4]);
        net.loses = Some(|to, message| to == endpoint(1) && is_news(message));
        net.run(secs(29));
        net.loses = None;
        net.run(secs(60));
        assert_eq!(net.living(), [0, 1, 2], "seed {seed}\n{}", net.describe());
    }
}

/// A member that hears nobody knows it before it flags anybody: where answers took long before, it waits longer
/// than usual. It ends as soon as if it had flagged others when they fell silent.
#[test]
fn who_is_alone_ends_in_time_where_answers_took_long() {
    for strategy in strategies() {
        let config = config(&strategy);
        let downing = &config.downing;
        let unstable = downing.down_all_when_unstable.unwrap_or_default();
        let most = config.acceptable_heartbeat_pause + downing.stable_after + unstable + secs(2);
        for seed in 0..10 {
            let mut net = Net::cluster(seed, 20, &config);
            let usual = net.latency;
            net.latency = (Duration::ZERO, secs(2));
            net.run(secs(60));
            net.latency = usual;
            net.run(secs(3));
            let others: Vec<NodeId> = (0..20).filter(|node| *node != 15).collect();
            net.split(&[15], &others);
            let took = net.run_until(secs(100), |net| net.nodes[15].ended.is_some());
            assert!(took <= most, "{strategy:?}, seed {seed}: after {took:?}");
        }
    }
}

/// A member crashes, another one flags it and crashes, too, and an operator downs that one. It has flagged a
/// member that does not answer, and nobody counts it for another side.
#[test]
fn who_crashed_and_is_downed_by_an_operator_does_not_count() {
    for (first, second) in [(2, 0), (1, 0), (0, 1), (3, 2)] {
        for seed in 0..5 {
            let keep_majority = Strategy::KeepMajority { role: None };
            let mut net = Net::cluster(seed, 4, &config(&keep_majority));
            net.kill(first);
            let member = net.me(first);
            let flags = |net: &Net| {
                let state = net.nodes[second].protocol.gossip().state().clone();
                let flag = state.reachability().flag(&net.me(second), &member);
                flag.is_some()
            };
            net.run_until(secs(20), flags);
            net.run(secs(2));
            net.kill(second);
            let others = net.living();
            let member = net.me(second);
            net.command(others[0], Command::Down { member });
            net.run_until(secs(90), |net| net.is_agreed() || net.living().is_empty());
            assert_eq!(net.living(), others, "{first}, {second}, seed {seed}");
        }
    }
}
