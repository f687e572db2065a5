//! No part of a split network has a majority: nobody may die, and nobody may shout.

use crate::stage::{Outcome, S, Stage, for_each, require};

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
