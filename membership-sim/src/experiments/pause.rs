//! `pause`: members that do not run for a while: a collector of garbage, a debugger, a virtual machine that moves.

use std::collections::BTreeSet;
use std::time::Duration;

use membership_core::testing::Dice;

use super::{QUIET, draw, each, false_deaths, seconds, so_many, unique, victims};
use crate::arena::{Member, Trouble, settled};
use crate::figures::{Figures, number};
use crate::report::{Common, Report};
use crate::systems::System;

/// Members stand still for 1 to 300 s, one or many of them: who is taken for dead?
#[derive(clap::Args, Clone, Debug)]
pub struct Pause {
    #[command(flatten)]
    pub common: Common,
    /// Members
    #[arg(long, default_value_t = 50, value_parser = clap::value_parser!(u16).range(4..=1000))]
    pub silos: u16,
    /// For so many seconds
    #[arg(long, value_delimiter = ',', default_values_t = [1, 5, 15, 30, 60, 300], value_parser = clap::value_parser!(u64).range(1..=3600))]
    pub seconds: Vec<u64>,
    /// Which systems
    #[arg(long, value_enum, value_delimiter = ',', default_values_t = [System::Membership, System::Foca, System::Chitchat])]
    pub systems: Vec<System>,
}

struct Outcome {
    others: usize,
    paused: usize,
    first: Option<Duration>,
}

impl Pause {
    /// Runs it.
    ///
    /// # Errors
    /// When a world stands still.
    pub fn report(&self) -> Result<Report, Trouble> {
        let silos = if self.common.quick { usize::from(self.silos).min(10) } else { usize::from(self.silos) };
        let times = if self.common.quick { vec![30] } else { unique(&self.seconds) };
        let (shares, systems) = (unique(&[1, (silos * 3 / 10).max(1), silos]), unique(&self.systems));
        let seeds = self.common.seeds_or(3);
        let mut pieces = Vec::new();
        for many in &shares {
            for time in &times {
                for system in &systems {
                    pieces.extend(seeds.iter().map(|seed| (*many, *time, *system, *seed)));
                }
            }
        }
        let run = |(many, time, system, seed): &(usize, u64, System, u64)| one(*system, *seed, silos, *many, *time);
        let outcomes = each("pause", &pieces, self.common.threads(), |piece| piece.3, run)?;
        let results: Vec<_> = pieces.into_iter().zip(outcomes).collect();
        let mut report = Report::default();
        let mut figures = Figures::new(&["paused", "for s", "system", "others given up", "paused given up", "first noticed s"]);
        for many in &shares {
            for time in &times {
                for system in &systems {
                    let mine = || results.iter().filter(|((m, t, s, _), _)| (m, t, s) == (many, time, system));
                    let others: usize = mine().map(|(_, o)| o.others).sum();
                    figures.row(vec![
                        format!("{many} of {silos}"),
                        time.to_string(),
                        system.name().to_owned(),
                        others.to_string(),
                        mine().map(|(_, o)| o.paused).sum::<usize>().to_string(),
                        number(seconds(mine().filter_map(|(_, o)| o.first).min()), 1),
                    ]);
                    if *system == System::Membership {
                        report.must(others == 0, format!("{many} paused for {time} s: {others} of the others were declared dead"));
                        if *many == silos {
                            let all: usize = mine().map(|(_, o)| o.paused).sum();
                            report.must(all == 0, format!("all paused for {time} s at one moment: {all} were declared dead"));
                        }
                    }
                }
            }
        }
        report.table(format!("{}; sums over {} seeds", so_many(silos, "members"), seeds.len()), figures);
        report.note(
            "The others are those that ran all the time. Whoever stands still for longer than the failure window is rightly given up; a \
             silo of ours finds out when it wakes up, and stops. Deaths are counted until 5 min after the pause. No published figure.",
        );
        Ok(report)
    }
}

fn one(system: System, seed: u64, silos: usize, many: usize, time: u64) -> Result<Outcome, Trouble> {
    let mut world = super::link::world(system, seed, silos)?;
    settled(&mut *world, silos, QUIET)?;
    let paused = draw(&mut Dice::new(seed), silos, many);
    let well: BTreeSet<Member> = (0..silos).filter(|member| !paused.contains(member)).collect();
    let began = world.now();
    for member in &paused {
        world.pause(*member, Duration::from_secs(time));
    }
    world.run_for(Duration::from_secs(time + 300))?;
    let record = world.record();
    Ok(Outcome {
        others: victims(false_deaths(&record, &well)),
        paused: victims(false_deaths(&record, &paused)),
        first: false_deaths(&record, &paused).map(|death| death.at - began).min(),
    })
}
