//! What the default preset does otherwise than the specification, and splits.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use membership_core::protocol::{LinkId, PeerIdentity};
use membership_core::{ClusterName, InstanceId, SiloInfo};
use membership_gossip::Config;
use membership_gossip::downing::{Downing, Strategy, Verdict};
use membership_gossip::protocol::{Command, Header, Input, Message, Notice, Refusal, Termination};
use membership_gossip::state::{MemberStatus, Profile};

use crate::net::{Expect as _, Net, NodeId, endpoint, foundings, secs};

fn cluster(n: usize) -> Net {
    Net::cluster(5, n, &Config::default())
}

#[test]
fn islands_do_not_form_when_contact_points_are_cut_off_at_the_start() {
    for seed in 0..20 {
        let mut net = Net::new(seed);
        for at in 0..5 {
            net.start(at, &Config::default());
        }
        // The first contact point is alone; under the specification's rule it founds an island.
        net.split(&[0], &[1, 2, 3, 4]);
        net.join_all(&[0, 1, 2, 3, 4]);
        net.run(secs(60));
        assert_eq!(net.nodes[0].protocol.founding(), None);
        assert_eq!(net.view(4).members().count(), 4);
        net.heal();
        net.run_until(secs(30), Net::is_agreed);
        assert_eq!(foundings(&net), 1);
    }
}

#[test]
fn a_minority_of_contact_points_founds_nothing() {
    let mut net = Net::new(1);
    let points: Vec<_> = (0..3).map(endpoint).collect();
    let first = net.start(0, &Config::default());
    net.join(first, points.clone());
    net.run(secs(120));
    assert_eq!(net.nodes[first].protocol.founding(), None);
    let second = net.start(1, &Config::default());
    net.join(second, points);
    net.run_until(secs(30), Net::is_agreed);
    assert_eq!(net.status(first, second), Some(MemberStatus::Up));
}

/// All contact points end at once and are restarted: the others are a cluster still.
#[test]
fn contact_points_that_are_all_restarted_found_no_second_cluster() {
    let mut net = cluster(7);
    for node in 0..3 {
        net.kill(node);
    }
    net.run(secs(40));
    let again: Vec<_> = (0..3).map(|at| net.start(at, &Config::default())).collect();
    net.join_all(&again);
    net.run_until(secs(40), Net::is_agreed);
    assert_eq!((foundings(&net), net.living().len()), (1, 7));
}

/// A process that is no contact point, and was not asked, has no say in who joins.
#[test]
fn a_refusal_of_somebody_else_ends_no_joiner() {
    let mut net = cluster(4);
    let joiner = net.start(4, &Config::default());
    net.split(&[joiner], &[0, 1, 2, 3]);
    net.join_all(&[joiner]);
    net.run(secs(1));
    let (stranger, asked) = (net.me(3), net.me(0));
    for (from, ends) in [(stranger, false), (asked, true)] {
        let cluster: ClusterName = "test".parse().unwrap();
        let mut header = Header::new(cluster.fingerprint(), from, InstanceId::new(7));
        header.to = Some(net.me(joiner));
        let (name, value, yours) = ("leases".into(), "no".into(), "yes".into());
        net.input(
            joiner,
            Input::Message {
                link: LinkId(1),
                peer: PeerIdentity::Unproven,
                header,
                body: Arc::new(Message::Refused(Refusal::Settings { name, value, yours })),
                waited: Duration::ZERO,
            },
        );
        assert_eq!(net.nodes[joiner].protocol.has_ended(), ends, "{from}");
    }
}

/// One is cut off after it was taken in and before anybody is up. The cluster begins without it, and
/// removes it; afterwards only members that it does not know are left to tell it.
#[test]
fn who_is_left_behind_by_the_beginning_starts_over() {
    let mut left_behind = 0;
    for seed in 0..20 {
        let mut net = Net::new(seed);
        for at in 0..5 {
            net.start(at, &Config::default());
        }
        net.join_all(&[0, 1, 2, 3, 4]);
        while net.nodes[4].protocol.founding().is_none() {
            net.run(Duration::from_millis(1));
        }
        if net.view(4).members().any(|m| m.up_number().is_some()) {
            // It was taken in a moment after the beginning.
            continue;
        }
        left_behind += 1;
        net.split(&[4], &[0, 1, 2, 3]);
        net.run(secs(60));
        assert_eq!(net.view(0).members().count(), 4, "seed {seed}");
        for at in 0..4 {
            net.kill(at);
            net.run(secs(30));
            let again = net.start(at, &Config::default());
            net.join_all(&[again]);
            net.run(secs(30));
        }
        net.heal();
        assert_eq!(net.status(4, 4), Some(MemberStatus::Joining));
        net.run_until(secs(60), Net::is_agreed);
        assert_eq!((foundings(&net), net.living().len()), (1, 5), "seed {seed}");
    }
    assert!(left_behind > 10, "{left_behind} were left behind");
}

/// The founder is cut off in the moment of the founding: it does not begin alone.
#[test]
fn a_founder_that_is_cut_off_at_once_does_not_begin() {
    for seed in 0..20 {
        let mut net = Net::new(seed);
        for at in 0..3 {
            net.start(at, &Config::default());
        }
        net.join_all(&[0, 1, 2]);
        let founded = |net: &Net| (0..3).find(|n| net.nodes[*n].protocol.founding().is_some());
        while founded(&net).is_none() {
            net.run(std::time::Duration::from_millis(1));
        }
        let founder = founded(&net).unwrap();
        let others: Vec<NodeId> = (0..3).filter(|n| *n != founder).collect();
        net.split(&[founder], &others);
        net.run(secs(100));
        let up = |n: &NodeId| net.nodes[*n].protocol.status() == Some(MemberStatus::Up);
        assert!(!up(&founder), "seed {seed}: {}", net.describe());
        assert!(others.iter().all(up), "seed {seed}: {}", net.describe());
    }
}

#[test]
fn a_broken_link_between_two_flags_nobody() {
    let mut net = cluster(5);
    net.split(&[1], &[3]);
    net.run(secs(120));
    assert!(net.is_agreed());
    let told = |n: usize| {
        net.nodes[n]
            .notices
            .iter()
            .any(|(_, n)| matches!(n, Notice::LinkBroken { .. }))
    };
    assert!(told(1) && told(3));
}

#[test]
fn a_member_that_was_frozen_flags_nobody_when_it_wakes() {
    let mut net = cluster(5);
    net.pause(2, secs(4));
    net.run(secs(30));
    assert!(net.is_agreed());
    let flags = net.view(0).state().reachability().flags().count();
    assert_eq!(flags, 0);
    let paused = |(_, notice): &(_, Notice)| matches!(notice, Notice::Paused(_));
    assert!(net.nodes[2].notices.iter().any(paused));
}

#[test]
fn a_restart_at_the_same_endpoint_ends_the_old_incarnation_at_once() {
    let mut net = cluster(5);
    let old = net.me(4);
    net.kill(4);
    let new = net.start(4, &Config::default());
    net.join_all(&[new]);
    let took = net.run_until(secs(20), Net::is_agreed);
    assert!(took <= secs(8), "{took:?}");
    assert_eq!(net.view(0).status(&old), Some(MemberStatus::Removed));
}

#[test]
fn of_a_split_the_larger_side_goes_on_and_the_smaller_one_ends_itself() {
    let mut net = cluster(5);
    net.split(&[0, 1], &[2, 3, 4]);
    net.run_until(secs(60), |net| net.living().len() == 3 && net.is_agreed());
    for node in [0, 1] {
        assert_eq!(net.nodes[node].ended, Some(Termination::Downed));
    }
    net.heal();
    for at in [0, 1] {
        let node = net.start(at, &Config::default());
        net.join_all(&[node]);
    }
    net.run_until(secs(30), Net::is_agreed);
    assert_eq!(foundings(&net), 1);
}

/// The other strategies in whole clusters: who lives after a split of two and three.
#[test]
fn each_strategy_leaves_the_side_that_it_says() {
    let role = || None;
    let lease = Strategy::LeaseMajority {
        role: role(),
        delay_for_minority: secs(2),
        release_after: secs(40),
    };
    let oldest = Strategy::KeepOldest {
        down_if_alone: true,
        role: role(),
    };
    let quorum = Strategy::StaticQuorum {
        size: 3,
        role: role(),
    };
    for (strategy, living) in [
        (quorum, 3),
        (Strategy::KeepMajority { role: role() }, 3),
        (oldest, 2),
        (Strategy::DownAll, 0),
        (lease, 3),
    ] {
        let mut config = Config::default();
        config.downing = Downing::new(strategy.clone());
        let mut net = Net::cluster(5, 5, &config);
        let first = net.view(0).oldest().unwrap().address();
        let oldest = (0..5).find(|n| net.me(*n) == first).unwrap();
        let other = (oldest + 1) % 5;
        let rest: Vec<_> = (0..5).filter(|n| *n != oldest && *n != other).collect();
        net.split(&[oldest, other], &rest);
        net.run(secs(90));
        assert_eq!(net.living().len(), living, "{strategy:?}");
    }
}

#[test]
fn the_lease_is_given_back_when_the_downed_are_removed() {
    let mut config = Config::default();
    config.downing = Downing::new(Strategy::LeaseMajority {
        role: None,
        delay_for_minority: secs(2),
        release_after: secs(40),
    });
    let mut net = Net::cluster(5, 5, &config);
    net.kill(4);
    net.run_until(secs(60), |net| net.lease.is_some());
    net.run_until(secs(60), Net::is_agreed);
    net.run_until(secs(120), |net| net.lease.is_none());
}

#[test]
fn a_decision_is_told_with_its_evidence() {
    let mut net = cluster(5);
    net.kill(3);
    net.run_until(secs(60), Net::is_agreed);
    let gone = net.me(3);
    let decided = net
        .living()
        .into_iter()
        .flat_map(|n| net.nodes[n].notices.clone());
    let decisions: Vec<_> = decided
        .filter_map(|(_, notice)| match notice {
            Notice::Decided(decision) => Some(decision),
            _ => None,
        })
        .collect();
    assert_eq!(decisions.len(), 1, "{decisions:?}");
    assert_eq!(decisions[0].verdict, Verdict::DownUnreachable);
    assert_eq!((decisions[0].reached, decisions[0].unreached), (4, 1));
    assert_eq!(decisions[0].down, BTreeSet::from([gone]));
}

/// A member that was removed while nobody could tell it learns so from the first survivor that it
/// meets, and ends.
#[test]
fn who_was_removed_and_returns_is_told_and_ends() {
    let mut config = Config::default();
    config.downing = Downing::none();
    let mut net = Net::cluster(5, 5, &config);
    net.split(&[4], &[0, 1, 2, 3]);
    net.run(secs(15));
    let member = net.me(4);
    net.command(0, Command::Down { member });
    net.run_until(secs(20), |net| {
        net.status(0, 4) == Some(MemberStatus::Removed)
    });
    assert!(net.nodes[4].lives());
    net.heal();
    net.run_until(secs(20), |net| !net.nodes[4].lives());
    assert_eq!(net.nodes[4].ended, Some(Termination::Gone));
    net.run_until(secs(10), Net::is_agreed);
}

#[test]
fn data_centres_lead_and_agree_by_themselves() {
    let config = Config::default();
    let mut net = Net::new(5);
    for at in 0..6 {
        let data_centre = if at < 3 { "east" } else { "west" };
        let profile = Profile::in_data_centre(SiloInfo::named("m"), data_centre);
        net.start_as(at, &config, profile);
    }
    net.join_all(&[0, 1, 2, 3, 4, 5]);
    net.run_until(secs(60), Net::is_agreed);
    assert_eq!(net.view(0).leader(), Some(net.me(0)));
    assert_eq!(net.view(5).leader(), Some(net.me(3)));
    // While they are cut from each other, each goes on, and takes in its own.
    net.split(&[0, 1, 2], &[3, 4, 5]);
    net.run(secs(60));
    assert_eq!(net.living().len(), 6);
    assert_eq!(
        net.view(0).unreachable_data_centres(),
        BTreeSet::from(["west".to_owned()])
    );
    let profile = Profile::in_data_centre(SiloInfo::named("m"), "west");
    let node = net.start_as(6, &config, profile);
    net.join(node, vec![endpoint(4)]);
    net.run_until(secs(30), |net| {
        net.status(5, node) == Some(MemberStatus::Up)
    });
    net.heal();
    net.run_until(secs(60), |net| {
        net.is_agreed() && net.view(0).unreachable_data_centres().is_empty()
    });
}

#[test]
fn a_joiner_with_another_resolver_is_refused_with_the_setting() {
    let mut net = cluster(3);
    let mut config = Config::default();
    config.downing.stable_after = secs(7);
    let node = net.start(3, &config);
    net.join_all(&[node]);
    net.run(secs(5));
    let Some(Termination::Refused(refusal)) = &net.nodes[node].ended else {
        panic!("{:?}", net.nodes[node].ended);
    };
    assert!(format!("{refusal:?}").contains("downing.stable_after"));
}

/// Nobody is flagged or downed in a calm cluster, and what a member sends does not grow with it.
#[test]
fn a_calm_cluster_stays_calm_and_its_traffic_is_constant() {
    let mut per_member = Vec::new();
    for n in [20, 80] {
        let mut net = cluster(n);
        net.run(secs(10));
        let before: u64 = net
            .nodes
            .iter()
            .map(|node| node.sent.values().sum::<u64>())
            .sum();
        net.run(secs(120));
        let after: u64 = net
            .nodes
            .iter()
            .map(|node| node.sent.values().sum::<u64>())
            .sum();
        assert!(net.is_agreed());
        assert_eq!(net.view(0).state().reachability().observers().count(), 0);
        per_member.push((after - before) as f64 / n as f64 / 120.0);
    }
    assert!(
        per_member[1] < per_member[0] * 1.05 && per_member[1] < 12.0,
        "{per_member:?}"
    );
}

/// A member that was downed in a split, and whom all have left that it watches: others are asked, too, and
/// tell it that it is gone.
#[test]
fn who_hears_nobody_asks_those_it_does_not_watch() {
    let mut alone = 0;
    for seed in 0..10 {
        let mut config = Config::default();
        config.downing = Downing::new(Strategy::None);
        let mut net = Net::cluster(seed, 12, &config);
        let others: Vec<_> = (0..10).collect();
        net.split(&others, &[10, 11]);
        net.run(secs(60));
        for node in [10, 11] {
            let member = net.me(node);
            net.command(0, Command::Down { member });
        }
        net.run(secs(20));
        net.kill(10);
        net.run(secs(20));
        let rows = net.nodes[11]
            .protocol
            .gossip()
            .state()
            .reachability()
            .clone();
        let flags = |node: &NodeId| rows.flag(&net.me(11), &net.me(*node)).is_some();
        let (watched, left): (Vec<_>, Vec<_>) = others.into_iter().partition(flags);
        if left.is_empty() {
            continue;
        }
        alone += 1;
        watched.into_iter().for_each(|node| net.kill(node));
        net.heal();
        let took = net.try_run_until(secs(60), |net| !net.nodes[11].lives());
        assert!(took.is_ok(), "seed {seed}: {left:?} are left");
        assert_eq!(net.nodes[11].ended, Some(Termination::Gone), "seed {seed}");
    }
    assert!(alone >= 3, "{alone} of 10");
}
