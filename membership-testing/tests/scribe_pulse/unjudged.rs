//! Quiet silos that die where nobody may judge, or that only seem to have died: each with the time that it
//! takes, and all invariants checked.

use std::time::Duration;

use membership_core::protocol::{Input, Notice, TableState};
use membership_core::{Config, SiloStatus};
use membership_testing::{Cluster, ProcessId};

use super::{MS, S, SILOS, cluster, quiet};

fn is_active(cluster: &Cluster, silo: ProcessId) -> bool {
    let row = cluster.row(silo);
    row.is_some_and(|e| e.status == SiloStatus::Active)
}

/// Runs until this holds, and returns how long that took.
fn time_until(
    cluster: &mut Cluster,
    most: Duration,
    mut holds: impl FnMut(&Cluster) -> bool,
) -> Duration {
    let began = cluster.now();
    let done = cluster.run_until(most, |c| holds(c)).unwrap();
    assert!(done, "not within {most:?}");
    cluster.now() - began
}

/// The same for what changes at any time; the executors of these silos lag every five seconds.
fn steps_until(
    cluster: &mut Cluster,
    lagging: &[ProcessId],
    most: Duration,
    holds: impl Fn(&Cluster) -> bool,
) -> Duration {
    let began = cluster.now();
    while !holds(cluster) {
        assert!(cluster.now() - began < most, "not within {most:?}");
        for silo in lagging {
            cluster.inject(*silo, Input::ExecutorLag(MS(1_200)));
        }
        for _ in 0..50 {
            cluster.run_for(MS(100)).unwrap();
            if holds(cluster) {
                break;
            }
        }
    }
    cluster.now() - began
}

#[test]
fn a_newcomer_at_the_address_of_a_silo_that_is_gone_with_all_others_joins() {
    for seed in 0..4 {
        let mut cluster = cluster(seed);
        let all = cluster.running();
        for silo in &all {
            cluster.crash_machine(*silo);
        }
        let new: Vec<ProcessId> = all[..6].iter().map(|s| cluster.take_over(*s)).collect();
        let took = time_until(&mut cluster, S(200), |c| {
            new.iter().all(|silo| is_active(c, *silo))
        });
        println!("{seed}: {took:.1?}");
        assert!(took <= S(75), "{seed}: {took:?}");
        cluster.settle().unwrap();
    }
}

#[test]
fn a_crashed_silo_is_found_while_the_executors_of_all_others_lag() {
    for seed in 0..4 {
        let mut cluster = cluster(seed);
        let all = cluster.running();
        let one = all[3];
        for silo in all.iter().filter(|s| **s != one) {
            cluster.inject(*silo, Input::ExecutorLag(MS(1_200)));
        }
        cluster.crash_machine(one);
        let newcomer = cluster.start(1)[0];
        let lagging: Vec<ProcessId> = all.into_iter().filter(|s| *s != one).collect();
        let took = steps_until(&mut cluster, &lagging, S(200), |c| is_active(c, newcomer));
        println!("{seed}: {took:.1?}");
        assert!(took <= S(50), "{seed}: {took:?}");
        cluster.settle().unwrap();
    }
}

#[test]
fn all_crash_and_as_many_start_at_other_addresses() {
    for seed in 0..4 {
        for silos in [12, SILOS, 30] {
            let mut cluster = quiet(seed, silos, Config::default());
            for silo in cluster.running() {
                cluster.crash_machine(silo);
            }
            cluster.run_for(S(20)).unwrap();
            let new = cluster.start(silos);
            let took = time_until(&mut cluster, S(300), |c| {
                new.iter().all(|silo| is_active(c, *silo))
            });
            println!("{seed} {silos}: {took:.1?}");
            assert!(took <= S(60), "{seed} {silos}: {took:?}");
            cluster.settle().unwrap();
        }
    }
}

#[test]
fn two_thirds_crash_where_heartbeats_are_slow() {
    for seed in 0..3 {
        let mut config = Config::default();
        config.i_am_alive_period = S(90);
        let mut cluster = quiet(seed, SILOS, config);
        let all = cluster.running();
        for silo in &all[..16] {
            cluster.crash_machine(*silo);
        }
        let left = all[16..].to_vec();
        let took = time_until(&mut cluster, S(1_500), |c| {
            let knows = |id: &ProcessId| c.view(*id).is_some_and(|v| v.active().count() == 8);
            left.iter().all(knows)
        });
        println!("{seed}: {took:.1?}");
        assert!(took <= S(400), "{seed}: {took:?}");
        cluster.settle().unwrap();
    }
}

#[test]
fn all_notice_soon_that_the_table_was_made_anew() {
    for seed in 0..4 {
        let mut cluster = cluster(seed);
        cluster.wipe_table();
        let new = cluster.start(1)[0];
        let all: Vec<ProcessId> = cluster
            .running()
            .into_iter()
            .filter(|s| *s != new)
            .collect();
        let took = steps_until(&mut cluster, &[], S(100), |c| {
            let knows = |silo: &ProcessId| {
                let changed = |(_, notice): &(_, Notice)| {
                    matches!(notice, Notice::Table(TableState::Changed(_)))
                };
                c.notices(*silo).iter().any(changed)
            };
            all.iter().all(knows)
        });
        println!("{seed}: {took:.1?}");
        assert!(took <= S(20), "{seed}: {took:?}");
    }
}

#[test]
fn few_survive_a_crash_of_many() {
    for (silos, left) in [(60, 1), (60, 3), (100, 5)] {
        for seed in 0..2 {
            let mut cluster = quiet(seed, silos, Config::default());
            let all = cluster.running();
            for silo in &all[left..] {
                cluster.crash_machine(*silo);
            }
            let few = all[..left].to_vec();
            let took = time_until(&mut cluster, S(1_500), |c| {
                let knows =
                    |id: &ProcessId| c.view(*id).is_some_and(|v| v.active().count() == left);
                few.iter().all(knows)
            });
            println!("{seed} {left} of {silos}: {took:.1?}");
            // One alone challenges a few at first, and then more.
            assert!(took <= S(90), "{seed} {left} of {silos}: {took:?}");
            cluster.settle().unwrap();
        }
    }
}
