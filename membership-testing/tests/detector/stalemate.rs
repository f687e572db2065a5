//! No part of a split network has a majority: nobody may die, and nobody may shout.

use crate::stage::{Outcome, S, Stage, for_each, for_seeds, require};
use membership_core::SiloStatus;

/// The split lasts for this many minutes.
const MINUTES: usize = 10;
/// In the first minutes silos find out.
const FIND_OUT: usize = 2;
/// The most messages, in relation to a quiet cluster.
const MOST: f64 = 3.0;

/// The network splits into sides none of which has a majority.
fn no_side_has_a_majority(seed: u64, sizes: [usize; 3]) -> Outcome {
    let mut stage = Stage::set(seed, sizes.iter().sum())?;
    let all = stage.silos.clone();
    let quiet = stage.load(&all, S(120))?;
    let sides = stage.sides(&sizes);
    stage.cluster.partition(&sides);
    let mut loads = Vec::new();
    for _ in 0..MINUTES {
        loads.push(stage.load(&all, S(60))? / quiet);
    }
    let most = loads.iter().skip(FIND_OUT).copied().fold(0.0, f64::max);
    println!(
        "seed {seed}: {sizes:?}: {} died, {quiet:.1} messages per silo and second before, then \
         times {loads:.1?}",
        stage.lost(&all).len()
    );
    stage.all_live(&all)?;
    require!(
        most <= MOST,
        "{most:.1} times the messages of a quiet cluster"
    );
    stage.ends_well_for(&all)
}

#[test]
fn nobody_dies_and_nobody_shouts_where_no_side_has_a_majority() {
    for_each(&[[8, 6, 6], [9, 9, 2]], 0..2, no_side_has_a_majority);
}

#[test]
#[ignore = "two minutes: .ci/run nightly runs it"]
fn nobody_dies_and_nobody_shouts_where_no_side_of_a_hundred_has_a_majority() {
    for_each(&[[40, 30, 30]], 0..2, no_side_has_a_majority);
}

/// Nobody reaches anybody for some time. When the network comes back, one of five is still out of reach:
/// it is declared dead soon, although the question of the last call before reached nobody.
fn one_stays_away_after_an_outage(seed: u64) -> Outcome {
    let mut stage = Stage::set(seed, 5)?;
    let silo = stage.draw(1)[0];
    let mut others = stage.silos.clone();
    others.retain(|id| *id != silo);
    let outage = stage.cluster.rng().between(S(10), S(60));
    stage.cluster.network_outage(outage);
    stage.cluster.run_for(outage - S(1))?;
    stage.all_live(&others)?;
    stage.cluster.cut_both_ways(&[silo], &others);
    let from = stage.cluster.now();
    stage.cluster.run_until(S(600), |c| {
        let row = c.row(silo);
        row.is_none_or(|e| e.status == SiloStatus::Dead)
    })?;
    let took = stage.cluster.now() - from;
    println!("seed {seed}: after {took:.1?}");
    require!(took <= S(50), "it took {took:.1?}");
    stage.ends_well_for(&others)
}

#[test]
fn a_silo_that_stays_away_after_an_outage_dies() {
    for_seeds(0..100, one_stays_away_after_an_outage);
}
