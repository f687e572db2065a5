//! In a large cluster a silo probes few of the others, and need not reach all to become Active. Whom it
//! does not reach is told to people all the same, whether it probes that one or only looks at it now
//! and then. Nobody dies of it.

use std::collections::BTreeMap;

use crate::reach::{a_crash_and_a_split_are_none, told};
use crate::stage::{Outcome, S, Stage, for_seeds, require};
use membership_core::SiloAddress;
use membership_core::hooks::ProtocolVariant;

const SILOS: usize = 60;
/// Pairs that cannot reach each other.
const PAIRS: usize = 6;

/// Above so many Active silos nobody is contacted by all.
const LIMIT: usize = 20;

fn stage(seed: u64) -> Result<Stage, Box<dyn std::error::Error>> {
    let variant = ProtocolVariant {
        full_check_limit: Some(LIMIT),
        ..ProtocolVariant::SCRIBE
    };
    Stage::set_as(seed, SILOS, |builder| builder.variant(variant))
}

fn pairs_that_do_not_reach_each_other(seed: u64) -> Outcome {
    let mut stage = stage(seed)?;
    let drawn = stage.draw(PAIRS * 2);
    let mut cut = BTreeMap::new();
    for (number, pair) in drawn.chunks(2).enumerate() {
        let (a, b) = (pair[0], pair[1]);
        // One direction is as bad as both.
        match number % 2 {
            0 => stage.cluster.cut_both_ways(&[a], &[b]),
            _ => stage.cluster.cut_one_way(&[a], &[b]),
        }
        cut.extend([(a, b), (b, a)]);
    }
    // Each looks at all others once, at every second question, and three times at the silent ones.
    stage.cluster.run_for(S(240))?;
    let mut surveyed = 0;
    for silo in stage.silos.clone() {
        let (name, told) = (stage.name(silo), told(&stage, silo));
        let last = told.last().copied().unwrap_or_default();
        let named: Vec<SiloAddress> = last.iter().map(|one| one.silo).collect();
        let other = cut
            .get(&silo)
            .and_then(|other| stage.cluster.address(*other));
        let expected: Vec<SiloAddress> = other.into_iter().collect();
        require!(named == expected, "{name} told {named:?}, not {expected:?}");
        require!(told.len() <= 2, "{name} told {} times", told.len());
        surveyed += last.iter().filter(|one| one.roll_call.asked == 0).count();
    }
    // Each probes 10 of 59.
    require!(
        surveyed >= PAIRS,
        "only {surveyed} were found by the survey"
    );
    stage.cluster.heal();
    stage.cluster.run_for(S(120))?;
    for silo in stage.silos.clone() {
        let (name, told) = (stage.name(silo), told(&stage, silo));
        let last = told.last().copied().unwrap_or_default();
        require!(last.is_empty(), "{name} still tells {last:?}");
    }
    let all = stage.silos.clone();
    stage.ends_well_for(&all)
}

#[test]
fn pairs_that_neither_probe_nor_reach_each_other_are_told() {
    for_seeds(0..5, pairs_that_do_not_reach_each_other);
}

/// Silos that crash, stand still, or are cut off from most are not in a partial partition.
fn other_faults_are_none(seed: u64) -> Outcome {
    let mut stage = stage(seed)?;
    stage.cluster.run_for(S(120))?;
    for silo in stage.draw(4) {
        stage.cluster.pause(silo, S(3));
    }
    stage.cluster.run_for(S(60))?;
    a_crash_and_a_split_are_none(&mut stage, seed)
}

#[test]
fn the_survey_tells_nothing_of_a_crash_a_pause_or_a_split() {
    for_seeds(0..5, other_faults_are_none);
}
