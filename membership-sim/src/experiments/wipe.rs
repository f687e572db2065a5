//! `wipe`: the table is wiped, or an old backup is restored.

use std::time::Duration;

use super::{QUIET, each, so_many, until_agreed};
use crate::arena::{Arena, Failure, settled};
use crate::figures::{Figures, number};
use crate::report::{Common, Report};
use crate::systems::System;

/// The table is wiped under running silos, or an old backup is restored.
#[derive(clap::Args, Clone, Debug)]
pub struct Wipe {
    #[command(flatten)]
    pub common: Common,
    /// The number of members
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u16).range(4..=1000))]
    pub silos: u16,
}

struct Outcome {
    dead: usize,
    stopped: usize,
    members: usize,
    told: usize,
    again: Option<f64>,
}

impl Wipe {
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
        let kinds = [("wiped", false), ("an old backup restored", true)];
        let pieces: Vec<(&str, bool, u64)> = kinds
            .iter()
            .flat_map(|(name, old)| seeds.iter().map(|seed| (*name, *old, *seed)))
            .collect();
        let outcomes = each(
            "wipe",
            &pieces,
            self.common.threads(),
            |piece| piece.2,
            |(_, old, seed)| one(*seed, silos, *old),
        )?;
        let mut report = Report::default();
        let mut figures = Figures::new(
            2,
            &[
                "table",
                "seed",
                "declared dead",
                "stopped",
                "applications told",
                "one view after a restart of all s",
            ],
        );
        for ((name, _, seed), o) in pieces.iter().zip(outcomes) {
            let cells = [
                o.dead.to_string(),
                o.stopped.to_string(),
                o.told.to_string(),
                number(o.again, 1),
            ];
            figures.row(
                [(*name).to_owned(), seed.to_string()]
                    .into_iter()
                    .chain(cells)
                    .collect(),
            );
            report.must(
                o.dead == 0 && o.stopped == 0,
                format!(
                    "{name}, seed {seed}: {} silos taken for dead, {} stopped",
                    o.dead, o.stopped
                ),
            );
            report.must(
                o.told == o.members,
                format!(
                    "{name}, seed {seed}: {} of {} applications were told",
                    o.told, o.members
                ),
            );
            report.must(
                o.again.is_some(),
                format!("{name}, seed {seed}: restarted silos found no common view within 10 min"),
            );
        }
        report.table(
            format!("{}; ten minutes with the wrong table, then all are restarted, one by one within 10 s", so_many(silos, "silos")),
            figures,
        );
        report.note(
            "*Told*: applications that were informed of a replaced or rolled-back table \
                     within these ten minutes. No published figure.",
        );
        Ok(report)
    }
}

fn one(seed: u64, silos: usize, old: bool) -> Result<Outcome, Failure> {
    use membership_core::protocol::{Notice, TableState};
    let mut ours = System::Membership.ours(seed, silos)?;
    ours.supervised = false;
    settled(&mut ours, silos, QUIET)?;
    let backup = ours.cluster.backup_table();
    // A change that is not in the backup.
    ours.start(1, Duration::ZERO);
    ours.run_for(Duration::from_secs(60))?;
    ours.forget();
    if old {
        ours.cluster.restore_table(backup);
    } else {
        ours.cluster.wipe_table();
    }
    ours.run_for(Duration::from_secs(600))?;
    let members = silos + 1;
    let told = |member: &usize| {
        let notices = ours.cluster.notices(ours.process(*member));
        notices
            .iter()
            .any(|(_, notice)| matches!(notice, Notice::Table(TableState::Changed(_))))
    };
    let told = (0..members).filter(told).count();
    let stopped = (0..members).filter(|member| !ours.runs(*member)).count();
    let dead = super::victims(ours.record().deaths.iter());
    for member in 0..members {
        ours.restart(member);
        ours.run_for(Duration::from_secs(10) / u32::try_from(members).unwrap_or(1))?;
    }
    let again = until_agreed(&mut ours, members, Duration::from_secs(600))?;
    Ok(Outcome {
        dead,
        stopped,
        members,
        told,
        again,
    })
}
