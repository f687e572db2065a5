//! `crash` and `mass`: many members crash at the same time.

use std::collections::BTreeSet;
use std::time::Duration;

use membership_testing::Rng;

use super::{
    WHO_COMES_BACK, WITH_AND_WITHOUT, WITHOUT_CHITCHAT, draw, each, false_deaths, seconds,
    settled_without_return, so_many, unique, victims,
};
use crate::arena::{Failure, Member};
use crate::figures::{Figures, number};
use crate::report::{Common, Report};
use crate::systems::System;

/// The longest time that it may take.
const AT_MOST: Duration = Duration::from_secs(180);
/// The longest time until all know of one crash without a store.
const WITHOUT_STORE: Duration = Duration::from_secs(12);

/// Many members crash at the same time: when do the others know, and in how many steps?
#[derive(clap::Args, Clone, Debug)]
pub struct Crash {
    #[command(flatten)]
    pub common: Common,
    /// The number of members: by default 1000 for `crash`, 100 for `mass`
    #[arg(long, value_parser = clap::value_parser!(u16).range(4..=10_000))]
    pub silos: Option<u16>,
    /// How many crash: by default one in a hundred for `crash`, half of them for `mass`
    #[arg(long, value_parser = clap::value_parser!(u16).range(1..=1000))]
    pub crashed: Option<u16>,
    /// The systems
    #[arg(long, value_enum, value_delimiter = ',', default_values_t = WITH_AND_WITHOUT)]
    pub systems: Vec<System>,
}

struct Outcome {
    first: Option<Duration>,
    one: Option<Duration>,
    all: Option<Duration>,
    known: usize,
    healthy: usize,
    sizes: usize,
    changes: u64,
}

impl Crash {
    /// Runs the experiment with the crash of half of the members, or of one in a hundred.
    ///
    /// # Errors
    /// When a simulation stops.
    pub fn report(&self, half: bool) -> Result<Report, Failure> {
        let usual = if half { 100 } else { 1000 };
        let silos = self
            .silos
            .map_or(if self.common.quick { 20 } else { usual }, usize::from);
        let share = if half { silos / 2 } else { silos / 100 };
        let crashed = self.crashed.map_or(share, usize::from).clamp(1, silos - 1);
        let seeds = self.common.seeds_or(if half { 5 } else { 1 });
        let pieces: Vec<(System, u64)> = unique(&self.systems)
            .iter()
            .flat_map(|s| seeds.iter().map(|seed| (*s, *seed)))
            .collect();
        let name = if half { "mass" } else { "crash" };
        let outcomes = each(
            name,
            &pieces,
            self.common.threads(),
            |piece| piece.1,
            |(system, seed)| one(*system, *seed, silos, crashed),
        )?;
        let mut report = Report::default();
        let mut figures = Figures::new(
            2,
            &[
                "system",
                "seed",
                "first noticed s",
                "first known to all s",
                "all known to all s",
                "known",
                "healthy given up",
                "sizes seen",
                "changes per member",
            ],
        );
        for ((system, seed), o) in pieces.iter().zip(outcomes) {
            let cells = [
                number(seconds(o.first), 1),
                number(seconds(o.one), 1),
                number(seconds(o.all), 1),
                o.known.to_string(),
                o.healthy.to_string(),
            ];
            let mut row = vec![system.name().to_owned(), seed.to_string()];
            row.extend(cells);
            row.extend([o.sizes.to_string(), o.changes.to_string()]);
            figures.row(row);
            if *system == System::Gossip {
                let soon = |all: Duration| all <= WITHOUT_STORE;
                // Where half crash at once, one may flag a healthy one for a moment, which downs nobody.
                report.must(
                    half || o.healthy == 0,
                    format!(
                        "gossip, seed {seed}: {} healthy members were given up",
                        o.healthy
                    ),
                );
                report.must(
                    crashed > 1 || o.all.is_some_and(soon),
                    format!("gossip, seed {seed}: the crash was not known to all within {WITHOUT_STORE:?}"),
                );
            }
            if system.is_ours() {
                report.must(
                    o.healthy == 0,
                    format!(
                        "{}, seed {seed}: {} healthy silos were declared dead",
                        system.name(),
                        o.healthy
                    ),
                );
                report.must(
                    o.all.is_some(),
                    format!(
                        "{}, seed {seed}: {} of {crashed} crashes were known to all within {} s",
                        system.name(),
                        o.known,
                        AT_MOST.as_secs()
                    ),
                );
            }
        }
        report.table(
            format!(
                "{crashed} of {} crash at one moment",
                so_many(silos, "members")
            ),
            figures,
        );
        if half {
            report.note(
                "*Known*: crashed members that every survivor believes dead within 180 \
                         s. No published figure.",
            );
        } else {
            report.note(
                "*Sizes seen*: distinct sizes of the cluster that any survivor saw afterwards; *changes*: the median of how often a \
                 survivor's set changed. Published (Rapid, ATC 2018, 10 of 1,000): Rapid removes all ten in one change of view, about 10 \
                 s later than memberlist; the others emit many sizes in between. Microsoft Orleans: 30 s until 2019, 15 s since, by its \
                 settings.",
            );
        }
        report.note(format!(
            "Crashed members do not return. {WHO_COMES_BACK} {WITHOUT_CHITCHAT}"
        ));
        Ok(report)
    }
}

fn one(system: System, seed: u64, silos: usize, crashed: usize) -> Result<Outcome, Failure> {
    let mut world = settled_without_return(system, seed, silos)?;
    let dead = draw(&mut Rng::new(seed), silos, crashed);
    let well: BTreeSet<Member> = (0..silos).filter(|member| !dead.contains(member)).collect();
    let began = world.now();
    for member in &dead {
        world.kill(*member);
    }
    world.run_for(AT_MOST)?;
    let record = world.record();
    let known: Vec<Duration> = dead
        .iter()
        .filter_map(|member| record.known_to_all(*member, &well))
        .map(|at| at - began)
        .collect();
    let mut changes: Vec<u64> = well
        .iter()
        .filter_map(|member| record.seen.get(*member))
        .map(|sight| sight.changes)
        .collect();
    changes.sort_unstable();
    Ok(Outcome {
        first: dead
            .iter()
            .filter_map(|member| record.first_death(*member, &well))
            .min()
            .map(|at| at - began),
        one: known.iter().copied().min(),
        all: known
            .iter()
            .copied()
            .max()
            .filter(|_| known.len() == dead.len()),
        known: known.len(),
        healthy: victims(false_deaths(&record, &well)),
        sizes: record.sizes.len(),
        changes: changes.get(changes.len() / 2).copied().unwrap_or(0),
    })
}
