//! `outage`: the table is unavailable, slow, or unavailable together with the network.

use std::time::Duration;

use super::{QUIET, each, so_many, unique, until_active, until_agreed};
use crate::arena::{Arena, Failure, settled};
use crate::figures::{Figures, number};
use crate::report::{Common, Report};
use crate::systems::System;

/// The longest latency of a slow table in each direction, so that one call in a hundred takes more
/// than 5 s.
const SLOW: Duration = Duration::from_millis(2_690);

/// The table is unavailable or slow: which silos are declared dead, which join, and when has the
/// cluster recovered?
#[derive(clap::Args, Clone, Debug)]
pub struct Outage {
    #[command(flatten)]
    pub common: Common,
    /// The number of members
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u16).range(4..=1000))]
    pub silos: u16,
    /// The variants of this library
    #[arg(long, value_enum, value_delimiter = ',', default_values_t = [System::Membership])]
    pub systems: Vec<System>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    TableGone,
    TableSlow,
    BothGone,
}

impl Kind {
    const ALL: [Self; 3] = [Self::TableGone, Self::TableSlow, Self::BothGone];

    const fn name(self) -> &'static str {
        match self {
            Self::TableGone => "table gone for 10 min",
            Self::TableSlow => "table slow for 10 min (p99 5 s)",
            Self::BothGone => "table and network gone for 2 min",
        }
    }

    const fn time(self) -> Duration {
        Duration::from_secs(if matches!(self, Self::BothGone) {
            120
        } else {
            600
        })
    }
}

struct Outcome {
    dead: u64,
    stopped: usize,
    /// The time from the start of a new silo during the outage until it is Active.
    joined: Option<f64>,
    joined_during: bool,
    agreed: Option<f64>,
}

impl Outage {
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
        for kind in Kind::ALL {
            for system in unique(&self.systems) {
                pieces.extend(seeds.iter().map(|seed| (kind, system, *seed)));
            }
        }
        let threads = self.common.threads();
        let outcomes = each(
            "outage",
            &pieces,
            threads,
            |piece| piece.2,
            |(kind, system, seed)| one(*system, *seed, silos, *kind),
        )?;
        let mut report = Report::default();
        let mut figures = Figures::new(
            3,
            &[
                "what",
                "system",
                "seed",
                "declared dead",
                "stopped",
                "a newcomer is Active after s",
                "during it",
                "one view again after s",
            ],
        );
        for ((kind, system, seed), o) in pieces.iter().zip(outcomes) {
            figures.row(vec![
                kind.name().to_owned(),
                system.name().to_owned(),
                seed.to_string(),
                o.dead.to_string(),
                o.stopped.to_string(),
                number(o.joined, 1),
                if o.joined_during { "yes" } else { "no" }.to_owned(),
                number(o.agreed, 1),
            ]);
            if *system == System::Membership {
                report.must(
                    o.dead == 0 && o.stopped == 0,
                    format!(
                        "{}, seed {seed}: {} healthy silos were declared dead, {} stopped",
                        kind.name(),
                        o.dead,
                        o.stopped
                    ),
                );
                report.must(
                    o.agreed.is_some(),
                    format!(
                        "{}, seed {seed}: no common view of all and the newcomer within 10 min",
                        kind.name()
                    ),
                );
            }
        }
        report.table(so_many(silos, "silos"), figures);
        report.note(
            "A newcomer starts in the last quarter of the outage. *One view again*: from the end \
             of the outage until all silos, the newcomer included, run and are Active in the same \
             view. Deaths are counted until 5 min after the outage. Microsoft Orleans documents the same aim: \"existing silos can \
             continue processing calls, but they cannot durably admit a member or declare a failed member dead\".",
        );
        Ok(report)
    }
}

fn one(system: System, seed: u64, silos: usize, kind: Kind) -> Result<Outcome, Failure> {
    let mut ours = system.ours(seed, silos)?;
    ours.supervised = false;
    settled(&mut ours, silos, QUIET)?;
    let (before, last) = (ours.cluster.stats().voted_out, kind.time() / 4);
    match kind {
        Kind::TableGone => ours.cluster.table_outage(kind.time()),
        Kind::TableSlow => ours.cluster.slow_table(Duration::from_millis(1), SLOW),
        Kind::BothGone => {
            ours.cluster.table_outage(kind.time());
            ours.cluster.network_outage(kind.time());
        }
    }
    ours.run_for(kind.time() - last)?;
    let newcomer = ours.start(1, Duration::ZERO).start;
    let mut joined = until_active(&mut ours, newcomer, last)?;
    let joined_during = joined.is_some();
    if let Some(took) = joined {
        ours.run_for(last.saturating_sub(Duration::from_secs_f64(took)))?;
    }
    if kind == Kind::TableSlow {
        ours.cluster
            .slow_table(Duration::from_millis(1), Duration::from_millis(6));
    }
    let ended = ours.now();
    let agreed = until_agreed(&mut ours, silos + 1, Duration::from_secs(600))?;
    if !joined_during {
        joined = agreed.map(|took| took + last.as_secs_f64());
    }
    ours.run_for(Duration::from_secs(300).saturating_sub(ours.now() - ended))?;
    let stopped = (0..=newcomer).filter(|member| !ours.runs(*member)).count();
    Ok(Outcome {
        dead: ours.cluster.stats().voted_out - before,
        stopped,
        joined,
        joined_during,
        agreed,
    })
}
