//! Most of a quiet cluster crashes, and the few that are left cannot write for a while: what they would
//! have written must not be lost with it.

use std::time::Duration;

use membership_core::SiloStatus;
use membership_testing::{Cluster, ProcessId, UnknownOutcome};

use super::{MS, S, SILOS, cluster};

/// How long it takes until all dead silos are Dead, if the table is slow for this long, or the outcome of
/// all commits unknown.
fn time_of_deaths(seed: u64, left: usize, slow: bool, lasts: Duration) -> Duration {
    let mut cluster = cluster(seed);
    let dead: Vec<ProcessId> = cluster.running()[..SILOS - left].to_vec();
    match slow {
        true => cluster.slow_table(MS(2_000), MS(2_500)),
        false => cluster.unknown_outcomes_of(Some(UnknownOutcome::NotApplied), 1.0),
    }
    for silo in &dead {
        cluster.crash_machine(*silo);
    }
    let began = cluster.now();
    let all_dead = |c: &Cluster| {
        let is_dead = |id: &ProcessId| c.row(*id).is_none_or(|e| e.status == SiloStatus::Dead);
        dead.iter().all(is_dead)
    };
    let mut found = cluster.run_until(lasts, all_dead).unwrap();
    cluster.normal_table();
    cluster.unknown_outcomes(0.0);
    found = found || cluster.run_until(S(1_500), all_dead).unwrap();
    assert!(found, "{seed}");
    let took = cluster.now() - began;
    cluster.settle().unwrap();
    took
}

#[test]
fn a_table_that_takes_no_commits_for_a_while_hides_no_dead_silos_for_long() {
    // Where the table stays slow, a first challenge may expire (120 s) before all have looked: then it takes a
    // second one. Of sixteen seeds each, that is a third, and at most 260 s.
    for (left, slow, lasts, most) in [
        (1, true, 25, 90),
        (1, false, 25, 90),
        (2, true, 25, 90),
        (4, true, 600, 300),
        (8, true, 600, 300),
    ] {
        let usual = 0..if lasts > 25 { 16 } else { 3 };
        for seed in membership_testing::seeds::chosen(usual).unwrap() {
            let took = time_of_deaths(seed, left, slow, S(lasts));
            println!("{left} left, slow {slow} for {lasts} s, seed {seed}: {took:.1?}");
            assert!(took <= S(most), "{left} {slow} {seed}: {took:?}");
        }
    }
}
