//! One, two or three silos: no majority, or one that every fault can take away.

use std::time::Duration;

use crate::stage::{MS, Outcome, S, Stage, for_each, require};
use membership_core::protocol::Command;
use membership_core::{CauseOfDeath, SiloStatus};
use membership_testing::Cluster;

/// How long one silo that cannot be reached may keep others from joining: P14.
fn longest_block(cluster: &Cluster) -> Duration {
    let config = &cluster.truth().config;
    config.failure_window * 3 + config.i_am_alive_period * 3
}

/// One of one or two Active silos cannot be reached by anybody, but reaches the table and writes
/// heartbeats. Three silos that start then must become Active all the same.
fn one_of_few_is_unreachable(seed: u64, active: usize) -> Outcome {
    let mut stage = Stage::set(seed, active)?;
    let lonely = stage.draw(1);
    // Later hosts are cut off from it, too.
    stage.cluster.partition(&[lonely]);
    let joiners = stage.cluster.start(3);
    let most = longest_block(&stage.cluster) + S(2);
    let from = stage.cluster.now();
    let joined = stage.cluster.run_until(S(600), |c| {
        let is_active = |e: &membership_core::MembershipEntry| e.status == SiloStatus::Active;
        joiners.iter().all(|id| c.row(*id).is_some_and(is_active))
    })?;
    let took = stage.cluster.now() - from;
    println!("seed {seed}: of {active} Active: joined: {joined}, after {took:.1?}");
    require!(
        joined && took <= most,
        "the joiners needed {took:.1?}, more than {most:.1?}"
    );
    stage.ends_well_for(&joiners)
}

#[test]
fn one_of_few_silos_is_unreachable_and_others_join() {
    for_each(&[1, 2], 0..5, one_of_few_is_unreachable);
}

/// How a slow silo is slow now and then, for less than the failure window each time.
#[derive(Clone, Copy, Debug)]
enum Slow {
    /// It stands still.
    Stalls,
    /// It runs, but what it sends and gets is late.
    IsHeld,
    /// Its executor starves.
    Starves,
}

/// Three silos with three small faults at once: one is cut off from the table, one link is broken,
/// and one silo is slow now and then.
fn three_silos_with_three_small_faults(seed: u64, how: Slow) -> Outcome {
    let mut stage = Stage::set(seed, 3)?;
    let tableless = stage.draw(1)[0];
    let link = stage.draw(2);
    let slow = stage.draw(1)[0];
    stage.cluster.cut_from_table(tableless, true);
    stage.cluster.cut_both_ways(&link[..1], &link[1..]);
    let window = stage.cluster.truth().config.failure_window;
    for _ in 0..20 {
        let rng = stage.cluster.rng();
        let (quiet, time) = (
            rng.between(S(10), S(30)),
            rng.between(MS(500), window * 8 / 10),
        );
        match how {
            Slow::Stalls => stage.cluster.pause(slow, time),
            Slow::IsHeld => stage.cluster.hold(slow, time),
            Slow::Starves => stage.cluster.starve(slow, time / 2, S(10)),
        }
        if let Err(e) = stage.cluster.run_for(time + quiet) {
            if std::env::var("FULL").is_ok() {
                println!("{e}");
            }
            return Err(e.into());
        }
    }
    let all = stage.silos.clone();
    let lost = stage.lost(&all).len();
    println!("seed {seed}: one {how:?}, {lost} of 3 died");
    stage.ends_well_for(&all)
}

#[test]
fn nobody_dies_of_three_small_faults_in_three_silos() {
    let slow = [Slow::Stalls, Slow::IsHeld, Slow::Starves];
    for_each(&slow, 0..20, three_silos_with_three_small_faults);
}

/// Nobody reaches anybody for a while, nor the table at first. As soon as that is back, before anybody
/// could be challenged, all silos but one leave. None of them may be voted out: each ends its row itself, once its application has drained.
fn all_but_one_leave_in_an_outage(seed: u64, silos: usize) -> Outcome {
    let mut stage = Stage::set(seed, silos)?;
    let leavers = stage.draw(silos - 1);
    stage.cluster.network_outage(S(180));
    let without_table = stage.cluster.rng().between(S(10), S(30));
    stage.cluster.table_outage(without_table);
    stage.cluster.run_for(without_table)?;
    for silo in &leavers {
        stage.cluster.command(*silo, Command::BeginLeave);
    }
    let drains = stage.cluster.rng().between(S(5), S(40));
    stage.cluster.run_for(drains)?;
    for silo in &leavers {
        stage.cluster.command(*silo, Command::FinishLeave);
    }
    stage.cluster.run_for(S(20))?;
    for silo in &leavers {
        let row = stage.cluster.row(*silo);
        let cause = row.and_then(|e| Some(e.death.as_ref()?.cause.clone()));
        println!("seed {seed}: {} of {silos}: {cause:?}", stage.name(*silo));
        require!(
            cause == Some(CauseOfDeath::Left),
            "{} ended as {cause:?}",
            stage.name(*silo)
        );
    }
    let rest: Vec<_> = stage
        .silos
        .iter()
        .copied()
        .filter(|s| !leavers.contains(s))
        .collect();
    stage.ends_well_for(&rest)
}

#[test]
fn nobody_who_leaves_in_an_outage_of_all_is_voted_out() {
    for_each(&[2, 3, 5], 0..10, all_but_one_leave_in_an_outage);
}
