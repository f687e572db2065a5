//! `split`: the network splits, the table is reachable by all.

use std::collections::BTreeSet;
use std::time::Duration;

use membership_core::testing::Dice;

use super::{QUIET, draw, each, seconds, so_many, unique};
use crate::arena::{Member, Trouble, settled};
use crate::figures::{Figures, number};
use crate::report::{Common, Report};
use crate::systems::System;

/// How long it lasts.
const LASTS: Duration = Duration::from_secs(300);

/// The network splits in two: who survives?
#[derive(clap::Args, Clone, Debug)]
pub struct Split {
    #[command(flatten)]
    pub common: Common,
    /// Members
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u16).range(4..=1000))]
    pub silos: u16,
    /// Which systems
    #[arg(long, value_enum, value_delimiter = ',', default_values_t = [System::Membership, System::Foca, System::Chitchat])]
    pub systems: Vec<System>,
}

struct Outcome {
    /// Members of the larger side that somebody on it took for dead; of either side, if they are equal: of the side that lost fewer.
    larger: usize,
    /// Those that anybody took for dead.
    larger_by_anybody: usize,
    smaller: usize,
    settled: Option<Duration>,
    agree: bool,
}

impl Split {
    /// Runs it.
    ///
    /// # Errors
    /// When a world stands still.
    pub fn report(&self) -> Result<Report, Trouble> {
        let silos = if self.common.quick { usize::from(self.silos).min(20) } else { usize::from(self.silos) };
        let seeds = self.common.seeds_or(5);
        let shapes = [("70 to 30", silos * 3 / 10), ("50 to 50", silos / 2), ("one alone", 1)];
        let mut pieces = Vec::new();
        for (name, smaller) in shapes {
            for system in unique(&self.systems) {
                pieces.extend(seeds.iter().map(|seed| (name, smaller, system, *seed)));
            }
        }
        let run = |(_, smaller, system, seed): &(&str, usize, System, u64)| one(*system, *seed, silos, *smaller);
        let outcomes = each("split", &pieces, self.common.threads(), |piece| piece.3, run)?;
        let mut report = Report::default();
        let mut figures = Figures::new(&[
            "split",
            "system",
            "seed",
            "given up by its own, larger side",
            "by anybody",
            "given up, smaller side",
            "larger side settled s",
            "one view at the end",
        ]);
        for ((name, smaller, system, seed), o) in pieces.iter().zip(outcomes) {
            figures.row(vec![
                (*name).to_owned(),
                system.name().to_owned(),
                seed.to_string(),
                o.larger.to_string(),
                o.larger_by_anybody.to_string(),
                o.smaller.to_string(),
                number(seconds(o.settled), 1),
                if o.agree { "yes" } else { "no" }.to_owned(),
            ]);
            if *system == System::Membership {
                let lost = o.larger_by_anybody;
                report.must(
                    lost == 0,
                    format!("{name}, seed {seed}: {lost} silos of the larger side (of {}) were declared dead", silos - smaller),
                );
                report.must(o.agree, format!("{name}, seed {seed}: no common view 2 min after the network healed"));
            }
        }
        report.table(format!("{}, the network splits for 300 s, the table is within reach of all", so_many(silos, "members")), figures);
        report.note(
            "*Settled*: from when on nobody on the larger side gave up anybody any more. Of two halves, the *larger* is the one that \
             lost fewer. *One view at the end*: after the network heals and 120 s, every member that still runs counts equally many. \
             Without a table each side of a split takes the other one for dead and goes on: two clusters. No published figure.",
        );
        Ok(report)
    }
}

fn one(system: System, seed: u64, silos: usize, smaller: usize) -> Result<Outcome, Trouble> {
    let mut world = super::link::world(system, seed, silos)?;
    settled(&mut *world, silos, QUIET)?;
    let small = draw(&mut Dice::new(seed), silos, smaller);
    let large: BTreeSet<Member> = (0..silos).filter(|member| !small.contains(member)).collect();
    let began = world.now();
    world.partition(&[small.iter().copied().collect()]);
    world.run_for(LASTS)?;
    let during = world.record();
    world.partition(&[]);
    world.run_for(QUIET)?;
    let lost = |side: &BTreeSet<Member>, by: Option<&BTreeSet<Member>>| {
        super::victims(during.deaths.iter().filter(|d| side.contains(&d.of) && by.is_none_or(|by| by.contains(&d.by))))
    };
    let swap = small.len() == large.len() && lost(&large, Some(&large)) > lost(&small, Some(&small));
    let (large, small) = if swap { (small, large) } else { (large, small) };
    let settled = during.deaths.iter().filter(|d| large.contains(&d.by)).map(|d| d.at - began).max();
    let end = world.record();
    let gone = |member: &Member| during.deaths.iter().any(|d| d.of == *member && large.contains(&d.by));
    let sizes: BTreeSet<usize> = (0..silos).filter(|m| !gone(m)).filter_map(|m| end.sights.get(m)).map(|sight| sight.size).collect();
    Ok(Outcome {
        larger: lost(&large, Some(&large)),
        larger_by_anybody: lost(&large, None),
        smaller: lost(&small, None),
        settled,
        agree: sizes.len() == 1,
    })
}
