//! One experiment per file: its setup, its figures beside the published ones, and what must hold.

pub mod bootstrap;
pub mod crash;
pub mod lifeguard;
pub mod link;
pub mod outage;
pub mod pause;
pub mod restart;
pub mod rolling;
pub mod skew;
pub mod split;
pub mod steady;
pub mod wipe;

use std::collections::BTreeSet;
use std::time::Duration;

use membership_core::SiloStatus;

use crate::arena::{Arena, Death, Member, Record, Trouble, settled};
use crate::ours::Ours;
use crate::report::Common;
use crate::systems::{LARGE, System};
use crate::work::side_by_side;

/// The quiet that everybody gets before a fault.
const QUIET: Duration = Duration::from_secs(120);

/// Does each piece of work; what comes of them is in their order. The first trouble ends it, with the seed of that piece.
fn each<P: Sync, T: Send>(
    what: &str,
    pieces: &[P],
    threads: usize,
    seed: impl Fn(&P) -> u64,
    work: impl Fn(&P) -> Result<T, Trouble> + Sync,
) -> Result<Vec<T>, Trouble> {
    let outcomes = side_by_side(what, pieces, threads, work);
    let with_seed = |(piece, outcome): (&P, Result<T, Trouble>)| {
        outcome.map_err(|t| Trouble {
            seed: Some(seed(piece)),
            ..t
        })
    };
    pieces.iter().zip(outcomes).map(with_seed).collect()
}

/// Each of them once, in their order.
fn unique<T: Copy + PartialEq>(items: &[T]) -> Vec<T> {
    let mut all: Vec<T> = Vec::new();
    for item in items {
        if !all.contains(item) {
            all.push(*item);
        }
    }
    all
}

/// So many members, and how ours are set where that depends on their number.
fn so_many(members: usize, what: &str) -> String {
    let settings = if members > LARGE {
        format!(" ({})", large())
    } else {
        String::new()
    };
    format!("{members} {what}{settings}")
}

/// How ours are set where there are many.
fn large() -> String {
    format!(
        "of more than {LARGE}, ours have a heartbeat every 30 s and not every 10 s, as its documentation advises"
    )
}

/// Which systems run by default where somebody may come back: ours and foca, with that and without.
const WITH_AND_WITHOUT: [System; 4] = [
    System::Membership,
    System::Supervised,
    System::FocaOnce,
    System::Foca,
];

/// Who comes back, for the notes.
const WHO_COMES_BACK: &str = "A silo of ours that was declared dead stops and stays away, unless *supervised*: then it is started again \
                              after a second, as a new silo at its address. A member of foca that learns that it was declared down comes \
                              back under a new identity, except with *no renewal*; chitchat counts a member again as soon as it hears of \
                              it.";

/// So often chitchat runs where it does by default: its choices do not repeat with the seed, and repetitions show how far they go.
fn repeats(system: System, common: &Common) -> u32 {
    if system == System::Chitchat && !common.quick {
        5
    } else {
        1
    }
}

/// The runs of a system where chitchat runs with the first seed only: seeds, and which repetition.
fn runs(system: System, common: &Common, seeds: &[u64]) -> Vec<(u64, u32)> {
    let many = if system == System::Chitchat {
        1
    } else {
        seeds.len()
    };
    seeds
        .iter()
        .take(many)
        .flat_map(|seed| (0..repeats(system, common)).map(|repeat| (*seed, repeat)))
        .collect()
}

/// How chitchat runs there, for the notes.
const CHITCHAT: &str = "chitchat, whose choices do not repeat with the seed and which is slow to simulate, runs with the first seed only, five \
                        times: from the least to the most of them.";

/// Where chitchat does not run, for the notes.
const WITHOUT_CHITCHAT: &str = "chitchat runs here only when `--systems` asks for it, and then without repetitions: what it takes to simulate \
                                it grows faster than the square of the number of members.";

/// A settled and quiet world in which, from then on, nobody comes back who was declared dead, where that is ours to decide and not asked
/// for. Before, whoever gives up joining is started again.
fn settled_without_return(
    system: System,
    seed: u64,
    members: usize,
) -> Result<Box<dyn Arena>, Trouble> {
    if !system.has_table() {
        let mut world = system.world(seed, members)?;
        settled(&mut *world, members, QUIET)?;
        return Ok(world);
    }
    let mut ours = system.ours(seed, members)?;
    // Our own protocol must not need it.
    ours.supervised = !system.is_ours();
    settled(&mut ours, members, QUIET)?;
    ours.supervised = system == System::Supervised;
    Ok(Box::new(ours))
}

/// Deaths of members that were well, by whomever.
fn false_deaths<'a>(
    record: &'a Record,
    well: &'a BTreeSet<Member>,
) -> impl Iterator<Item = &'a Death> {
    record
        .deaths
        .iter()
        .filter(|death| well.contains(&death.of))
}

/// So many different members died.
fn victims<'a>(deaths: impl Iterator<Item = &'a Death>) -> usize {
    deaths.map(|death| death.of).collect::<BTreeSet<_>>().len()
}

/// A member of each, drawn without putting back.
fn draw(
    dice: &mut membership_core::testing::Dice,
    members: usize,
    many: usize,
) -> BTreeSet<Member> {
    let mut all: Vec<Member> = (0..members).collect();
    dice.shuffle(&mut all);
    all.into_iter().take(many).collect()
}

/// Lets time pass until so many silos run, all of them are Active, and all of them see exactly these; how long that took. None if it did
/// not come to that in time.
fn until_agreed(ours: &mut Ours, silos: usize, at_most: Duration) -> Result<Option<f64>, Trouble> {
    let began = ours.cluster.now();
    let agreed = ours.run_until(at_most, |cluster, _| {
        cluster.agrees() && cluster.running().len() == silos
    })?;
    Ok(agreed.then(|| (ours.cluster.now() - began).as_secs_f64()))
}

/// Lets time pass until a member is Active in its own view; how long that took, at most so long.
fn until_active(
    ours: &mut Ours,
    member: Member,
    at_most: Duration,
) -> Result<Option<f64>, Trouble> {
    let began = ours.cluster.now();
    let active = ours.run_until(at_most, |cluster, lives| {
        let latest = lives.get(member).and_then(|lives| lives.last());
        latest.is_some_and(|process| cluster.status(*process) == Some(SiloStatus::Active))
    })?;
    Ok(active.then(|| (ours.cluster.now() - began).as_secs_f64()))
}

fn seconds(of: Option<Duration>) -> Option<f64> {
    of.map(|time| time.as_secs_f64())
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;

    #[test]
    fn the_first_trouble_names_its_seed() {
        let work = |n: &u64| {
            if *n > 2 {
                Err(Trouble::new(format!("{n} is too much")))
            } else {
                Ok(n * 10)
            }
        };
        assert_eq!(each("numbers", &[1, 2], 2, |n| *n, work), Ok(vec![10, 20]));
        let trouble = Trouble {
            what: "3 is too much".to_owned(),
            seed: Some(3),
        };
        assert_eq!(
            each("numbers", &[1, 3, 2, 4], 2, |n| *n, work),
            Err(trouble)
        );
    }

    #[test]
    fn a_silo_that_gave_up_is_missed() {
        let mut ours = crate::systems::System::Membership.ours(1, 5).unwrap();
        ours.supervised = false;
        crate::arena::settled(&mut ours, 5, QUIET).unwrap();
        assert!(until_agreed(&mut ours, 5, QUIET).unwrap().is_some());
        assert_eq!(until_agreed(&mut ours, 6, QUIET).unwrap(), None);
    }
}
