//! Parts of the network are cut; every silo reaches the table. Whom a majority reaches must live.

use std::collections::BTreeSet;

use crate::stage::{Outcome, S, Stage, for_each, for_seeds, require};
use membership_core::SiloAddress;
use membership_testing::{Cluster, ProcessId, VirtualTime};

/// The cut lasts for this long.
const CUT: u64 = 300;

/// Three zones of equal size. The link between two of them is cut; the third reaches both.
fn two_of_three_zones_lose_their_link(seed: u64, silos: usize) -> Outcome {
    let mut stage = Stage::with_a_lost_link(seed, silos)?;
    stage.cluster.run_for(S(CUT))?;
    stage.cluster.heal();
    stage.cluster.run_for(S(60))?;
    let all = stage.silos.clone();
    stage.ends_well_for(&all)
}

#[test]
fn nobody_dies_when_two_of_three_zones_lose_their_link() {
    for_each(&[9, 30], 0..3, two_of_three_zones_lose_their_link);
}

#[test]
fn nobody_dies_when_two_of_three_large_zones_lose_their_link() {
    for_each(&[90], 0..1, two_of_three_zones_lose_their_link);
}

#[test]
#[ignore = "minutes: cargo xtask soak runs it"]
fn nobody_dies_when_two_of_three_very_large_zones_lose_their_link() {
    for_each(&[300], 0..1, two_of_three_zones_lose_their_link);
}

/// Cuts links of a shape that the seed draws.
fn cut_some_links(stage: &mut Stage) {
    let all = stage.silos.len();
    let shape = stage.cluster.rng().below(4);
    let some = 1 + stage.cluster.rng().below(all / 2);
    let drawn = stage.draw(some);
    let others: Vec<ProcessId> = {
        let rest = |id: &ProcessId| !drawn.contains(id);
        stage.silos.iter().copied().filter(rest).collect()
    };
    let partial = 1 + stage.cluster.rng().below(others.len());
    match shape {
        0 => stage.cluster.cut_one_way(&drawn, &others[..partial]),
        1 => stage.cluster.cut_both_ways(&drawn, &others[..partial]),
        // A share of all directions, or of all links, at random.
        _ => {
            let share = stage.cluster.rng().below(40) as f64 / 100.0;
            let mut directions = BTreeSet::new();
            for a in &stage.silos {
                for b in &stage.silos {
                    if a != b && stage.cluster.rng().chance(share) {
                        directions.insert((*a, *b));
                        if shape == 3 {
                            directions.insert((*b, *a));
                        }
                    }
                }
            }
            stage.cluster.cut_links(|a, b| directions.contains(&(a, b)));
        }
    }
}

/// Whether a silo and those that it reaches both ways are more than half of these.
fn a_majority_reaches(cluster: &Cluster, silo: ProcessId, active: &BTreeSet<ProcessId>) -> bool {
    let truth = cluster.truth();
    let host = |id: ProcessId| truth.record(id).map_or(0, |record| record.host);
    let reached = active.iter().filter(|other| {
        let (a, b) = (host(silo), host(**other));
        !cluster.network().is_blocked(a, b) && !cluster.network().is_blocked(b, a)
    });
    reached.count() * 2 > active.len()
}

/// Fails if somebody of these deaths, one commit after the other, was reached by a majority.
fn judge(stage: &Stage, since: VirtualTime, active: &mut BTreeSet<ProcessId>) -> Outcome {
    for dead in stage.deaths_since(since) {
        let truth = stage.cluster.truth();
        let process = |silo: &SiloAddress| truth.owners.get(silo).copied();
        let dead: Vec<ProcessId> = dead.iter().filter_map(process).collect();
        for silo in &dead {
            require!(
                !a_majority_reaches(&stage.cluster, *silo, active),
                "{} died, although more than half of {} silos reached it both ways",
                stage.name(*silo),
                active.len()
            );
        }
        active.retain(|silo| !dead.contains(silo));
    }
    Ok(())
}

/// Links are cut at random: one host from some others, one way or both, or a share of all links.
fn links_are_cut_at_random(seed: u64) -> Outcome {
    let mut stage = Stage::set(seed, 5 + (seed as usize * 7) % 26)?;
    cut_some_links(&mut stage);
    let from = stage.cluster.now();
    stage.cluster.run_for(S(CUT))?;
    let mut active = stage.silos.iter().copied().collect();
    judge(&stage, from, &mut active)?;
    let healed = stage.cluster.now();
    stage.cluster.settle()?;
    let died = stage.deaths_since(healed).len();
    require!(
        died == 0,
        "{died} commits declared silos dead after the end"
    );
    Ok(())
}

#[test]
fn nobody_dies_whom_a_majority_reaches() {
    for_seeds(0..20, links_are_cut_at_random);
}

/// The network splits into sides of these sizes, the largest first, which has a majority. It must
/// stay whole, and agree soon.
fn the_network_splits(seed: u64, sizes: [usize; 2]) -> Outcome {
    let mut stage = Stage::set(seed, sizes.iter().sum())?;
    let sides = stage.sides(&sizes);
    stage.cluster.partition(&sides);
    let took = stage.until_settled(&sides[0], S(120))?;
    println!("seed {seed}: {sizes:?} settles in {took:.1?}");
    stage.all_live(&sides[0])?;
    require!(
        took.is_some_and(|took| took <= S(8)),
        "the larger side of {sizes:?} settles in {took:.1?}"
    );
    stage.cluster.run_for(S(120))?;
    stage.ends_well_for(&sides[0])
}

#[test]
fn the_larger_side_of_a_split_stays_whole_and_settles() {
    let sizes = [[14, 6], [18, 2], [19, 1], [11, 9], [70, 30]];
    for_each(&sizes, 0..5, the_network_splits);
}

/// The network splits into halves. The half with the leader must stay whole, and agree soon.
fn the_network_splits_into_halves(seed: u64) -> Outcome {
    let mut stage = Stage::set(seed, 20)?;
    let mut sides = stage.sides(&[10, 10]);
    let view = stage.cluster.view(stage.silos[0]);
    let leader = view.and_then(|view| view.leader()).map(|m| m.address);
    let leads = |id: &ProcessId| stage.cluster.address(*id) == leader;
    if !sides[0].iter().any(leads) {
        sides.swap(0, 1);
    }
    stage.cluster.partition(&sides);
    let took = stage.until_settled(&sides[0], S(120))?;
    println!("seed {seed}: the leader's half settles in {took:.1?}");
    stage.all_live(&sides[0])?;
    require!(
        took.is_some_and(|took| took <= S(9)),
        "the leader's half settles in {took:.1?}"
    );
    stage.ends_well_for(&sides[0])
}

#[test]
fn the_half_with_the_leader_stays_whole_and_settles() {
    for_seeds(0..5, the_network_splits_into_halves);
}

/// What becomes of the leader when the network splits into halves.
#[derive(Clone, Copy, Debug)]
enum Leader {
    Crashes,
    StandsStill,
    /// It is cut off from the table, in time for its heartbeat to be stale on the other side.
    LosesTheTable,
}

/// The network splits into halves, and the leader is no longer what it was. One side at most loses
/// silos that run; where the leader is gone, the other half is the larger side, and stays whole.
fn halves_and_a_leader(seed: u64, (silos, how): (usize, Leader)) -> Outcome {
    let mut stage = Stage::set(seed, silos)?;
    let view = stage.cluster.view(stage.silos[0]);
    let leader = view.and_then(|view| view.leader()).map(|m| m.address);
    let leads = |id: &ProcessId| stage.cluster.address(*id) == leader;
    let leader = stage.silos.iter().copied().find(leads);
    let leader = leader.ok_or("nobody leads")?;
    let mut sides = stage.sides(&[silos / 2, silos / 2]);
    if !sides[0].contains(&leader) {
        sides.swap(0, 1);
    }
    if let Leader::LosesTheTable = how {
        stage.cluster.cut_from_table(leader, true);
        stage.cluster.run_for(S(60))?;
    }
    stage.cluster.partition(&sides);
    let offset = stage.cluster.rng().between(S(0), S(6));
    stage.cluster.run_for(offset / 2)?;
    match how {
        Leader::Crashes => stage.cluster.crash_machine(leader),
        Leader::StandsStill => stage.cluster.pause(leader, S(150)),
        Leader::LosesTheTable => {}
    }
    stage.cluster.run_for(S(100))?;
    sides[0].retain(|id| *id != leader);
    let lost = [0, 1].map(|side| stage.lost(&sides[side]).len());
    println!("seed {seed}: {silos}, the leader {how:?}: {lost:?} died");
    require!(
        lost.iter().filter(|lost| **lost > 0).count() == 1,
        "both sides lost silos, or none: {lost:?}"
    );
    let whole = sides[usize::from(lost[0] > 0)].clone();
    stage.ends_well_for(&whole)
}

#[test]
fn one_half_stays_whole_whatever_becomes_of_the_leader() {
    let mut cases = Vec::new();
    for silos in [4, 6, 20] {
        for how in [Leader::Crashes, Leader::StandsStill, Leader::LosesTheTable] {
            cases.push((silos, how));
        }
    }
    for_each(&cases, 0..5, halves_and_a_leader);
}

/// A silo does not reach the table, so its heartbeat stands still, and all others reach it. Two silos
/// watch heartbeats, because each of them does not reach a third one. Then the two lose sight of all.
/// They must not vote out the one that writes no heartbeats between themselves.
fn two_lose_sight_of_all_and_of_a_stale_one(seed: u64, silos: usize) -> Outcome {
    let mut stage = Stage::set(seed, silos)?;
    let drawn = stage.draw(4);
    let (stale, third, two) = (drawn[0], drawn[1], drawn[2..].to_vec());
    stage.cluster.cut_from_table(stale, true);
    stage.cluster.cut_both_ways(&two, &[third]);
    let time = stage.cluster.rng().between(S(45), S(50));
    stage.cluster.run_for(time)?;
    let mut rest = stage.silos.clone();
    rest.retain(|s| !two.contains(s));
    stage.all_live(&rest)?;
    stage.cluster.cut_both_ways(&two, &rest);
    for _ in 0..60 {
        stage.cluster.run_for(S(1))?;
        stage.all_live(&rest)?;
    }
    stage.cluster.cut_from_table(stale, false);
    stage.cluster.heal();
    stage.ends_well_for(&rest)
}

#[test]
fn two_that_are_cut_off_do_not_end_a_silo_that_writes_no_heartbeats() {
    for_each(
        &[6, 10, 20],
        0..20,
        two_lose_sight_of_all_and_of_a_stale_one,
    );
}
