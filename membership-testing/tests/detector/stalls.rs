//! Processes stall, once or again and again, and go on. Short stalls kill nobody.

use std::cell::RefCell;
use std::error::Error;
use std::time::Duration;

use crate::stage::{MS, Outcome, S, Stage, count, for_each, for_seeds, require};
use membership_core::SiloStatus;
use membership_testing::{Cluster, ProcessId};

/// A silo answers probes again this long after its last stall. Before that it may have to read a
/// slow table, and somebody has to probe it.
const MUTE_AT_MOST: Duration = Duration::from_secs(6);

/// A silo of five stalls, and stalls again while it reads the table after the first stall; each time
/// for `low` to `high` percent of the failure window. Nobody else dies of that. The silo itself is
/// not mute for long, and lives if each stall is shorter than the failure window.
fn a_silo_stutters(seed: u64, low: u32, high: u32) -> Outcome {
    let mut stage = Stage::set(seed, 5)?;
    let silo = stage.draw(1)[0];
    if stage.cluster.rng().chance(0.5) {
        stage.cluster.slow_table(MS(200), S(1));
    }
    let window = stage.cluster.truth().config.failure_window;
    let (least, most) = (window * low / 100, window * high / 100);
    let first = stage.cluster.rng().between(least, most);
    let second = stage.cluster.rng().between(least, most);
    stage.cluster.stutter(silo, first, second);
    stage.cluster.run_for(first + MS(600))?;
    require!(
        stage.cluster.is_paused(silo),
        "{} did not stall again",
        stage.name(silo)
    );
    while stage.cluster.is_paused(silo) {
        stage.cluster.run_for(MS(10))?;
    }
    let resumed = stage.cluster.now();
    stage.cluster.run_for(MUTE_AT_MOST)?;
    let lives = stage.lost(&[silo]).is_empty();
    let mute = stage.last_answer(silo) <= resumed;
    println!("seed {seed}: stalls {first:.1?} and {second:.1?}, lives: {lives}, mute: {mute}");
    require!(
        !(lives && mute),
        "{} is mute {MUTE_AT_MOST:?} after its last stall",
        stage.name(silo)
    );
    stage.cluster.run_for(S(60))?;
    let mut healthy = stage.silos.clone();
    healthy.retain(|id| *id != silo || high < 100);
    stage.ends_well_for(&healthy)
}

#[test]
fn a_silo_that_stutters_briefly_lives_and_answers() {
    for_seeds(0..20, |seed| a_silo_stutters(seed, 50, 95));
}

#[test]
fn a_silo_that_stutters_for_long_harms_nobody_else() {
    for_seeds(0..20, |seed| a_silo_stutters(seed, 95, 160));
}

/// A silo of five stalls for just longer than the failure window, and then twice for less, while the
/// table does not tell it whether it still lives. Others must hear it between the stalls. The
/// first stall may kill it, if its word comes too late; what follows may not. Returns whether it
/// lives.
fn a_silo_stutters_without_the_table(seed: u64) -> Result<bool, Box<dyn Error>> {
    let mut stage = Stage::set(seed, 5)?;
    let silo = stage.draw(1)[0];
    let window = stage.cluster.truth().config.failure_window;
    let first = stage
        .cluster
        .rng()
        .between(window * 102 / 100, window * 110 / 100);
    stage.cluster.pause(silo, first);
    // Its first call after the stall fails at once, or is not answered.
    stage.cluster.cut_from_table(silo, true);
    stage.cluster.run_for(first)?;
    let run = stage.cluster.rng().between(MS(1_500), MS(2_000));
    stage.cluster.run_for(run)?;
    let killed = !stage.lost(&[silo]).is_empty();
    for _ in 0..2 {
        let stall = stage
            .cluster
            .rng()
            .between(window * 50 / 100, window * 75 / 100);
        stage.cluster.pause(silo, stall);
        let run = stage.cluster.rng().between(MS(300), MS(900));
        stage.cluster.run_for(stall + run)?;
    }
    stage.cluster.cut_from_table(silo, false);
    stage.cluster.run_for(S(60))?;
    println!("seed {seed}: killed by the first stall: {killed}");
    let mut all = stage.silos.clone();
    all.retain(|id| *id != silo || !killed);
    stage.ends_well_for(&all)?;
    Ok(!killed)
}

#[test]
fn a_table_that_does_not_answer_makes_no_silo_mute() {
    let count = RefCell::new((0, 0));
    for_seeds(0..200, |seed| {
        let lives = a_silo_stutters_without_the_table(seed)?;
        let mut count = count.borrow_mut();
        count.0 += 1;
        count.1 += usize::from(!lives);
        Ok(())
    });
    // One that says nothing until the table answers dies in half of the runs, and one that is heard
    // at once in a seventh.
    let (runs, died) = count.into_inner();
    println!("{died} of {runs} died");
    assert!(runs < 40 || died * 3 < runs, "{died} of {runs} died");
}

/// Some silos of 20 stall at one moment, for four seconds.
fn silos_stall_together(seed: u64, how_many: usize) -> Outcome {
    let mut stage = Stage::set(seed, 20)?;
    for silo in stage.draw(how_many) {
        stage.cluster.pause(silo, S(4));
    }
    stage.cluster.run_for(S(120))?;
    let all = stage.silos.clone();
    stage.ends_well_for(&all)
}

#[test]
fn nobody_dies_of_a_stall_of_four_seconds() {
    for_each(&[1, 10, 20], 0..10, silos_stall_together);
}

/// A machine crashes while another silo stalls for four seconds: only the crashed one dies.
fn a_silo_stalls_beside_a_crash(seed: u64) -> Outcome {
    let mut stage = Stage::set(seed, 10)?;
    let drawn = stage.draw(2);
    let offset = stage.cluster.rng().between(S(0), S(8));
    stage.cluster.crash_machine(drawn[0]);
    stage.cluster.run_for(offset)?;
    stage.cluster.pause(drawn[1], S(4));
    stage.cluster.run_for(S(120))?;
    let mut others = stage.silos.clone();
    others.retain(|id| *id != drawn[0]);
    stage.ends_well_for(&others)
}

#[test]
fn a_stall_beside_a_crash_kills_nobody() {
    for_seeds(0..20, a_silo_stalls_beside_a_crash);
}

/// The executor of one silo starves in bursts of less than half a failure window, for five minutes.
fn an_executor_starves(seed: u64) -> Outcome {
    let mut stage = Stage::set(seed, 7)?;
    let silo = stage.draw(1)[0];
    let window = stage.cluster.truth().config.failure_window;
    stage.cluster.starve(silo, window * 45 / 100, S(300));
    stage.cluster.run_for(S(360))?;
    let all = stage.silos.clone();
    stage.ends_well_for(&all)
}

#[test]
fn nobody_dies_of_a_starving_executor() {
    for_seeds(0..10, an_executor_starves);
}

/// Nobody can dial one silo of seven, which still sends: it leaves, and nobody else does.
fn a_silo_loses_its_listener(seed: u64) -> Outcome {
    let mut stage = Stage::set(seed, 7)?;
    let silo = stage.draw(1)[0];
    stage.cluster.lose_listener(silo);
    stage.cluster.run_for(S(60))?;
    require!(
        !stage.lost(&[silo]).is_empty(),
        "{} still lives",
        stage.name(silo)
    );
    let mut others = stage.silos.clone();
    others.retain(|id| *id != silo);
    stage.ends_well_for(&others)
}

#[test]
fn only_the_silo_without_a_listener_leaves() {
    for_seeds(0..10, a_silo_loses_its_listener);
}

/// Two of the links of one silo of five are lost for good, and it stalls again and again, each time for
/// less than the failure window. So does another one that still reaches it, and does not hear it
/// whenever one of the two stands still. Its word must not be the third of five.
fn a_silo_and_a_witness_stutter(seed: u64) -> Outcome {
    let mut stage = Stage::set(seed, 5)?;
    let drawn = stage.draw(4);
    let (silo, witness, others) = (drawn[0], drawn[1], &drawn[2..]);
    stage.cluster.cut_both_ways(&[silo], others);
    let window = stage.cluster.truth().config.failure_window;
    let end = stage.cluster.now() + S(90);
    let mut next = [stage.cluster.now(); 2];
    while stage.cluster.now() < end {
        let now = stage.cluster.now();
        for (at, id) in next.iter_mut().zip([silo, witness]) {
            if *at <= now {
                let stall = stage.cluster.rng().between(MS(500), window * 93 / 100);
                let runs = stage.cluster.rng().between(MS(5), MS(300));
                stage.cluster.pause(id, stall);
                *at = now + stall + runs;
            }
        }
        let step = next[0].min(next[1]).saturating_sub(now);
        stage.cluster.run_for(step.max(MS(1)))?;
    }
    let all = stage.silos.clone();
    stage.ends_well_for(&all)
}

#[test]
fn a_witness_that_stutters_is_no_reason_for_a_death() {
    for_seeds(0..200, a_silo_and_a_witness_stutter);
}

/// One of three stalls for just less than the failure window. Another one says meanwhile that it fails to
/// reach it, and that it does as soon as it goes on; the third hears only the first of that, because it
/// hears nobody for a while from then on.
fn what_was_said_meanwhile_stays_alone(seed: u64) -> Outcome {
    let mut stage = Stage::set(seed, 3)?;
    let drawn = stage.draw(3);
    let (silo, deaf) = (drawn[0], drawn[1]);
    let offset = stage.cluster.rng().between(S(0), S(5));
    stage.cluster.run_for(offset)?;
    let window = stage.cluster.truth().config.failure_window;
    let stall = stage
        .cluster
        .rng()
        .between(window * 80 / 100, window * 95 / 100);
    let before = stage.cluster.rng().between(MS(1), MS(1_200));
    stage.cluster.pause(silo, stall);
    stage.cluster.run_for(stall.saturating_sub(before))?;
    stage.cluster.cut_one_way(&[silo, drawn[2]], &[deaf]);
    let after = stage.cluster.rng().between(MS(500), S(2));
    stage.cluster.run_for(before + after)?;
    stage.cluster.heal();
    stage.cluster.run_for(S(30))?;
    stage.all_live(&drawn)
}

#[test]
fn a_word_from_before_the_end_of_a_stall_kills_nobody() {
    for_seeds(0..200, what_was_said_meanwhile_stays_alone);
}

/// Just under half of the links of a silo are cut, and within a probe period it pauses once, for less
/// than the failure window.
fn a_silo_that_half_reach_stalls(seed: u64, silos: usize) -> Outcome {
    let mut stage = Stage::set(seed, silos)?;
    let mut others = stage.draw(silos.div_ceil(2));
    let Some(silo) = others.pop() else {
        return Err("nobody was drawn".into());
    };
    if stage.cluster.rng().chance(0.5) {
        stage.cluster.cut_both_ways(&[silo], &others);
    } else {
        stage.cluster.cut_one_way(&[silo], &others);
    }
    let offset = stage.cluster.rng().between(S(0), S(5));
    stage.cluster.run_for(offset)?;
    let window = stage.cluster.truth().config.failure_window;
    let stall = stage.cluster.rng().between(S(2), window * 93 / 100);
    stage.cluster.pause(silo, stall);
    stage.cluster.run_for(S(30))?;
    stage.all_live(&[silo])
}

/// Five of the 360 runs end with the death of the silo, which is known and open: see
/// [`few_silos_that_half_reach_die_of_a_long_stall`].
const OPEN: [(usize, u64); 5] = [(20, 15), (20, 34), (20, 53), (30, 38), (60, 50)];

#[test]
fn a_silo_that_less_than_half_lost_may_pause() {
    for_each(&[5, 9, 15, 20, 30, 60], 0..60, |seed, silos| {
        if OPEN.contains(&(silos, seed)) {
            return Ok(());
        }
        a_silo_that_half_reach_stalls(seed, silos)
    });
}

/// Just under half of the links of a silo are cut, and within a few seconds it pauses for most of a failure
/// window.
fn a_silo_that_half_reach_stalls_for_long(seed: u64, silos: usize) -> Outcome {
    let mut stage = Stage::set(seed, silos)?;
    let mut others = stage.draw(silos.div_ceil(2));
    let silo = others.pop().ok_or("no silo")?;
    match stage.cluster.rng().below(3) {
        0 => stage.cluster.cut_both_ways(&[silo], &others),
        1 => stage.cluster.cut_one_way(&[silo], &others),
        _ => stage.cluster.cut_one_way(&others, &[silo]),
    }
    let window = stage.cluster.truth().config.failure_window;
    let offset = stage.cluster.rng().between(S(0), S(5));
    stage.cluster.run_for(offset)?;
    let (least, most) = (window * 80 / 100, window * 93 / 100);
    let stall = stage.cluster.rng().between(least, most);
    stage.cluster.pause(silo, stall);
    stage.cluster.run_for(stall + S(20))?;
    stage.all_live(&[silo])
}

/// It may die, if both messages that begin the silence went over links that are cut. That is not cured: this says
/// how often it happens.
#[test]
fn few_silos_that_half_reach_die_of_a_long_stall() {
    for silos in [9, 13, 20] {
        let (dead, runs) = count(0..100, |seed| {
            a_silo_that_half_reach_stalls_for_long(seed, silos)
        });
        println!("{dead} of {runs} died, in clusters of {silos}");
        assert!(
            dead * 4 <= runs,
            "{dead} of {runs} died, in clusters of {silos}"
        );
    }
}

/// All machines stand still for longer than the failure window, and some of the silos get no answer
/// of the table afterwards: they stay suspended, and answer probes.
fn some_stay_suspended(
    seed: u64,
    silos: usize,
    suspended: usize,
) -> Result<(Stage, Vec<ProcessId>), Box<dyn Error>> {
    let mut stage = Stage::set(seed, silos)?;
    let drawn = stage.draw(silos);
    let stall = stage.cluster.rng().between(MS(4_700), S(12));
    for silo in &drawn {
        stage.cluster.pause(*silo, stall);
    }
    for silo in &drawn[..suspended] {
        stage.cluster.cut_from_table(*silo, true);
    }
    stage.cluster.run_for(stall + S(20))?;
    stage.all_live(&drawn)?;
    let waits = |silo: &&ProcessId| stage.cluster.is_suspended(**silo);
    let waiting = drawn.iter().filter(waits).count();
    require!(waiting == suspended, "{waiting} are suspended");
    Ok((stage, drawn))
}

/// It happens within this time; then all have their table again.
fn comes_true(
    mut stage: Stage,
    drawn: &[ProcessId],
    most: Duration,
    what: impl Fn(&Cluster) -> bool,
) -> Outcome {
    let from = stage.cluster.now();
    stage.cluster.run_until(S(300), what)?;
    let took = stage.cluster.now() - from;
    println!("after {took:.1?}");
    require!(took <= most, "it took {took:.1?}");
    for silo in drawn {
        stage.cluster.cut_from_table(*silo, false);
    }
    stage.ends_well_for(drawn)
}

/// Silos that are suspended for good keep no newcomer out for longer than those that have lost the table.
fn a_silo_joins_suspended_ones(seed: u64, (silos, suspended): (usize, usize)) -> Outcome {
    let (mut stage, drawn) = some_stay_suspended(seed, silos, suspended)?;
    let joiner = stage.cluster.start(1)[0];
    let joins = |c: &Cluster| {
        let row = c.row(joiner);
        row.is_some_and(|e| e.status == SiloStatus::Active)
    };
    println!("seed {seed}: {suspended} of {silos} suspended, one joins");
    comes_true(stage, &drawn, S(20), joins)
}

#[test]
fn silos_that_stay_suspended_keep_nobody_out() {
    let cases = [(2, 1), (3, 1), (3, 2), (5, 3), (7, 4)];
    for_each(&cases, 0..10, a_silo_joins_suspended_ones);
}

/// Silos that are suspended for good keep no silo in the view that has crashed.
fn a_silo_crashes_beside_suspended_ones(seed: u64, (silos, suspended): (usize, usize)) -> Outcome {
    let (mut stage, mut drawn) = some_stay_suspended(seed, silos, suspended)?;
    let Some(gone) = drawn.pop() else {
        return Err("nobody was drawn".into());
    };
    stage.cluster.crash_machine(gone);
    let dead = |c: &Cluster| c.row(gone).is_none_or(|e| e.status == SiloStatus::Dead);
    println!("seed {seed}: {suspended} of {silos} suspended, one crashes");
    comes_true(stage, &drawn, S(30), dead)
}

#[test]
fn silos_that_stay_suspended_keep_no_dead_one() {
    let cases = [(3, 1), (4, 2), (5, 3), (7, 5), (10, 8)];
    for_each(&cases, 0..10, a_silo_crashes_beside_suspended_ones);
}

/// All silos stall for a moment, run for a moment, and so on: each time for less than makes one doubt
/// itself. A machine that crashes must be noticed all the same, and nobody else dies.
fn all_stall_again_and_again(seed: u64, (silos, runs): (usize, Duration)) -> Outcome {
    let mut stage = Stage::set(seed, silos)?;
    let gone = stage.draw(1)[0];
    stage.cluster.crash_machine(gone);
    let mut others = stage.silos.clone();
    others.retain(|id| *id != gone);
    let from = stage.cluster.now();
    let mut next = vec![from; others.len()];
    while !stage.is_dead(gone) {
        let now = stage.cluster.now();
        require!(now - from < S(60), "the crash is not noticed");
        for (at, id) in next.iter_mut().zip(&others) {
            if *at <= now {
                let stall = stage.cluster.rng().between(MS(380), MS(900));
                let run = stage.cluster.rng().between(MS(1), runs);
                stage.cluster.pause(*id, stall);
                *at = now + stall + run;
            }
        }
        let step = next.iter().min().map_or(MS(1), |at| at.saturating_sub(now));
        stage.cluster.run_for(step.max(MS(1)))?;
    }
    let took = stage.cluster.now() - from;
    println!("seed {seed}: {silos}, running for up to {runs:?}: noticed after {took:.1?}");
    require!(took <= S(30), "the crash was noticed after {took:.1?}");
    stage.ends_well_for(&others)
}

#[test]
fn a_crash_is_noticed_by_silos_that_stall_again_and_again() {
    let cases = [(5, MS(50)), (5, MS(200)), (12, MS(100)), (30, MS(300))];
    for_each(&cases, 0..10, all_stall_again_and_again);
}
