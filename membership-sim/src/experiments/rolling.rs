//! `rolling`: every silo is replaced, one by one.

use std::time::Duration;

use super::{QUIET, each, so_many, unique, until_active, until_agreed};
use crate::arena::{Arena, Failure, Member, settled};
use crate::figures::{Figures, mean, number, quantile};
use crate::ours::Ours;
use crate::report::{Common, Report};
use crate::systems::System;

/// Every silo is replaced, one by one: which are declared dead, and how long does it take?
#[derive(clap::Args, Clone, Debug)]
pub struct Rolling {
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
enum How {
    LeaveSame,
    LeaveNew,
    KillSame,
}

impl How {
    const ALL: [(Self, &'static str); 3] = [
        (Self::LeaveSame, "leaves, same address"),
        (Self::LeaveNew, "leaves, new address"),
        (Self::KillSame, "killed, same address"),
    ];
}

struct Outcome {
    /// Silos that were declared dead while they ran.
    healthy: u64,
    /// Silos that stopped by themselves before their replacement.
    stopped: usize,
    took: Vec<f64>,
    total: f64,
    commits: u64,
    agreed: Option<f64>,
}

impl Rolling {
    /// Runs the experiment.
    ///
    /// # Errors
    /// When a simulation stops.
    pub fn report(&self) -> Result<Report, Failure> {
        let silos = if self.common.quick {
            usize::from(self.silos).min(8)
        } else {
            usize::from(self.silos)
        };
        let seeds = self.common.seeds_or(3);
        let mut pieces = Vec::new();
        for (how, name) in How::ALL {
            for system in unique(&self.systems) {
                pieces.extend(seeds.iter().map(|seed| (how, name, system, *seed)));
            }
        }
        let threads = self.common.threads();
        let outcomes = each(
            "rolling",
            &pieces,
            threads,
            |piece| piece.3,
            |(how, _, system, seed)| one(*system, *seed, silos, *how),
        )?;
        let mut report = Report::default();
        let mut figures = Figures::new(
            3,
            &[
                "each one",
                "system",
                "seed",
                "healthy declared dead",
                "stopped",
                "gone to Active: mean s",
                "p99 s",
                "all replaced s",
                "commits per replacement",
                "one view at the end after s",
            ],
        );
        for ((_, name, system, seed), o) in pieces.iter().zip(outcomes) {
            #[allow(clippy::cast_precision_loss, reason = "figures for people")]
            let commits = o.commits as f64 / silos as f64;
            figures.row(vec![
                (*name).to_owned(),
                system.name().to_owned(),
                seed.to_string(),
                o.healthy.to_string(),
                o.stopped.to_string(),
                number(mean(&o.took), 2),
                number(quantile(&o.took, 0.99), 2),
                number(Some(o.total), 0),
                number(Some(commits), 1),
                number(o.agreed, 1),
            ]);
            if *system == System::Membership {
                report.must(
                    o.healthy == 0 && o.stopped == 0,
                    format!("{name}, seed {seed}: {} healthy silos were declared dead, {} stopped by themselves", o.healthy, o.stopped),
                );
                report.must(
                    o.took.len() == silos,
                    format!(
                        "{name}, seed {seed}: only {} of {silos} were replaced",
                        o.took.len()
                    ),
                );
                report.must(
                    o.agreed.is_some(),
                    format!("{name}, seed {seed}: no common view at the end within 5 min"),
                );
            }
        }
        report.table(
            format!(
                "{}, replaced one by one, the next one as soon as the one before is Active",
                so_many(silos, "silos")
            ),
            figures,
        );
        report.note(
            "*Gone to Active*: from the start of the new process until it is Active. *Stopped*: silos that ended before it \
             was their turn, or after they had replaced one. No published figure.",
        );
        Ok(report)
    }
}

fn one(system: System, seed: u64, silos: usize, how: How) -> Result<Outcome, Failure> {
    let mut ours = system.ours(seed, silos)?;
    ours.supervised = false;
    settled(&mut ours, silos, QUIET)?;
    let (before, began) = (*ours.cluster.stats(), ours.now());
    let (mut took, mut stopped, mut replaced) = (Vec::new(), 0, Vec::new());
    for old in 0..silos {
        stopped += usize::from(!ours.runs(old));
        if how != How::KillSame {
            leave(&mut ours, old)?;
        }
        let place = if how == How::LeaveNew {
            ours.start(1, Duration::ZERO).start
        } else {
            ours.restart(old);
            old
        };
        replaced.push(place);
        took.extend(until_active(&mut ours, place, Duration::from_secs(300))?);
    }
    let total = (ours.now() - began).as_secs_f64();
    let agreed = until_agreed(&mut ours, silos, Duration::from_secs(300))?;
    ours.run_for(Duration::from_secs(120))?;
    stopped += replaced
        .into_iter()
        .filter(|member| !ours.runs(*member))
        .count();
    let after = *ours.cluster.stats();
    let (healthy, commits) = (
        after.voted_out_alive - before.voted_out_alive,
        after.commits - before.commits,
    );
    Ok(Outcome {
        healthy,
        stopped,
        took,
        total,
        commits,
        agreed,
    })
}

/// Asks a silo to leave, within 60 s.
fn leave(ours: &mut Ours, member: Member) -> Result<(), Failure> {
    let process = ours.process(member);
    ours.cluster.leave(process);
    // If it takes longer, the silo is killed, as by an orchestrator.
    if !ours.cluster.run_until(Duration::from_secs(60), |cluster| {
        !cluster.is_running(process)
    })? {
        ours.kill(member);
    }
    Ok(())
}
