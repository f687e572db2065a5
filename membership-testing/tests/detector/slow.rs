//! Round trips become long at once, and stay so for a while.

use crate::stage::{MS, Outcome, S, Stage, for_each};
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

/// The network of all is away, and comes back. One silo is far from the others: its answers arrive after
/// those of the others, who have missed it for as long as each other.
fn the_network_comes_back(seed: u64, (silos, most): (usize, u64)) -> Outcome {
    let mut stage = Stage::set(seed, silos)?;
    let all = stage.silos.clone();
    let far = stage.draw(1);
    let latency = Latency {
        low: MS(most / 2),
        high: MS(most),
        slow_share: 0.0,
        slow: S(1),
    };
    stage.cluster.slow_links(&far, &all, latency);
    for _ in 0..3 {
        let time = stage.cluster.rng().between(S(20), S(90));
        stage.cluster.network_outage(time);
        stage.cluster.run_for(time)?;
        let quiet = stage.cluster.rng().between(S(5), S(60));
        stage.cluster.run_for(quiet)?;
    }
    stage.ends_well_for(&all)
}

#[test]
fn nobody_dies_when_the_network_of_all_comes_back() {
    let mut cases = Vec::new();
    for silos in [3, 4, 5] {
        for most in [200, 400] {
            cases.push((silos, most));
        }
    }
    for_each(&cases, 0..30, the_network_comes_back);
}
