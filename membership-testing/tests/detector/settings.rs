//! Silos that are configured differently. What they share is in the table; how many probes make a
//! suspect, and so how long each waits for an answer, is their own.

use crate::stage::{Outcome, S, Stage, for_each, require};
use membership_core::protocol::{Protocol, Setup};
use membership_testing::{Machine, ProcessId};

/// One silo in `share` suspects after `limit` misses, each after a fraction of the usual timeout. One
/// machine crashes, and another silo pauses for less than the failure window.
fn some_wait_for_less(seed: u64, (silos, limit, share): (usize, u32, usize)) -> Outcome {
    let mut started = 0;
    let machines = move |mut setup: Setup| -> Box<dyn Machine> {
        if started % share == 0 {
            setup.config.num_missed_probes_limit = limit;
        }
        started += 1;
        Box::new(Protocol::new(setup))
    };
    let mut stage = Stage::set_as(seed, silos, |b| b.machines(Box::new(machines)))?;
    let drawn = stage.draw(2);
    let (gone, slow) = (drawn[0], drawn[1]);
    let others: Vec<ProcessId> = {
        let all = stage.silos.iter().copied();
        all.filter(|id| *id != gone).collect()
    };
    let from = stage.cluster.now();
    stage.cluster.crash_machine(gone);
    let offset = stage.cluster.rng().between(S(0), S(6));
    stage.cluster.run_for(offset)?;
    stage.cluster.pause(slow, S(4));
    while !stage.is_dead(gone) && stage.cluster.now() - from < S(60) {
        stage.cluster.run_for(S(1))?;
    }
    let took = stage.cluster.now() - from;
    println!("seed {seed}: {silos}, one in {share} waits for {limit} misses: {took:.1?}");
    require!(took <= S(30), "the crash was noticed after {took:.1?}");
    stage.cluster.run_for(S(30))?;
    stage.ends_well_for(&others)
}

#[test]
fn silos_that_wait_for_less_kill_nobody_and_notice_a_crash() {
    let mut cases = Vec::new();
    for silos in [3, 5, 10, 30] {
        for (limit, share) in [(3, 2), (6, 2), (20, 2), (20, 4)] {
            cases.push((silos, limit, share));
        }
    }
    for_each(&cases, 0..10, some_wait_for_less);
}
