//! A partial partition is told to people: who does not reach whom, once, and when it has ended.

use std::collections::BTreeSet;

use crate::stage::{Outcome, S, Stage, for_each, for_seeds, require};
use membership_core::protocol::{NotReached, Notice, successors};
use membership_core::{Config, SiloAddress};
use membership_testing::ProcessId;

/// The cut lasts for this long.
const CUT: u64 = 300;

/// What a silo told of partial partitions, in order.
pub fn told(stage: &Stage, silo: ProcessId) -> Vec<&[NotReached]> {
    let notices = stage.cluster.notices(silo).iter();
    notices
        .filter_map(|(_, notice)| match notice {
            Notice::PartialPartition { unreached } => Some(unreached.as_slice()),
            _ => None,
        })
        .collect()
}

fn zone(stage: &Stage, silo: ProcessId) -> usize {
    let record = stage.cluster.truth().record(silo);
    record.map_or(0, |record| record.host % 3)
}

/// Two of three zones lose their link. The silos of both tell exactly those of the other one that
/// they probe, and those of the third tell nothing. Of thirty, one silo in two hundred probes nobody
/// of the other zone.
fn two_of_three_zones_lose_their_link(seed: u64, silos: usize) -> Outcome {
    let mut stage = Stage::with_a_lost_link(seed, silos)?;
    stage.cluster.run_for(S(CUT))?;
    let all = stage.silos.clone();
    let sides: Vec<BTreeSet<SiloAddress>> = (0..3)
        .map(|zone_of| {
            let there = all.iter().filter(|id| zone(&stage, **id) == zone_of);
            there.filter_map(|id| stage.cluster.address(*id)).collect()
        })
        .collect();
    let rings = Config::default().num_probed_silos;
    let silos_of_all: Vec<SiloAddress> = sides.iter().flatten().copied().collect();
    for silo in &all {
        let (name, told) = (stage.name(*silo), told(&stage, *silo));
        let here = zone(&stage, *silo);
        if here == 2 {
            require!(told.is_empty(), "{name} reaches all, and told {told:?}");
            continue;
        }
        let other = &sides[1 - here];
        let last = told.last().copied().unwrap_or_default();
        let me = stage.cluster.address(*silo).ok_or("not started")?;
        let probed = successors(&me, &silos_of_all, rings);
        if probed.iter().any(|silo| other.contains(silo)) {
            require!(!last.is_empty(), "{name} told {told:?}");
        }
        for one in told.iter().copied().flatten() {
            require!(other.contains(&one.silo), "{name} reaches {one:?}");
            let reached = one.roll_call.reached as usize;
            require!(reached > 0, "nobody reaches {one:?}");
        }
        if silos <= 11 {
            let named: BTreeSet<SiloAddress> = last.iter().map(|one| one.silo).collect();
            require!(named == *other, "{name} told {named:?} of {other:?}");
        }
        require!(told.len() <= 3, "{name} told {} times", told.len());
    }
    stage.cluster.heal();
    stage.cluster.run_for(S(120))?;
    for silo in &all {
        let (name, told) = (stage.name(*silo), told(&stage, *silo));
        let last = told.last().copied().unwrap_or_default();
        require!(last.is_empty(), "{name} still tells {last:?}");
        require!(told.len() <= 6, "{name} told {} times", told.len());
    }
    stage.ends_well_for(&all)
}

#[test]
fn a_partial_partition_is_told_once_and_its_end() {
    for_each(&[3, 9, 30], 0..3, two_of_three_zones_lose_their_link);
}

/// Nothing is told when silos crash, nor of a split in which nobody is reached by both sides.
pub fn a_crash_and_a_split_are_none(stage: &mut Stage, seed: u64) -> Outcome {
    let silos = stage.silos.len();
    let dead = stage.draw(1 + silos / 10);
    for silo in &dead {
        match seed % 2 {
            0 => stage.cluster.kill(*silo),
            _ => stage.cluster.crash_machine(*silo),
        }
    }
    stage.cluster.run_for(S(120))?;
    let sides = stage.sides(&[silos - silos / 3, silos / 3]);
    stage.cluster.partition(&sides);
    stage.cluster.run_for(S(120))?;
    for silo in stage.silos.clone() {
        let (name, told) = (stage.name(silo), told(stage, silo));
        require!(told.is_empty(), "{name} told {told:?}");
    }
    Ok(())
}

/// Nor is anything told by a cluster that is well.
fn other_faults_are_no_partial_partition(seed: u64, silos: usize) -> Outcome {
    let mut stage = Stage::set(seed, silos)?;
    stage.cluster.run_for(S(600))?;
    a_crash_and_a_split_are_none(&mut stage, seed)
}

#[test]
fn nothing_is_told_of_a_quiet_cluster_a_crash_or_a_split() {
    for_each(&[2, 5, 30], 0..5, other_faults_are_no_partial_partition);
}

/// One direction of one link is enough.
fn one_direction_is_lost(seed: u64) -> Outcome {
    let mut stage = Stage::set(seed, 5)?;
    let (from, to) = (stage.silos[0], stage.silos[1]);
    stage.cluster.cut_one_way(&[from], &[to]);
    stage.cluster.run_for(S(60))?;
    for (silo, other) in [(from, to), (to, from)] {
        let (name, told) = (stage.name(silo), told(&stage, silo));
        let silos: Vec<_> = told.iter().copied().flatten().map(|u| u.silo).collect();
        let other = stage.cluster.address(other);
        require!(
            silos.first().copied() == other && silos.len() == 1,
            "{name} told {told:?}"
        );
    }
    let all = stage.silos.clone();
    stage.ends_well_for(&all)
}

#[test]
fn one_lost_direction_is_told_by_both_sides() {
    for_seeds(0..5, one_direction_is_lost);
}
