//! S1 to S3, S7 to S17, S26: members, failure detection, leader, joining.

use std::collections::BTreeMap;

use membership_core::protocol::ring_place;
use membership_core::{InstanceId, MonoTime, SiloAddress, SiloInfo};
use membership_gossip::downing::{Downing, Strategy};
use membership_gossip::protocol::{Command, Detector, Input, Termination};
use membership_gossip::state::{MemberStatus, Profile, State};

use super::{akka, cluster};
use crate::net::{Expect as _, Net, endpoint, secs};

#[test]
fn s01_a_member_is_host_port_and_uid() {
    let mut state = State::default();
    let at = |port, epoch| SiloAddress::new([10, 0, 0, 1].into(), port, epoch);
    state.edit(at(1, 1), |edit| {
        for (port, epoch) in [(1, 1), (2, 1), (1, 2)] {
            let profile = Profile::new(SiloInfo::default());
            edit.admit(at(port, epoch), InstanceId::new(1), profile);
        }
    });
    // Two on one machine; a new uid at an endpoint is another member than the old one.
    assert_eq!(state.members().len(), 2);
    assert_eq!(state.status(&at(1, 1)), Some(MemberStatus::Removed));
    assert_eq!(state.status(&at(1, 2)), Some(MemberStatus::Joining));
}

#[test]
fn s02_a_removed_uid_never_joins_again() {
    let mut net = cluster(3);
    let old = net.me(2);
    net.command(2, Command::Leave);
    net.run_until(secs(30), |net| net.living().len() == 2 && net.is_agreed());
    let profile = Profile::new(SiloInfo::named("again"));
    let again = net.start_with_epoch(2, &akka(), profile, old.epoch());
    net.join_all(&[again]);
    net.run_until(secs(30), Net::is_agreed);
    assert_eq!(net.view(0).status(&old), Some(MemberStatus::Removed));
    assert!(net.me(again).is_successor_of(&old));
}

#[test]
fn s03_a_join_goes_to_any_member() {
    let mut net = cluster(5);
    let node = net.start(5, &akka());
    net.join(node, vec![endpoint(4)]);
    net.run_until(secs(30), Net::is_agreed);
    assert_eq!(net.view(4).members().count(), 6);
}

#[test]
fn s07_while_somebody_is_unreachable_joiners_are_taken_in_and_not_moved_up() {
    let mut net = cluster(4);
    net.kill(3);
    net.run(secs(10));
    assert!(!net.view(0).converged());
    let node = net.start(4, &akka());
    net.join_all(&[node]);
    net.run(secs(30));
    assert_eq!(net.status(0, node), Some(MemberStatus::Joining));
    let member = net.me(3);
    net.command(0, Command::Down { member });
    net.run_until(secs(30), Net::is_agreed);
    assert_eq!(net.status(0, node), Some(MemberStatus::Up));
}

#[test]
fn s08_phi_is_compared_with_a_threshold_of_8() {
    let config = akka();
    assert!((config.phi_threshold - 8.0).abs() < f64::EPSILON);
    let at = |ms: u64| MonoTime::from_nanos(ms * 1_000_000);
    let mut detector = Detector::phi(&config, at(0));
    for beat in 0..100 {
        detector.heartbeat(at(beat * 1_000));
    }
    for ms in (0..8_000).step_by(10) {
        let now = at(99_000 + ms);
        assert_eq!(
            detector.is_available(now),
            detector.level(now) < 8.0,
            "{ms}"
        );
    }
    assert!(detector.is_available(at(99_000 + 4_000)));
    assert!(!detector.is_available(at(99_000 + 5_000)));
}

#[test]
fn s09_five_watch_each_member_and_the_verdict_of_one_is_that_of_all() {
    let mut net = cluster(12);
    net.run(secs(3));
    let mut watchers = BTreeMap::<SiloAddress, usize>::new();
    for node in net.living() {
        for member in net.nodes[node].protocol.watched() {
            *watchers.entry(*member).or_default() += 1;
        }
    }
    assert_eq!(watchers.len(), 12);
    assert!(watchers.values().all(|n| *n == 5), "{watchers:?}");
    net.kill(7);
    let gone = net.me(7);
    net.run_until(secs(15), |net| {
        net.living()
            .iter()
            .all(|n| net.view(*n).unreachable().contains(&gone))
    });
}

#[test]
fn s10_watchers_are_neighbours_on_one_ring_in_the_same_order_everywhere() {
    let mut net = cluster(12);
    net.run(secs(3));
    let mut ring: Vec<_> = net.living().iter().map(|n| net.me(*n)).collect();
    ring.sort_by_key(|member| (ring_place(member), *member));
    for node in net.living() {
        let at = ring.iter().position(|m| *m == net.me(node)).unwrap();
        let next = (1..=5).map(|i| ring[(at + i) % 12]).collect();
        assert_eq!(*net.nodes[node].protocol.watched(), next);
    }
}

#[test]
fn s11_a_heartbeat_per_second_is_answered() {
    let mut net = cluster(3);
    let before = net.nodes[0].sent.clone();
    net.run(secs(10));
    let since = |what| net.nodes[0].sent[what] - before.get(what).unwrap_or(&0);
    assert_eq!(since("heartbeat"), 20, "ten to each of two");
    assert_eq!(since("heartbeat-reply"), 20);
}

#[test]
fn s12_who_answers_its_watchers_again_is_reachable_again() {
    let mut net = cluster(3);
    net.split(&[0], &[1]);
    net.run(secs(15));
    assert_eq!(net.view(2).unreachable().len(), 2, "each flags the other");
    net.heal();
    net.run_until(secs(15), Net::is_agreed);
    assert!(net.view(2).unreachable().is_empty());
}

#[test]
fn s13_who_is_quarantined_stays_unreachable_until_it_is_removed() {
    let mut net = cluster(3);
    let member = net.me(2);
    net.input(0, Input::Quarantine(member));
    net.run(secs(20));
    assert!(net.view(1).unreachable().contains(&member) && !net.view(1).converged());
    net.command(0, Command::Down { member });
    net.run_until(secs(20), |net| net.living().len() == 2 && net.is_agreed());
    // It may be removed before it hears that it is down.
    let ended = net.nodes[2].ended.clone();
    assert!(
        matches!(ended, Some(Termination::Downed | Termination::Gone)),
        "{ended:?}"
    );
}

#[test]
fn s14_the_first_in_order_leads_without_an_election() {
    let mut net = cluster(5);
    for node in net.living() {
        assert_eq!(net.view(node).leader(), Some(net.me(0)));
    }
    net.kill(0);
    let member = net.me(0);
    net.run(secs(10));
    // Each side of a failure has a leader, among those that it reaches.
    assert_eq!(net.view(3).leader(), Some(net.me(1)));
    net.command(4, Command::Down { member });
    net.run_until(secs(20), Net::is_agreed);
    assert_eq!(net.view(3).leader(), Some(net.me(1)));
}

#[test]
fn s15_the_leader_moves_joining_up_and_removes_exiting_once_all_agree() {
    let mut net = cluster(3);
    net.hold_exit = true;
    let node = net.start(3, &akka());
    net.join_all(&[node]);
    net.run_until(secs(20), |net| {
        net.status(1, node) == Some(MemberStatus::Up)
    });
    net.command(node, Command::Leave);
    net.run_until(secs(20), |net| {
        net.status(1, node) == Some(MemberStatus::Exiting)
    });
    net.command(node, Command::ExitDone);
    net.run_until(secs(20), |net| {
        net.status(1, node) == Some(MemberStatus::Removed) && net.is_agreed()
    });
}

#[test]
fn s16_auto_down_is_an_option_that_ends_who_is_unreachable_for_a_time() {
    assert_eq!(akka().downing.strategy, Strategy::None);
    let mut config = akka();
    let after = secs(5);
    config.downing = Downing::new(Strategy::AutoDownUnsafe { after });
    let mut net = Net::cluster(11, 4, &config);
    net.kill(2);
    let took = net.run_until(secs(30), Net::is_agreed);
    assert!(took >= secs(8), "{took:?}");
}

#[test]
fn s17_seed_nodes_are_contact_points_and_nothing_else() {
    let mut net = cluster(5);
    for seed in 0..3 {
        net.command(seed, Command::Leave);
    }
    net.run_until(secs(60), |net| net.living().len() == 2 && net.is_agreed());
    let node = net.start(5, &akka());
    net.join(node, vec![endpoint(0), endpoint(3)]);
    net.run_until(secs(30), Net::is_agreed);
}

#[test]
fn s26_unreachable_is_a_flag_and_no_state_and_the_states_are_these() {
    let mut net = cluster(4);
    net.hold_exit = true;
    net.command(3, Command::Leave);
    // It leaves when all have seen it as leaving.
    net.run_until(secs(20), |net| {
        net.status(0, 3) == Some(MemberStatus::Leaving)
    });
    net.run_until(secs(20), |net| {
        net.status(0, 3) == Some(MemberStatus::Exiting)
    });
    net.command(3, Command::ExitDone);
    net.run_until(secs(20), |net| {
        net.status(0, 3) == Some(MemberStatus::Removed)
    });
    net.kill(2);
    net.run(secs(10));
    let member = net.me(2);
    assert_eq!(net.status(0, 2), Some(MemberStatus::Up));
    assert!(net.view(0).reachability().contains_key(&member));
    net.command(1, Command::Down { member });
    net.run_until(secs(20), |net| {
        net.status(0, 2) == Some(MemberStatus::Removed)
    });
}
