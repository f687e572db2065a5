//! Every simulated system behaves as the experiments assume.

#![allow(clippy::unwrap_used, reason = "tests")]

use std::collections::BTreeSet;
use std::time::Duration;

use crate::arena::{Member, Record, settled};
use crate::systems::System;

const ALL: [System; 10] = [
    System::Membership,
    System::Supervised,
    System::Orleans2019,
    System::Orleans2026,
    System::Gossip,
    System::GossipSupervised,
    System::GossipAkka,
    System::Foca,
    System::FocaOnce,
    System::Chitchat,
];
const MEMBERS: usize = 8;

fn seconds(n: u64) -> Duration {
    Duration::from_secs(n)
}

fn others(but: Member) -> BTreeSet<Member> {
    (0..MEMBERS).filter(|member| *member != but).collect()
}

fn crash(system: System, seed: u64) -> (Record, Duration) {
    let mut world = system.world(seed, MEMBERS).unwrap();
    settled(&mut *world, MEMBERS, seconds(60)).unwrap();
    let began = world.now();
    world.kill(3);
    world.run_for(seconds(180)).unwrap();
    (world.record(), began)
}

#[test]
fn all_members_detect_a_crash_and_nothing_else() {
    for system in ALL {
        let (record, began) = crash(system, 5);
        let (first, all) = (
            record.first_death(3, &others(3)).unwrap(),
            record.known_to_all(3, &others(3)).unwrap(),
        );
        assert!(
            began < first && first <= all,
            "{system:?}: {began:?} {first:?} {all:?}"
        );
        assert_eq!(
            record
                .deaths
                .iter()
                .map(|death| death.of)
                .collect::<BTreeSet<_>>(),
            BTreeSet::from([3]),
            "{system:?}"
        );
        assert!(
            record.all_count(others(3), MEMBERS - 1).is_some(),
            "{system:?}: {:?}",
            record.seen
        );
    }
}

#[test]
fn equal_seeds_give_equal_runs() {
    for system in [System::Membership, System::Gossip, System::Foca] {
        let (one, two, other) = (crash(system, 7).0, crash(system, 7).0, crash(system, 8).0);
        assert_eq!(one.deaths, two.deaths, "{system:?}");
        assert_ne!(one.deaths, other.deaths, "{system:?}");
    }
}

#[test]
fn only_a_held_member_is_declared_dead() {
    for system in ALL {
        let mut world = system.world(1, MEMBERS).unwrap();
        settled(&mut *world, MEMBERS, seconds(60)).unwrap();
        let before = world.sent(2);
        world.hold(2, seconds(120));
        // Messages that it had just sent may still arrive.
        world.run_for(seconds(119)).unwrap();
        let record = world.record();
        assert!(
            record.known_to_all(2, &others(2)).is_some(),
            "{system:?}: {:?}",
            record.deaths
        );
        assert_eq!(
            record
                .deaths
                .iter()
                .filter(|death| others(2).contains(&death.by))
                .map(|death| death.of)
                .collect::<BTreeSet<_>>(),
            BTreeSet::from([2])
        );
        world.run_for(seconds(120)).unwrap();
        assert!(
            world.sent(2).messages > before.messages && world.sent(2).bytes > before.bytes,
            "{system:?}"
        );
    }
}

#[test]
fn a_member_that_loses_all_messages_is_declared_dead() {
    for system in ALL {
        let mut world = system.world(2, MEMBERS).unwrap();
        settled(&mut *world, MEMBERS, seconds(60)).unwrap();
        world.loss(4, 1.0, 1.0);
        world.run_for(seconds(180)).unwrap();
        assert!(
            world.record().known_to_all(4, &others(4)).is_some(),
            "{system:?}: {:?}",
            world.record().deaths
        );
    }
}

#[test]
fn members_survive_a_short_pause() {
    for system in ALL {
        let mut world = system.world(3, MEMBERS).unwrap();
        settled(&mut *world, MEMBERS, seconds(60)).unwrap();
        world.pause(1, Duration::from_millis(800));
        world.run_for(seconds(60)).unwrap();
        assert_eq!(world.record().deaths, [], "{system:?}");
    }
}
