//! Round trips become long at once, and stay so for a while.

use crate::stage::{Outcome, S, Stage, for_each};
use membership_testing::Latency;

/// Round trips between two halves step from milliseconds to four seconds, for five minutes.
fn round_trips_step(seed: u64, silos: usize) -> Outcome {
    let mut stage = Stage::set(seed, silos)?;
    let halves = stage.sides(&[silos / 2, silos - silos / 2]);
    let two_seconds = Latency {
        low: S(2),
        high: S(2),
        slow_share: 0.0,
        slow: S(2),
    };
    stage
        .cluster
        .slow_links(&halves[0], &halves[1], two_seconds);
    stage.cluster.run_for(S(300))?;
    println!(
        "seed {seed}: {} of {silos} died",
        stage.lost(&stage.silos).len()
    );
    stage.cluster.usual_links();
    stage.cluster.run_for(S(60))?;
    let all = stage.silos.clone();
    stage.ends_well_for(&all)
}

#[test]
fn nobody_dies_when_round_trips_step_to_four_seconds() {
    for_each(&[5, 10, 30], 0..5, round_trips_step);
}
