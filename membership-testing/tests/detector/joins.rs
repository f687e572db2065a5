//! A silo is Joining while others have a fault: it is kept out by nobody who answers, and its join
//! ends nobody.

use crate::stage::{MS, Outcome, S, Stage, for_each, require};
use membership_core::{Config, Preset, SiloStatus};
use membership_testing::{Cluster, ProcessId};

fn is(cluster: &Cluster, silo: ProcessId, status: SiloStatus) -> bool {
    cluster.row(silo).is_some_and(|e| e.status == status)
}

/// Nobody can dial anybody for a while, not even the own address: all addresses lead through one
/// machine that is down. Each silo has a reason to look at its own: others challenge it, or join.
fn no_address_leads_anywhere(seed: u64, (silos, starts): (usize, usize)) -> Outcome {
    let mut stage = Stage::set(seed, silos)?;
    let all = stage.silos.clone();
    let joiners = stage.cluster.start(starts);
    let join = |c: &Cluster| joiners.iter().all(|id| is(c, *id, SiloStatus::Joining));
    stage.cluster.run_until(S(10), join)?;
    for silo in all.iter().chain(&joiners) {
        stage.cluster.lose_listener(*silo);
    }
    let time = stage.cluster.rng().between(S(10), S(60));
    stage.cluster.run_for(time)?;
    println!(
        "seed {seed}: {} of {silos} ended in {time:.1?}",
        stage.lost(&all).len()
    );
    stage.ends_well_for(&all)
}

#[test]
fn nobody_leaves_where_no_address_leads_anywhere() {
    let mut cases = Vec::new();
    for silos in [2, 3, 5, 30] {
        for starts in [0, 1] {
            cases.push((silos, starts));
        }
    }
    for_each(&cases, 0..5, no_address_leads_anywhere);
}

/// One silo has lost the table, and answers all others. A silo that starts is kept out no longer than
/// the one needs to find out.
fn a_silo_has_lost_the_table(seed: u64, (silos, preset): (usize, Preset)) -> Outcome {
    let config = Config::preset(preset);
    let most = config.table_call_timeout + config.probe_period * 2;
    let mut stage = Stage::set_as(seed, silos, |builder| builder.config(config))?;
    let all = stage.silos.clone();
    let one = stage.draw(1)[0];
    stage.cluster.cut_from_table(one, true);
    let before = stage.cluster.rng().between(S(0), S(60));
    stage.cluster.run_for(before)?;
    let joiner = stage.cluster.start(1)[0];
    let from = stage.cluster.now();
    let active = |c: &Cluster| is(c, joiner, SiloStatus::Active);
    let joined = stage.cluster.run_until(S(400), active)?;
    let took = stage.cluster.now() - from;
    println!("seed {seed}: {silos} {preset:?}: joined: {joined}, after {took:.1?}");
    require!(
        joined && took <= most,
        "the joiner needed {took:.1?}, more than {most:.1?}"
    );
    stage.ends_well_for(&all)
}

#[test]
fn a_silo_that_has_lost_the_table_keeps_nobody_out() {
    let mut cases = Vec::new();
    for silos in [2, 5, 30] {
        for preset in [Preset::Local, Preset::Lan, Preset::Wan] {
            cases.push((silos, preset));
        }
    }
    for_each(&cases, 0..5, a_silo_has_lost_the_table);
}

/// The protocol of one of two Active silos hangs, and its application still answers: only a majority
/// can end it, and that needs the word of a silo that joins. That one stands still again and again for
/// a while. Once it is well, it is soon Active.
fn a_joining_silo_recovers(seed: u64, time: u64) -> Outcome {
    let mut stage = Stage::set(seed, 2)?;
    let (all, one) = (stage.silos.clone(), stage.draw(1)[0]);
    stage.cluster.hang(one, S(400));
    let before = stage.cluster.rng().between(S(5), S(20));
    stage.cluster.run_for(before)?;
    let joiner = stage.cluster.start(1)[0];
    let joins = |c: &Cluster| is(c, joiner, SiloStatus::Joining);
    stage.cluster.run_until(S(10), joins)?;
    stage.cluster.starve(joiner, MS(2_800), S(time));
    stage.cluster.run_for(S(time) + MS(2_800))?;
    let config = &stage.cluster.truth().config;
    let most = config.failure_window * 2 + config.probe_period;
    let from = stage.cluster.now();
    let active = |c: &Cluster| is(c, joiner, SiloStatus::Active);
    let joined = stage.cluster.run_until(S(200), active)?;
    let took = stage.cluster.now() - from;
    println!("seed {seed}: unwell for {time} s: joined: {joined}, after {took:.1?}");
    require!(
        joined && took <= most,
        "the joiner needed {took:.1?}, more than {most:.1?}"
    );
    let others: Vec<ProcessId> = all.into_iter().filter(|s| *s != one).collect();
    stage.ends_well_for(&others)
}

#[test]
fn a_joining_silo_that_was_not_well_is_asked_again() {
    for_each(&[40, 70], 0..10, a_joining_silo_recovers);
}

/// A few silos are Active and many join, when the network splits: one of the few goes with the smaller
/// part, and keeps all of the larger one from joining. None of the others feels well, so that none consents
/// to a vote of another.
fn one_goes_with_the_smaller_part(seed: u64, (silos, joins): (usize, usize)) -> Outcome {
    let mut stage = Stage::set(seed, silos)?;
    let mut larger = stage.silos.clone();
    let away = larger.remove(stage.cluster.rng().below(silos));
    let joiners = stage.cluster.start(joins);
    let mut smaller = joiners[..joins / 2].to_vec();
    smaller.push(away);
    larger.extend(&joiners[joins / 2..]);
    // At first no part has a majority, so that each waits with its next call.
    let mut parts = vec![smaller.clone(), Vec::new(), Vec::new()];
    for (at, silo) in larger.iter().enumerate() {
        parts[1 + at % 2].push(*silo);
    }
    stage.cluster.partition(&parts);
    let time = stage.cluster.rng().between(S(5), S(100));
    stage.cluster.run_for(time)?;
    stage.cluster.heal();
    stage.cluster.partition(&[larger.clone(), smaller]);
    let from = stage.cluster.now();
    stage.cluster.run_until(S(120), |c| {
        c.row(away).is_none_or(|e| e.status == SiloStatus::Dead)
    })?;
    let took = stage.cluster.now() - from;
    println!("seed {seed}: {silos} and {joins} that join: after {took:.1?}");
    require!(took <= S(45), "it took {took:.1?}");
    stage.cluster.run_for(S(60))?;
    let all = stage.silos.iter();
    let others: Vec<ProcessId> = all.filter(|s| **s != away).copied().collect();
    stage.ends_well_for(&others)
}

#[test]
fn whoever_is_needed_votes_where_many_join() {
    let cases = [(3, 4), (3, 16), (3, 17), (3, 18), (7, 18)];
    for_each(&cases, 0..25, one_goes_with_the_smaller_part);
}

/// One of a few Active silos is out of everybody's reach, or its machine crashes, when many join: those of
/// the few that are left find out soon, although each silo probes ten others only.
fn one_of_few_is_away(seed: u64, (silos, joins, crashes): (usize, usize, bool)) -> Outcome {
    let mut stage = Stage::set(seed, silos)?;
    let offset = stage.cluster.rng().between(S(0), S(10));
    stage.cluster.run_for(offset)?;
    let away = stage.draw(1)[0];
    if crashes {
        stage.cluster.crash_machine(away);
    } else {
        stage.cluster.partition(&[vec![away]]);
    }
    let from = stage.cluster.now();
    let joiners = stage.cluster.start(joins);
    let active = |c: &Cluster| joiners.iter().all(|id| is(c, *id, SiloStatus::Active));
    let joined = stage.cluster.run_until(S(400), active)?;
    let took = stage.cluster.now() - from;
    println!("seed {seed}: {silos} {joins} {crashes}: joined: {joined}, after {took:.1?}");
    require!(joined && took <= S(15), "the last one needed {took:.1?}");
    let all = stage.silos.iter();
    let others: Vec<ProcessId> = all.filter(|s| **s != away).copied().collect();
    stage.ends_well_for(&others)
}

#[test]
fn one_of_few_that_is_away_keeps_nobody_out() {
    let cases = [(2, 12), (3, 12), (3, 20), (4, 20), (5, 20)];
    let both = cases.map(|(silos, joins)| [(silos, joins, false), (silos, joins, true)]);
    for_each(both.as_flattened(), 0..15, one_of_few_is_away);
}
