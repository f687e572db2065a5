//! `split`: the network is partitioned, and all members reach the table.

use std::collections::BTreeSet;
use std::time::Duration;

use membership_testing::Rng;

use super::{
    CHITCHAT, QUIET, WHO_COMES_BACK, WITH_AND_WITHOUT, draw, each, runs, seconds,
    settled_without_return, so_many, unique,
};
use crate::arena::{Failure, Member};
use crate::figures::{Figures, spread};
use crate::report::{Common, Report};
use crate::systems::System;

/// The duration of the partition.
const LASTS: Duration = Duration::from_secs(300);

/// The network is partitioned in two: which members survive?
#[derive(clap::Args, Clone, Debug)]
pub struct Split {
    #[command(flatten)]
    pub common: Common,
    /// The number of members
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u16).range(4..=1000))]
    pub silos: u16,
    /// The systems
    #[arg(long, value_enum, value_delimiter = ',', default_values_t = WITH_AND_WITHOUT.into_iter().chain([System::Chitchat]))]
    pub systems: Vec<System>,
}

struct Outcome {
    /// Members of the larger side that a member of that side declared dead. If the sides are equal:
    /// of the side that lost fewer, to its own members or else to anybody.
    larger: usize,
    /// Members that any member declared dead.
    larger_by_anybody: usize,
    smaller: usize,
    settled: Option<Duration>,
    agree: bool,
}

impl Split {
    /// Runs the experiment.
    ///
    /// # Errors
    /// When a simulation stops.
    pub fn report(&self) -> Result<Report, Failure> {
        let silos = if self.common.quick {
            usize::from(self.silos).min(20)
        } else {
            usize::from(self.silos)
        };
        let seeds = self.common.seeds_or(5);
        let shapes = [
            ("70 to 30", silos * 3 / 10),
            ("50 to 50", silos / 2),
            ("one alone", 1),
        ];
        let mut pieces = Vec::new();
        for (name, smaller) in shapes {
            for system in unique(&self.systems) {
                pieces.extend(
                    runs(system, &self.common, &seeds)
                        .into_iter()
                        .map(|run| (name, smaller, system, run)),
                );
            }
        }
        let run = |(_, smaller, system, (seed, _)): &(&str, usize, System, (u64, u32))| {
            one(*system, *seed, silos, *smaller)
        };
        let outcomes = each(
            "split",
            &pieces,
            self.common.threads(),
            |piece| piece.3.0,
            run,
        )?;
        let mut report = Report::default();
        let mut figures = Figures::new(
            3,
            &[
                "split",
                "system",
                "seed",
                "given up by its own, larger side",
                "by anybody",
                "given up, smaller side",
                "larger side settled s",
                "one view at the end",
            ],
        );
        let all: Vec<_> = pieces.iter().zip(&outcomes).collect();
        // The repetitions of one seed are adjacent.
        for same in all.chunk_by(
            |((one, _, of, (seed, _)), _), ((other, _, to, (same, _)), _)| {
                (one, of, seed) == (other, to, same)
            },
        ) {
            let Some(((name, smaller, system, (seed, _)), _)) = same.first() else {
                continue;
            };
            let outcomes = || same.iter().map(|(_, outcome)| *outcome);
            let count = |what: fn(&Outcome) -> usize| {
                spread(
                    &outcomes()
                        .map(|o| f64::from(u32::try_from(what(o)).unwrap_or(u32::MAX)))
                        .collect::<Vec<_>>(),
                    0,
                )
            };
            let settled: Vec<f64> = outcomes()
                .map(|o| seconds(o.settled).unwrap_or(f64::INFINITY))
                .collect();
            let agree = outcomes().filter(|o| o.agree).count();
            figures.row(vec![
                (*name).to_owned(),
                system.name().to_owned(),
                if same.len() == 1 {
                    seed.to_string()
                } else {
                    format!("{} × {seed}", same.len())
                },
                count(|o| o.larger),
                count(|o| o.larger_by_anybody),
                count(|o| o.smaller),
                spread(&settled, 1),
                match agree {
                    0 => "no".to_owned(),
                    all if all == same.len() => "yes".to_owned(),
                    some => format!("{some} of {}", same.len()),
                },
            ]);
            if system.is_ours() {
                let (lost, system): (usize, _) =
                    (outcomes().map(|o| o.larger_by_anybody).sum(), system.name());
                report.must(
                    lost == 0,
                    format!("{name}, {system}, seed {seed}: {lost} silos of the larger side (of {}) were declared dead", silos - smaller),
                );
                report.must(agree == same.len(), format!("{name}, {system}, seed {seed}: no common view 2 min after the network healed"));
            }
        }
        report.table(
            format!(
                "{}, the network splits for 300 s, all reach the table",
                so_many(silos, "members")
            ),
            figures,
        );
        report.note(format!(
            "*Settled*: the time after which no member of the larger side gave up another one. \
             Of two halves, the *larger* is the one that lost fewer. *One view at the end*: 120 s \
             after the network healed, all members that the larger side had not given up count \
             the same number of members. Without a table each side of a split declares the other \
             one dead and continues: two clusters. {CHITCHAT} \
             {WHO_COMES_BACK} No published figure."
        ));
        Ok(report)
    }
}

fn one(system: System, seed: u64, silos: usize, smaller: usize) -> Result<Outcome, Failure> {
    let mut world = settled_without_return(system, seed, silos)?;
    let small = draw(&mut Rng::new(seed), silos, smaller);
    let large: BTreeSet<Member> = (0..silos)
        .filter(|member| !small.contains(member))
        .collect();
    let began = world.now();
    world.partition(&[small.iter().copied().collect()]);
    world.run_for(LASTS)?;
    let during = world.record();
    world.partition(&[]);
    world.run_for(QUIET)?;
    let lost = |side: &BTreeSet<Member>, by: Option<&BTreeSet<Member>>| {
        super::victims(
            during
                .deaths
                .iter()
                .filter(|d| side.contains(&d.of) && by.is_none_or(|by| by.contains(&d.by))),
        )
    };
    let losses = |side| (lost(side, Some(side)), lost(side, None));
    let swap = small.len() == large.len() && losses(&large) > losses(&small);
    let (large, small) = if swap { (small, large) } else { (large, small) };
    let settled = during
        .deaths
        .iter()
        .filter(|d| large.contains(&d.by))
        .map(|d| d.at - began)
        .max();
    let end = world.record();
    let gone = |member: &Member| {
        during
            .deaths
            .iter()
            .any(|d| d.of == *member && large.contains(&d.by))
    };
    let sizes: BTreeSet<usize> = (0..silos)
        .filter(|m| !gone(m))
        .filter_map(|m| end.seen.get(m))
        .map(|sight| sight.size)
        .collect();
    Ok(Outcome {
        larger: lost(&large, Some(&large)),
        larger_by_anybody: lost(&large, None),
        smaller: lost(&small, None),
        settled,
        agree: sizes.len() == 1,
    })
}
