//! `restart`: all members lose power at the same time.

use std::time::Duration;

use super::{QUIET, each, so_many, unique, until_agreed};
use crate::arena::{Arena, Failure, settled};
use crate::figures::{Figures, number};
use crate::report::{Common, Report};
use crate::systems::System;

/// The longest time that this library may take.
const OURS: Duration = Duration::from_secs(900);
/// The duration of the experiment.
const AT_MOST: Duration = Duration::from_secs(1200);

/// The whole cluster loses power and starts again over its old rows: when has it recovered?
#[derive(clap::Args, Clone, Debug)]
pub struct Restart {
    #[command(flatten)]
    pub common: Common,
    /// The number of members
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u16).range(4..=1000))]
    pub silos: u16,
    /// The variants of this library
    #[arg(long, value_enum, value_delimiter = ',', default_values_t = [System::Membership, System::Orleans2019, System::Orleans2026])]
    pub systems: Vec<System>,
}

struct Outcome {
    first: Option<f64>,
    all: Option<f64>,
    healthy: u64,
}

impl Restart {
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
        let seeds = self.common.seeds_or(3);
        let mut pieces = Vec::new();
        for (name, same) in [("the same addresses", true), ("new addresses", false)] {
            for system in unique(&self.systems) {
                pieces.extend(seeds.iter().map(|seed| (name, same, system, *seed)));
            }
        }
        let threads = self.common.threads();
        let outcomes = each(
            "restart",
            &pieces,
            threads,
            |piece| piece.3,
            |(_, same, system, seed)| one(*system, *seed, silos, *same),
        )?;
        let mut report = Report::default();
        let mut figures = Figures::new(
            3,
            &[
                "on",
                "system",
                "seed",
                "first Active s",
                "all Active in one view s",
                "declared dead while running",
            ],
        );
        for ((name, _, system, seed), o) in pieces.iter().zip(outcomes) {
            let cells = [number(o.first, 1), number(o.all, 1), o.healthy.to_string()];
            figures.row(
                [
                    (*name).to_owned(),
                    system.name().to_owned(),
                    seed.to_string(),
                ]
                .into_iter()
                .chain(cells)
                .collect(),
            );
            if *system == System::Membership {
                let in_time = o.all.is_some_and(|all| all <= OURS.as_secs_f64());
                report.must(
                    in_time,
                    format!("{name}, seed {seed}: no common view within 15 min"),
                );
                report.must(
                    o.healthy == 0,
                    format!(
                        "{name}, seed {seed}: {} were declared dead while they ran",
                        o.healthy
                    ),
                );
            }
        }
        report.table(
            format!(
                "{} lose power at one moment and start within 2 s, 5 s later",
                so_many(silos, "silos")
            ),
            figures,
        );
        report.note(
            "A silo that gives up joining is started again a second later. Published: Microsoft Orleans waits until the old rows are stale, 10 min until 9.0 and 90 s since, by its settings; \
        a new process at the same address supersedes the old row at once.",
        );
        Ok(report)
    }
}

fn one(system: System, seed: u64, silos: usize, same: bool) -> Result<Outcome, Failure> {
    let mut ours = system.ours(seed, silos)?;
    settled(&mut ours, silos, QUIET)?;
    let before = ours.cluster.stats().voted_out_alive;
    for member in 0..silos {
        ours.kill(member);
    }
    ours.run_for(Duration::from_secs(5))?;
    let began = ours.now();
    if same {
        for member in 0..silos {
            ours.restart(member);
            ours.run_for(Duration::from_secs(2) / u32::try_from(silos).unwrap_or(1))?;
        }
    } else {
        ours.start(silos, Duration::from_secs(2));
    }
    let first = ours.run_until(AT_MOST, |cluster, _| {
        cluster
            .running()
            .into_iter()
            .any(|process| cluster.status(process) == Some(membership_core::SiloStatus::Active))
    })?;
    let first = first.then(|| (ours.now() - began).as_secs_f64());
    let all = until_agreed(&mut ours, silos, AT_MOST)?.map(|_| (ours.now() - began).as_secs_f64());
    Ok(Outcome {
        first,
        all,
        healthy: ours.cluster.stats().voted_out_alive - before,
    })
}
