//! `flipflop` and `loss80`: one member in a hundred with a broken link, as in the
//! evaluation of Rapid.

use std::collections::BTreeSet;
use std::time::Duration;

use membership_testing::Rng;

use super::{
    WHO_COMES_BACK, WITH_AND_WITHOUT, WITHOUT_CHITCHAT, draw, each, settled_without_return,
    so_many, unique,
};
use crate::arena::{Failure, Member};
use crate::figures::{Figures, number};
use crate::report::{Common, Report};
use crate::systems::System;

/// Half of a flip-flop period.
const HALF: Duration = Duration::from_secs(20);
/// The fault time within which all faulty members must be removed.
const BOUND: f64 = 120.0;

/// Members whose links are broken in one direction: are exactly these removed?
#[derive(clap::Args, Clone, Debug)]
pub struct Link {
    #[command(flatten)]
    pub common: Common,
    /// The number of members; one in a hundred is faulty
    #[arg(long, default_value_t = 1000, value_parser = clap::value_parser!(u16).range(20..=2000))]
    pub silos: u16,
    /// The virtual seconds of the fault
    #[arg(long, default_value_t = 900, value_parser = clap::value_parser!(u64).range(60..=3600))]
    pub seconds: u64,
    /// The systems
    #[arg(long, value_enum, value_delimiter = ',', default_values_t = WITH_AND_WITHOUT)]
    pub systems: Vec<System>,
}

/// The fault of a member.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// It loses all messages that arrive, 20 s on, 20 s off.
    Flipflop,
    /// It loses 80 % of the messages that it sends.
    Loss,
}

#[derive(Debug)]
struct Outcome {
    faulty: usize,
    /// Of these, how many any healthy member declared dead at some time.
    removed: usize,
    /// Of these, how many no healthy member counts at the end.
    gone: usize,
    /// The fault time until all healthy members had declared the last of them dead.
    last: Option<f64>,
    first: Option<f64>,
    healthy: usize,
    sizes: usize,
    changes: u64,
}

impl Link {
    /// Runs the experiment.
    ///
    /// # Errors
    /// When a simulation stops.
    pub fn report(&self, fault: Fault) -> Result<Report, Failure> {
        let seeds = self.common.seeds_or(1);
        let silos = if self.common.quick {
            usize::from(self.silos).min(40)
        } else {
            usize::from(self.silos)
        };
        let pieces: Vec<(System, u64)> = unique(&self.systems)
            .iter()
            .flat_map(|s| seeds.iter().map(|seed| (*s, *seed)))
            .collect();
        let name = if fault == Fault::Flipflop {
            "flipflop"
        } else {
            "loss80"
        };
        let run = |(system, seed): &(System, u64)| self.one(fault, *system, *seed, silos);
        let outcomes = each(name, &pieces, self.common.threads(), |piece| piece.1, run)?;
        let mut report = Report::default();
        let mut figures = Figures::new(
            3,
            &[
                "system",
                "seed",
                "faulty",
                "declared dead",
                "gone at the end",
                "first s",
                "all known to all s",
                "healthy given up",
                "sizes seen",
                "changes per member",
            ],
        );
        for ((system, seed), o) in pieces.iter().zip(outcomes) {
            figures.row(vec![
                system.name().to_owned(),
                seed.to_string(),
                o.faulty.to_string(),
                o.removed.to_string(),
                o.gone.to_string(),
                number(o.first, 1),
                number(o.last, 1),
                o.healthy.to_string(),
                o.sizes.to_string(),
                o.changes.to_string(),
            ]);
            if *system == System::Supervised {
                report.must(
                    o.healthy == 0,
                    format!(
                        "seed {seed}, supervised: {} healthy ones were declared dead",
                        o.healthy
                    ),
                );
            }
            if *system == System::Membership {
                let exactly = o.healthy == 0 && o.removed == o.faulty && o.gone == o.faulty;
                let soon = o.last.is_some_and(|last| last <= BOUND);
                report.must(
                    exactly && soon,
                    format!(
                        "seed {seed}: {} of {} faulty removed, {} healthy ones, within {} s of fault time (exactly the faulty, \
                    within {BOUND} s)",
                        o.gone,
                        o.faulty,
                        o.healthy,
                        number(o.last, 1)
                    ),
                );
            }
        }
        let what = match fault {
            Fault::Flipflop => "everything sent to them is lost, 20 s on, 20 s off",
            Fault::Loss => "80 % of what they send is lost",
        };
        report.table(
            format!(
                "{}, one in a hundred faulty: {what}; {} s",
                so_many(silos, "members"),
                self.seconds
            ),
            figures,
        );
        report.note(match fault {
            Fault::Flipflop => {
                "Times count only while the fault is on (the off halves do not count). Published (Rapid, ATC 2018, 1,000 processes, 10 faulty, 900 \
                 s): ZooKeeper never reacts; memberlist oscillates between 991 and 1000 members and never removes all; Rapid removes \
                 exactly the 10."
            }
            Fault::Loss => {
                "Published (Rapid, ATC 2018, 1,000 processes, 10 faulty, from t = 90 s): ZooKeeper reacts at t = 200 s or so, \
                 incompletely; memberlist is inconclusive, and its views are inconsistent until \
                 t = 400 s or so; Rapid removes exactly the faulty."
            }
        });
        report.note(format!(
            "All members reach the table (if there is one). {WHO_COMES_BACK} *Gone at the end*: \
             faulty members that no healthy member counts when the time is over; for members that \
             return, this depends on the moment. *Healthy given up*: by healthy members. \
             *Changes*: the median of how often a healthy member's set of members changed. {WITHOUT_CHITCHAT}"
        ));
        Ok(report)
    }

    fn one(
        &self,
        fault: Fault,
        system: System,
        seed: u64,
        silos: usize,
    ) -> Result<Outcome, Failure> {
        let mut world = settled_without_return(system, seed, silos)?;
        let faulty = draw(&mut Rng::new(seed), silos, (silos / 100).max(1));
        let well: BTreeSet<Member> = (0..silos)
            .filter(|member| !faulty.contains(member))
            .collect();
        let began = world.now();
        let mut under = Vec::new();
        let end = began + Duration::from_secs(self.seconds);
        while world.now() < end {
            let (egress, ingress) = if fault == Fault::Flipflop {
                (0.0, 1.0)
            } else {
                (0.8, 0.0)
            };
            under.push(world.now());
            for member in &faulty {
                world.loss(*member, egress, ingress);
            }
            world.run_for(HALF.min(end - world.now()))?;
            if fault == Fault::Flipflop && world.now() < end {
                for member in &faulty {
                    world.loss(*member, 0.0, 0.0);
                }
                world.run_for(HALF.min(end - world.now()))?;
            }
        }
        let record = world.record();
        // The time with the fault until a moment.
        let fault_time = |at: Duration| {
            under
                .iter()
                .map(|from| at.saturating_sub(*from).min(HALF).as_secs_f64())
                .sum::<f64>()
        };
        let first = faulty
            .iter()
            .filter_map(|member| record.first_death(*member, &well))
            .min();
        let known: Vec<Option<Duration>> = faulty
            .iter()
            .map(|member| record.known_to_all(*member, &well))
            .collect();
        let last = known
            .iter()
            .copied()
            .collect::<Option<Vec<_>>>()
            .and_then(|all| all.into_iter().max());
        let mut changes: Vec<u64> = well
            .iter()
            .filter_map(|member| record.seen.get(*member))
            .map(|sight| sight.changes)
            .collect();
        changes.sort_unstable();
        let smallest = well
            .iter()
            .filter_map(|member| record.seen.get(*member))
            .map(|sight| sight.size)
            .max()
            .unwrap_or(0);
        Ok(Outcome {
            faulty: faulty.len(),
            removed: faulty
                .iter()
                .filter(|member| record.first_death(**member, &well).is_some())
                .count(),
            gone: silos.saturating_sub(smallest).min(faulty.len()),
            first: first.map(fault_time),
            last: last.map(fault_time),
            healthy: super::victims(
                super::false_deaths(&record, &well).filter(|death| well.contains(&death.by)),
            ),
            sizes: record.sizes.len(),
            changes: changes.get(changes.len() / 2).copied().unwrap_or(0),
        })
    }
}
