//! Nearly all silos crash at one moment, or all of them: no majority is left that could vote.

use crate::stage::{Outcome, S, Stage, for_each, for_seeds, require};
use membership_testing::ProcessId;

/// How the silos end.
#[derive(Clone, Copy, Debug)]
enum Crash {
    /// The processes only: their machines refuse connections.
    Processes,
    /// Their machines too: nobody is told anything.
    Machines,
}

/// All but `survivors` of five silos crash at one moment, and `started` others start. All that run
/// must be Active, and no other row may be left, within half a minute; or somewhat later if nobody is
/// left who remembers the others, and no machine refuses connections.
fn five_crash(seed: u64, (how, survivors, started): (Crash, usize, usize)) -> Outcome {
    let at_most = match (how, survivors) {
        (Crash::Machines, 0) => S(45),
        _ => S(30),
    };
    let mut stage = Stage::set(seed, 5)?;
    let time = stage.cluster.rng().between(S(0), S(10));
    stage.cluster.run_for(time)?;
    for victim in stage.draw(5 - survivors) {
        match how {
            Crash::Processes => stage.cluster.kill(victim),
            Crash::Machines => stage.cluster.crash_machine(victim),
        }
    }
    let mut running = stage.cluster.running();
    running.extend(stage.cluster.start(started));
    // They have no addresses before they have read the table.
    stage.cluster.run_for(S(3))?;
    let known = stage
        .until_settled(&running, S(120))?
        .map(|took| took + S(3));
    println!("seed {seed}: {how:?}, {survivors} left, {started} started: known after {known:.1?}");
    require!(
        known.is_some_and(|took| took <= at_most),
        "{how:?}, {survivors} left, {started} started: known only after {known:.1?}"
    );
    stage.ends_well_for(&running)
}

#[test]
fn one_of_five_is_left() {
    let cases = [(Crash::Processes, 1, 0), (Crash::Machines, 1, 0)];
    for_each(&cases, 0..5, five_crash);
}

/// In these runs the survivor reads the table at the moment at which its call ends.
#[test]
fn a_survivor_votes_when_its_read_has_ended() {
    for seed in [114, 121, 236] {
        for how in [Crash::Processes, Crash::Machines] {
            five_crash(seed, (how, 1, 0)).unwrap();
        }
    }
}

#[test]
fn nobody_is_left_and_others_start() {
    let cases = [(Crash::Processes, 0, 5), (Crash::Machines, 0, 5)];
    for_each(&cases, 0..5, five_crash);
}

/// Three or four are left of many. They do not probe each other, so each of them has a reason to doubt
/// itself: no probe of a member reaches it, and nobody answers its own. All others must leave all the
/// same, and soon.
fn a_few_of_many_are_left(seed: u64, (how, silos, left): (Crash, usize, usize)) -> Outcome {
    let mut stage = Stage::set(seed, silos)?;
    for victim in stage.draw(silos - left) {
        match how {
            Crash::Processes => stage.cluster.kill(victim),
            Crash::Machines => stage.cluster.crash_machine(victim),
        }
    }
    let running = stage.cluster.running();
    let known = stage.until_settled(&running, S(600))?;
    println!("seed {seed}: {how:?}, {left} of {silos} left: known after {known:.1?}");
    require!(
        known.is_some_and(|took| took <= S(120)),
        "{how:?}, {left} of {silos} left: known only after {known:.1?}"
    );
    // The load of each minute of it is judged as well.
    stage.cluster.run_for(S(60))?;
    stage.all_live(&running)
}

#[test]
fn a_few_of_many_are_left_and_remove_the_others() {
    let mut cases = Vec::new();
    for how in [Crash::Processes, Crash::Machines] {
        for (silos, left) in [
            (12, 3),
            (30, 3),
            (60, 3),
            (60, 4),
            (60, 5),
            (100, 3),
            (100, 10),
        ] {
            cases.push((how, silos, left));
        }
    }
    for_each(&cases, 0..20, a_few_of_many_are_left);
}

/// The challenges in the table.
fn challenges(stage: &Stage) -> usize {
    let votes = |id: &ProcessId| stage.cluster.row(*id).map_or(0, |row| row.suspicions.len());
    stage.silos.iter().map(votes).sum()
}

/// A silo starts that reaches the table and nobody else. The others go on as before.
fn a_joiner_is_cut_off(seed: u64) -> Outcome {
    let mut stage = Stage::set(seed, 5)?;
    let all = stage.silos.clone();
    stage.cluster.partition(std::slice::from_ref(&all));
    stage.cluster.start(1);
    for _ in 0..90 {
        stage.cluster.run_for(S(1))?;
        require!(challenges(&stage) == 0, "it challenges silos that are well");
    }
    stage.ends_well_for(&all)
}

#[test]
fn a_joiner_that_is_cut_off_challenges_nobody() {
    for_seeds(0..5, a_joiner_is_cut_off);
}

/// Four of five silos do not reach the table for twelve seconds, and the fifth reaches only the table.
fn most_silos_write_nothing_for_a_while(seed: u64) -> Outcome {
    let mut stage = Stage::set(seed, 5)?;
    let all = stage.silos.clone();
    let most = stage.draw(4);
    stage.cluster.partition(std::slice::from_ref(&most));
    for silo in &most {
        stage.cluster.cut_from_table(*silo, true);
    }
    stage.cluster.run_for(S(12))?;
    for silo in &most {
        stage.cluster.cut_from_table(*silo, false);
    }
    stage.cluster.run_for(S(5))?;
    stage.all_live(&most)?;
    stage.cluster.heal();
    stage.ends_well_for(&most)?;
    println!("seed {seed}: {} of 5 died", stage.lost(&all).len());
    Ok(())
}

#[test]
fn twelve_seconds_without_the_table_are_no_end_of_most_silos() {
    for_seeds(0..5, most_silos_write_nothing_for_a_while);
}
