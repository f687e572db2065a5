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

/// Messages between all silos take up to three seconds each way, for five minutes: answers are late,
/// calls find that most reach the suspects, and nobody dies.
fn every_link_is_slow(seed: u64, silos: usize) -> Outcome {
    let mut stage = Stage::set(seed, silos)?;
    let all = stage.silos.clone();
    let slow = Latency {
        low: S(0),
        high: S(3),
        slow_share: 0.0,
        slow: S(3),
    };
    stage.cluster.slow_links(&all, &all, slow);
    stage.cluster.run_for(S(300))?;
    println!("seed {seed}: {} of {silos} died", stage.lost(&all).len());
    stage.cluster.usual_links();
    stage.cluster.run_for(S(60))?;
    stage.ends_well_for(&all)
}

#[test]
fn nobody_dies_when_every_link_takes_up_to_three_seconds() {
    for_each(&[5, 20], 0..5, every_link_is_slow);
}
