//! `pause`: members that are paused, as by a garbage collector, a debugger, or the migration of a
//! virtual machine.

use std::collections::BTreeSet;
use std::time::Duration;

use membership_testing::Rng;

use super::{
    CHITCHAT, WHO_COMES_BACK, WITH_AND_WITHOUT, draw, each, false_deaths, repeats, runs, seconds,
    settled_without_return, so_many, unique, victims,
};
use crate::arena::{Failure, Member};
use crate::figures::{Figures, number, spread};
use crate::report::{Common, Report};
use crate::systems::System;

/// One or many members are paused for 1 to 300 s: which are declared dead?
#[derive(clap::Args, Clone, Debug)]
pub struct Pause {
    #[command(flatten)]
    pub common: Common,
    /// The number of members
    #[arg(long, default_value_t = 50, value_parser = clap::value_parser!(u16).range(4..=1000))]
    pub silos: u16,
    /// The lengths of the pauses, in seconds
    #[arg(long, value_delimiter = ',', default_values_t = [1, 5, 15, 30, 60, 300], value_parser = clap::value_parser!(u64).range(1..=3600))]
    pub seconds: Vec<u64>,
    /// The systems
    #[arg(long, value_enum, value_delimiter = ',', default_values_t = WITH_AND_WITHOUT.into_iter().chain([System::Chitchat]))]
    pub systems: Vec<System>,
}

struct Outcome {
    others: usize,
    paused: usize,
    first: Option<Duration>,
}

impl Pause {
    /// Runs the experiment.
    ///
    /// # Errors
    /// When a simulation stops.
    pub fn report(&self) -> Result<Report, Failure> {
        let silos = if self.common.quick {
            usize::from(self.silos).min(10)
        } else {
            usize::from(self.silos)
        };
        let times = if self.common.quick {
            vec![30]
        } else {
            unique(&self.seconds)
        };
        let (shares, systems) = (
            unique(&[1, (silos * 3 / 10).max(1), silos]),
            unique(&self.systems),
        );
        let seeds = self.common.seeds_or(3);
        let mut pieces = Vec::new();
        for many in &shares {
            for time in &times {
                for system in &systems {
                    pieces.extend(
                        runs(*system, &self.common, &seeds)
                            .into_iter()
                            .map(|run| (*many, *time, *system, run)),
                    );
                }
            }
        }
        let run = |(many, time, system, (seed, _)): &(usize, u64, System, (u64, u32))| {
            one(*system, *seed, silos, *many, *time)
        };
        let outcomes = each(
            "pause",
            &pieces,
            self.common.threads(),
            |piece| piece.3.0,
            run,
        )?;
        let results: Vec<_> = pieces.into_iter().zip(outcomes).collect();
        let mut report = Report::default();
        let mut figures = Figures::new(
            4,
            &[
                "paused",
                "for s",
                "system",
                "runs",
                "others given up",
                "paused given up",
                "first noticed s",
            ],
        );
        for many in &shares {
            for time in &times {
                for system in &systems {
                    let mine = || {
                        results
                            .iter()
                            .filter(|((m, t, s, _), _)| (m, t, s) == (many, time, system))
                    };
                    let again = repeats(*system, &self.common);
                    let of = |repeat: u32| {
                        mine()
                            .filter(move |((.., run), _)| run.1 == repeat)
                            .map(|(_, outcome)| outcome)
                    };
                    #[allow(clippy::cast_precision_loss, reason = "figures for people")]
                    let sums = |what: fn(&Outcome) -> usize| {
                        spread(
                            &(0..again)
                                .map(|r| of(r).map(what).sum::<usize>() as f64)
                                .collect::<Vec<_>>(),
                            0,
                        )
                    };
                    let once = of(0).count();
                    figures.row(vec![
                        format!("{many} of {silos}"),
                        time.to_string(),
                        system.name().to_owned(),
                        if again == 1 {
                            once.to_string()
                        } else {
                            format!("{again} × {once}")
                        },
                        sums(|o| o.others),
                        sums(|o| o.paused),
                        number(seconds(mine().filter_map(|(_, o)| o.first).min()), 1),
                    ]);
                    if system.is_ours() {
                        let (name, others): (_, usize) =
                            (system.name(), mine().map(|(_, o)| o.others).sum());
                        report.must(others == 0, format!("{name}, {many} paused for {time} s: {others} of the others were declared dead"));
                        if *many == silos {
                            let all: usize = mine().map(|(_, o)| o.paused).sum();
                            report.must(all == 0, format!("{name}, all paused for {time} s at one moment: {all} were declared dead"));
                        }
                    }
                }
            }
        }
        report.table(
            format!(
                "{}; sums over the runs, one for each seed",
                so_many(silos, "members")
            ),
            figures,
        );
        report.note(format!(
            "The others are the members that ran all the time. A member that is paused for \
             longer than the failure window (4.5 s) is rightly given up; a membership silo learns this when it wakes up, \
             and stops. Deaths are counted until 5 min after the pause. {CHITCHAT} {WHO_COMES_BACK} No published figure."
        ));
        Ok(report)
    }
}

fn one(
    system: System,
    seed: u64,
    silos: usize,
    many: usize,
    time: u64,
) -> Result<Outcome, Failure> {
    let mut world = settled_without_return(system, seed, silos)?;
    let paused = draw(&mut Rng::new(seed), silos, many);
    let well: BTreeSet<Member> = (0..silos)
        .filter(|member| !paused.contains(member))
        .collect();
    let began = world.now();
    for member in &paused {
        world.pause(*member, Duration::from_secs(time));
    }
    world.run_for(Duration::from_secs(time + 300))?;
    let record = world.record();
    Ok(Outcome {
        others: victims(false_deaths(&record, &well)),
        paused: victims(false_deaths(&record, &paused)),
        first: false_deaths(&record, &paused)
            .map(|death| death.at - began)
            .min(),
    })
}
