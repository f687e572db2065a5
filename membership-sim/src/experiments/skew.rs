//! `skew`: wall clocks that are wrong, and jump.

use std::time::Duration;

use super::{QUIET, each, so_many, unique, until_active, until_agreed};
use crate::arena::{Arena, Failure, settled};
use crate::figures::{Figures, number};
use crate::report::{Common, Report};
use crate::systems::System;

/// The largest error of a clock, in milliseconds.
const MOST: i64 = 600_000;

/// Wall clocks are up to ten minutes wrong, and jump: which silos are declared dead, and which can
/// join?
#[derive(clap::Args, Clone, Debug)]
pub struct Skew {
    #[command(flatten)]
    pub common: Common,
    /// The number of members
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u16).range(4..=1000))]
    pub silos: u16,
    /// The variants of this library
    #[arg(long, value_enum, value_delimiter = ',', default_values_t = [System::Membership])]
    pub systems: Vec<System>,
}

struct Outcome {
    dead: u64,
    stopped: usize,
    crash: Option<f64>,
    join: Option<f64>,
    back: Option<f64>,
}

impl Skew {
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
        let seeds = self.common.seeds_or(5);
        let mut pieces = Vec::new();
        for (name, stepped) in [
            ("±10 min, constant", false),
            ("±10 min, another every 60 s", true),
        ] {
            for system in unique(&self.systems) {
                pieces.extend(seeds.iter().map(|seed| (name, stepped, system, *seed)));
            }
        }
        let threads = self.common.threads();
        let outcomes = each(
            "skew",
            &pieces,
            threads,
            |piece| piece.3,
            |(_, stepped, system, seed)| one(*system, *seed, silos, *stepped),
        )?;
        let mut report = Report::default();
        let mut figures = Figures::new(
            3,
            &[
                "clocks",
                "system",
                "seed",
                "declared dead",
                "stopped",
                "a crash known to all s",
                "newcomer Active s",
                "restarted, clock 10 min back, Active s",
            ],
        );
        for ((name, _, system, seed), o) in pieces.iter().zip(outcomes) {
            figures.row(vec![
                (*name).to_owned(),
                system.name().to_owned(),
                seed.to_string(),
                o.dead.to_string(),
                o.stopped.to_string(),
                number(o.crash, 1),
                number(o.join, 1),
                number(o.back, 1),
            ]);
            if *system == System::Membership {
                report.must(
                    o.dead == 0 && o.stopped == 0,
                    format!("{name}, seed {seed}: {} healthy silos were declared dead, {} stopped by themselves", o.dead, o.stopped),
                );
                let all = o.crash.is_some() && o.join.is_some() && o.back.is_some();
                report.must(
                    all,
                    format!(
                        "{name}, seed {seed}: a crash was not noticed, or somebody could not join"
                    ),
                );
            }
        }
        report.table(
            format!("{}, wrong clocks for 10 min, then a crash, a newcomer, and a restart with a clock set back", so_many(silos, "silos")),
            figures,
        );
        report.note(
            "Monotonic clocks are correct. Microsoft Orleans: silos stopped because hosts were 3 minutes apart (orleans#7505, since fixed).",
        );
        Ok(report)
    }
}

fn one(system: System, seed: u64, silos: usize, stepped: bool) -> Result<Outcome, Failure> {
    let mut ours = system.ours(seed, silos)?;
    ours.supervised = false;
    settled(&mut ours, silos, QUIET)?;
    let before = ours.cluster.stats().voted_out_alive;
    for minute in 0..10 {
        if minute == 0 || stepped {
            for member in 0..silos {
                let wrong = ours
                    .cluster
                    .rng()
                    .below(usize::try_from(2 * MOST).unwrap_or(0));
                let process = ours.process(member);
                ours.cluster
                    .clock_offset(process, i64::try_from(wrong).unwrap_or(0) - MOST);
            }
        }
        ours.run_for(Duration::from_secs(60))?;
    }
    ours.kill(0);
    let crash = until_agreed(&mut ours, silos - 1, Duration::from_secs(180))?;
    let newcomer = ours.start(1, Duration::ZERO).start;
    let process = ours.process(newcomer);
    ours.cluster.clock_offset(process, MOST);
    let join = until_active(&mut ours, newcomer, Duration::from_secs(300))?;
    ours.kill(1);
    let process = ours.process(1);
    ours.cluster.clock_offset(process, -MOST);
    ours.restart(1);
    let back = until_active(&mut ours, 1, Duration::from_secs(300))?;
    ours.run_for(Duration::from_secs(300))?;
    let stopped = (1..=newcomer).filter(|member| !ours.runs(*member)).count();
    Ok(Outcome {
        stopped,
        dead: ours.cluster.stats().voted_out_alive - before,
        crash,
        join,
        back,
    })
}
