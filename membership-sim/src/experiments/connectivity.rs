//! `connectivity`: silos join a settled large cluster while they do not reach all of it, or while some
//! of it is paused.

mod joins;

use std::collections::BTreeSet;
use std::time::Duration;

use membership_core::SiloAddress;
use membership_testing::{ProcessId, Rng};

use self::joins::{Cut, Joined, join, leave};
use super::formed::formed;
use super::{each, unique};
use crate::arena::{Arena as _, Failure};
use crate::figures::{Figures, mean, number, quantile};
use crate::ours::Ours;
use crate::report::{Common, Report};
use crate::systems::System;

/// The time without faults before the first join.
const QUIET: Duration = Duration::from_secs(20);
/// How many silos are in the small zone, and in the subnet of their own.
const FEW: usize = 5;
/// The number of large zones.
const ZONES: usize = 3;
/// How many silos join at a time.
const AT_ONCE: usize = 25;
/// How long a join may be held up by paused silos, in seconds.
const DELAY: f64 = 2.0;

/// Silos join a large cluster and do not reach all of it, or some of it is paused: which of them
/// become Active, when, and whom do they name?
#[derive(clap::Args, Clone, Debug)]
pub struct Connectivity {
    #[command(flatten)]
    pub common: Common,
    /// The number of silos that are there
    #[arg(long, value_delimiter = ',', default_values_t = [1000], value_parser = clap::value_parser!(u16).range(20..=10_000))]
    pub silos: Vec<u16>,
    /// How many silos join that do not reach a tenth of the others
    #[arg(long, default_value_t = 1000, value_parser = clap::value_parser!(u16).range(1..=10_000))]
    pub joins: u16,
    /// How many silos join in every other case
    #[arg(long, default_value_t = 25, value_parser = clap::value_parser!(u16).range(1..=1000))]
    pub few: u16,
    /// For how many seconds one silo in a hundred is paused, case by case
    #[arg(long, value_delimiter = ',', default_values_t = [1, 5, 30], value_parser = clap::value_parser!(u16).range(1..=600))]
    pub pauses: Vec<u16>,
    /// The systems; only those with a table
    #[arg(long, value_enum, value_delimiter = ',', default_values_t = [System::Scribe])]
    pub systems: Vec<System>,
}

#[derive(Clone, Copy, Debug)]
struct Piece {
    system: System,
    silos: usize,
    seed: u64,
}

/// What came of the joins of one case.
struct Case {
    name: String,
    what: What,
    joined: Vec<Joined>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum What {
    /// No fault.
    Nothing,
    /// A zone or a subnet is cut off in one direction.
    Zone,
    /// A tenth of all silos is out of reach.
    Tenth,
    /// One in a hundred is paused.
    Paused,
}

impl Connectivity {
    /// Runs the experiment.
    ///
    /// # Errors
    /// When a simulation stops.
    pub fn report(&self) -> Result<Report, Failure> {
        let sizes = if self.common.quick {
            vec![40]
        } else {
            unique(&self.silos)
        };
        let mut pieces = Vec::new();
        for system in unique(&self.systems) {
            for silos in sizes.iter().copied().map(usize::from) {
                let seeds = self.common.seeds_or(1).into_iter();
                pieces.extend(seeds.map(|seed| Piece {
                    system,
                    silos,
                    seed,
                }));
            }
        }
        let outcomes = each(
            "connectivity",
            &pieces,
            self.common.threads(),
            |piece| piece.seed,
            |piece| self.cases(piece),
        )?;
        let mut report = Report::default();
        let mut figures = Figures::new(
            4,
            &[
                "system",
                "members",
                "seed",
                "the joining silos",
                "joins",
                "to meet: mean",
                "became Active",
                "named one of these",
                "named another",
                "Active after s: median",
                "most",
            ],
        );
        for (piece, cases) in pieces.iter().zip(&outcomes) {
            let usual = cases.iter().find(|case| case.what == What::Nothing);
            let usual = usual.and_then(|case| quantile(&case.took(), 1.0));
            for case in cases {
                let count = |is: fn(&Joined) -> bool| case.joined.iter().filter(|j| is(j)).count();
                let met: Vec<f64> = case.joined.iter().map(|j| j.set).collect();
                let took = case.took();
                figures.row(vec![
                    piece.system.name().to_owned(),
                    piece.silos.to_string(),
                    piece.seed.to_string(),
                    case.name.clone(),
                    case.joined.len().to_string(),
                    number(mean(&met), 0),
                    took.len().to_string(),
                    count(|j| j.named).to_string(),
                    count(|j| j.named_another).to_string(),
                    number(quantile(&took, 0.5), 2),
                    number(quantile(&took, 1.0), 2),
                ]);
                requires(&mut report, piece, case, usual);
            }
        }
        report.table("Silos that join a settled cluster", figures);
        report.note(format!(
            "*To meet*: how many silos each has to reach, both ways, before it becomes Active. *Named*: in \
             its progress, or in the reason of its failure, as somebody whom it does not reach or who does not reach \
             it. There are {ZONES} zones, {FEW} silos in a zone of their own, and {FEW} silos in a subnet of their own, of \
             a large zone. Up to {AT_ONCE} join at once, and are stopped afterwards; those that do not become Active \
             are looked at for {} s. Required: who does not reach a zone, or is not reached from it, names it and does not become \
             Active; of those that do not reach a tenth of all, 999 of 1000 are found; if one silo in a hundred is \
             paused, a join takes at most {DELAY:.0} s longer.",
            joins::LOOKED_AT.as_secs()
        ));
        Ok(report)
    }

    /// Runs all cases, one after the other, in one cluster.
    fn cases(&self, piece: &Piece) -> Result<Vec<Case>, Failure> {
        let few = if self.common.quick {
            3
        } else {
            self.few.into()
        };
        let many = if self.common.quick {
            6
        } else {
            self.joins.into()
        };
        let silos = piece.silos;
        let is_few = move |host: usize| host.is_multiple_of(silos / FEW) && host < silos - FEW;
        let zone = move |host: usize| match host {
            host if is_few(host) => "few".to_owned(),
            host => format!("zone-{}", host % ZONES),
        };
        let make = piece.system.make(piece.seed, silos)?;
        let limit = make.variant.full_check_limit;
        let mut ours = make.build_with(|builder| builder.zone_names(zone))?;
        formed(&mut ours, silos - FEW, Duration::from_secs(2))?;
        let mut apart = Vec::new();
        for n in 1..=FEW {
            let address = [10, 200, 0, u8::try_from(n).unwrap_or(0)];
            apart.push(ours.cluster.start_at((address, 7100).into()));
        }
        ours.adopt(&apart);
        if super::until_agreed(&mut ours, silos, Duration::from_secs(120))?.is_none() {
            return Err(Failure::new(format!("{silos} silos do not agree")));
        }
        ours.run_for(QUIET)?;
        let all = ours.cluster.running();
        let of = |name: &str| -> Vec<ProcessId> {
            let hosts = all.iter().enumerate().take(silos - FEW);
            let hosts = hosts.filter(|(host, _)| zone(*host) == name);
            hosts.map(|(_, silo)| *silo).collect()
        };
        let mut rng = Rng::new(piece.seed ^ 0x6a6f_696e);
        let mut cases = Vec::new();
        let mut run =
            |ours: &mut Ours, name: &str, what, joins: usize, cut: &mut dyn FnMut() -> Cut| {
                let mut joined = Vec::new();
                while joined.len() < joins {
                    let cuts = (0..AT_ONCE.min(joins - joined.len()))
                        .map(|_| cut())
                        .collect();
                    let (new, came) = join(ours, cuts, limit)?;
                    joined.extend(came);
                    leave(ours, &new)?;
                }
                cases.push(Case {
                    name: name.to_owned(),
                    what,
                    joined,
                });
                Ok::<(), Failure>(())
            };
        run(
            &mut ours,
            "reach everybody",
            What::Nothing,
            few,
            &mut Cut::default,
        )?;
        for (name, cut) in [
            ("a third", of("zone-1")),
            ("a zone of 5", of("few")),
            ("a subnet of 5", apart.clone()),
        ] {
            let those: BTreeSet<ProcessId> = cut.into_iter().collect();
            let mut to = || Cut::to(those.clone());
            run(
                &mut ours,
                &format!("do not reach {name}"),
                What::Zone,
                few,
                &mut to,
            )?;
            let mut from = || Cut::from(those.clone());
            run(
                &mut ours,
                &format!("are not reached from {name}"),
                What::Zone,
                few,
                &mut from,
            )?;
        }
        let mut tenth = || {
            let mut those = all.clone();
            rng.shuffle(&mut those);
            Cut::to(those.into_iter().take(silos / 10).collect())
        };
        run(
            &mut ours,
            "do not reach a tenth",
            What::Tenth,
            many,
            &mut tenth,
        )?;
        for seconds in unique(&self.pauses) {
            let mut those: Vec<ProcessId> = ours.cluster.running();
            Rng::new(piece.seed ^ u64::from(seconds)).shuffle(&mut those);
            for silo in those.into_iter().take((silos / 100).max(1)) {
                ours.cluster
                    .pause(silo, Duration::from_secs(seconds.into()));
            }
            let name = format!("reach all, 1 % paused for {seconds} s");
            let at_once = few.min(AT_ONCE);
            run(&mut ours, &name, What::Paused, at_once, &mut Cut::default)?;
            ours.run_for(Duration::from_secs(seconds.into()) + QUIET)?;
        }
        Ok(cases)
    }
}

impl Case {
    /// After how many seconds those became Active that did.
    fn took(&self) -> Vec<f64> {
        self.joined.iter().filter_map(|j| j.took).collect()
    }
}

/// What must hold.
fn requires(report: &mut Report, piece: &Piece, case: &Case, usual: Option<f64>) {
    if piece.system != System::Scribe {
        return;
    }
    let (all, took) = (case.joined.len(), case.took());
    let name = format!(
        "{} members, seed {}, {}",
        piece.silos, piece.seed, case.name
    );
    let (active, named) = (took.len(), case.joined.iter().filter(|j| j.named).count());
    match case.what {
        What::Nothing => report.must(
            active == all,
            format!("{name}: only {active} of {all} became Active"),
        ),
        What::Zone => {
            report.must(
                active == 0,
                format!("{name}: {active} of {all} became Active"),
            );
            report.must(
                named == all,
                format!("{name}: only {named} of {all} named one of these"),
            );
        }
        What::Tenth => report.must(
            1000 * active <= all,
            format!("{name}: {active} of {all} became Active"),
        ),
        What::Paused => {
            let most = quantile(&took, 1.0).filter(|_| active == all);
            let later = most.zip(usual).map(|(most, usual)| most - usual);
            report.must(
                later.is_some_and(|later| later <= DELAY),
                format!(
                    "{name}: {active} of {all} became Active, up to {} s later than usual",
                    number(later, 1)
                ),
            );
        }
    }
}

/// The addresses of processes.
fn addresses(ours: &Ours, of: &BTreeSet<ProcessId>) -> BTreeSet<SiloAddress> {
    of.iter()
        .filter_map(|silo| ours.cluster.address(*silo))
        .collect()
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use clap::Parser as _;

    use super::*;

    #[derive(clap::Parser)]
    struct Line {
        #[command(flatten)]
        connectivity: Connectivity,
    }

    fn cases(line: &str, silos: usize) -> Vec<Case> {
        let of = Line::try_parse_from(line.split(' ')).unwrap().connectivity;
        let piece = Piece {
            system: System::Scribe,
            silos,
            seed: 1,
        };
        of.cases(&piece).unwrap()
    }

    #[test]
    fn in_a_small_cluster_all_are_met_and_all_cuts_are_named() {
        let cases = cases("connectivity --quick --pauses 1", 40);
        assert_eq!(cases.len(), 1 + 3 * 2 + 1 + 1);
        for case in &cases {
            let (all, active) = (case.joined.len(), case.took().len());
            let named = case.joined.iter().filter(|j| j.named).count();
            let another = case.joined.iter().filter(|j| j.named_another).count();
            assert!(case.joined.iter().all(|j| j.set >= 40.0), "{}", case.name);
            match case.what {
                What::Nothing | What::Paused => assert_eq!(active, all, "{}", case.name),
                What::Zone | What::Tenth => {
                    assert_eq!((active, named, another), (0, all, 0), "{}", case.name);
                }
            }
        }
    }
}
