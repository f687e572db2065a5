//! One experiment per file: its setup, its figures beside the published ones, and its requirements.

pub mod bootstrap;
pub mod connectivity;
pub mod crash;
pub mod dissemination;
mod formed;
pub mod lifeguard;
pub mod link;
pub mod outage;
pub mod pause;
pub mod restart;
pub mod rolling;
pub mod scale;
pub mod skew;
pub mod split;
pub mod steady;
pub mod storeless;
pub mod wipe;

use std::collections::BTreeSet;
use std::time::Duration;

use membership_core::SiloStatus;

use crate::arena::{Arena, Death, Failure, Member, Record, settled};
use crate::ours::Ours;
use crate::report::Common;
use crate::systems::{LARGE, System};
use crate::work::side_by_side;

/// The time without faults before the first fault.
const QUIET: Duration = Duration::from_secs(120);

/// Runs each piece of work; the results keep their order. The first failure ends it, with the seed
/// of that piece.
fn each<P: Sync, T: Send>(
    what: &str,
    pieces: &[P],
    threads: usize,
    seed: impl Fn(&P) -> u64,
    work: impl Fn(&P) -> Result<T, Failure> + Sync,
) -> Result<Vec<T>, Failure> {
    let outcomes = side_by_side(what, pieces, threads, work);
    let with_seed = |(piece, outcome): (&P, Result<T, Failure>)| {
        outcome.map_err(|t| Failure {
            seed: Some(seed(piece)),
            ..t
        })
    };
    pieces.iter().zip(outcomes).map(with_seed).collect()
}

/// Each item once, in the order of the first occurrences.
fn unique<T: Copy + PartialEq>(items: &[T]) -> Vec<T> {
    let mut all: Vec<T> = Vec::new();
    for item in items {
        if !all.contains(item) {
            all.push(*item);
        }
    }
    all
}

/// The number of members as text, with our settings where they depend on it.
fn so_many(members: usize, what: &str) -> String {
    let settings = if members > LARGE {
        format!(" ({})", large())
    } else {
        String::new()
    };
    format!("{members} {what}{settings}")
}

/// Our settings for large clusters.
fn large() -> String {
    format!(
        "above {LARGE} silos, membership without a scribe has a heartbeat every 30 s instead of every 10 s, as \
         its documentation advises"
    )
}

/// The default systems where members can return: this library with and without a table, and foca, each
/// with and without that.
const WITH_AND_WITHOUT: [System; 6] = [
    System::Membership,
    System::Supervised,
    System::Gossip,
    System::GossipSupervised,
    System::FocaOnce,
    System::Foca,
];

/// The note on which members return.
const WHO_COMES_BACK: &str = "A membership silo that was declared dead stops and does not \
                              return, unless *supervised*: then a new silo starts at its address \
                              after a second. A gossip member is given up \
                              when it leaves the members in service that another one reaches: it \
                              returns when it is reached again before it is downed, and once \
                              downed only if *supervised*. A foca member that learns that it was declared down \
                              returns with a new identity, except with *no renewal*; chitchat \
                              counts a member again as soon as it receives news of it.";

/// How often chitchat runs where it runs by default: its choices do not repeat with the seed, and
/// repetitions show the spread.
fn repeats(system: System, common: &Common) -> u32 {
    if system == System::Chitchat && !common.quick {
        5
    } else {
        1
    }
}

/// The runs of a system, as seeds and repetitions; chitchat runs with the first seed only.
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

/// The note on how chitchat runs.
const CHITCHAT: &str = "chitchat is slow to simulate, and its choices do not repeat with the \
                        seed. It runs with the first seed only, five times; *a to b* is from the \
                        smallest to the largest of the five results.";

/// The note on where chitchat does not run.
const WITHOUT_CHITCHAT: &str = "chitchat runs here only when `--systems` names it, and then \
                                without repetitions: the time to simulate it grows faster than \
                                the square of the number of members.";

/// A settled cluster without faults. From then on, our silos that are declared dead do not return,
/// unless the system is supervised. Until then, silos that give up joining are restarted.
fn settled_without_return(
    system: System,
    seed: u64,
    members: usize,
) -> Result<Box<dyn Arena>, Failure> {
    if !system.has_table() {
        let mut world = system.world(seed, members)?;
        settled(&mut *world, members, QUIET)?;
        return Ok(world);
    }
    let mut ours = system.ours(seed, members)?;
    // Our own protocol must not need restarts.
    ours.supervised = !system.is_ours();
    settled(&mut ours, members, QUIET)?;
    ours.supervised = system == System::Supervised;
    Ok(Box::new(ours))
}

/// Deaths of healthy members, declared by any member.
fn false_deaths<'a>(
    record: &'a Record,
    well: &'a BTreeSet<Member>,
) -> impl Iterator<Item = &'a Death> {
    record
        .deaths
        .iter()
        .filter(|death| well.contains(&death.of))
}

/// The number of different members that died.
fn victims<'a>(deaths: impl Iterator<Item = &'a Death>) -> usize {
    deaths.map(|death| death.of).collect::<BTreeSet<_>>().len()
}

/// Draws `many` different members.
fn draw(rng: &mut membership_testing::Rng, members: usize, many: usize) -> BTreeSet<Member> {
    let mut all: Vec<Member> = (0..members).collect();
    rng.shuffle(&mut all);
    all.into_iter().take(many).collect()
}

/// Advances virtual time until this many silos run, all of them are Active, and all of them see
/// exactly these. Returns how long that took; none if it took longer than `at_most`.
fn until_agreed(ours: &mut Ours, silos: usize, at_most: Duration) -> Result<Option<f64>, Failure> {
    let began = ours.cluster.now();
    let agreed = ours.run_until(at_most, |cluster, _| {
        cluster.agrees() && cluster.running().len() == silos
    })?;
    Ok(agreed.then(|| (ours.cluster.now() - began).as_secs_f64()))
}

/// Advances virtual time until a member is Active in its own view, at most by `at_most`. Returns
/// how long that took.
fn until_active(
    ours: &mut Ours,
    member: Member,
    at_most: Duration,
) -> Result<Option<f64>, Failure> {
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
    fn the_first_failure_has_its_seed() {
        let work = |n: &u64| {
            if *n > 2 {
                Err(Failure::new(format!("{n} is too much")))
            } else {
                Ok(n * 10)
            }
        };
        assert_eq!(each("numbers", &[1, 2], 2, |n| *n, work), Ok(vec![10, 20]));
        let failure = Failure {
            what: "3 is too much".to_owned(),
            seed: Some(3),
        };
        assert_eq!(
            each("numbers", &[1, 3, 2, 4], 2, |n| *n, work),
            Err(failure)
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
