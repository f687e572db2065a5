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

use crate::arena::{Death, Member, Record, Trouble};
use crate::ours::Ours;

/// The quiet that everybody gets before a fault.
const QUIET: Duration = Duration::from_secs(120);

/// Deaths of members that were well, by whomever.
fn false_deaths<'a>(record: &'a Record, well: &'a BTreeSet<Member>) -> impl Iterator<Item = &'a Death> {
    record.deaths.iter().filter(|death| well.contains(&death.of))
}

/// So many different members died.
fn victims<'a>(deaths: impl Iterator<Item = &'a Death>) -> usize {
    deaths.map(|death| death.of).collect::<BTreeSet<_>>().len()
}

/// A member of each, drawn without putting back.
fn draw(dice: &mut membership_core::testing::Dice, members: usize, many: usize) -> BTreeSet<Member> {
    let mut all: Vec<Member> = (0..members).collect();
    dice.shuffle(&mut all);
    all.into_iter().take(many).collect()
}

/// Lets time pass until all silos that run are Active and all of them see exactly these; how long that took. None if it did not come to
/// that in time.
fn until_agreed(ours: &mut Ours, at_most: Duration) -> Result<Option<f64>, Trouble> {
    let began = ours.cluster.now();
    let agreed = ours.run_until(at_most, |cluster, _| cluster.agrees())?;
    Ok(agreed.then(|| (ours.cluster.now() - began).as_secs_f64()))
}

/// Lets time pass until a member is Active in its own view; how long that took, at most so long.
fn until_active(ours: &mut Ours, member: Member, at_most: Duration) -> Result<Option<f64>, Trouble> {
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
