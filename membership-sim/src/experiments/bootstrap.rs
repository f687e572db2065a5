//! `bootstrap`: one member starts, then all others within half a second.

mod disturbed;
mod phases;

use std::ops::Range;
use std::time::Duration;

use membership_core::TableLimits;

use self::disturbed::Variant;
use self::phases::{Phase, counts, phase};
use super::{WITHOUT_CHITCHAT, each, large, unique};
use crate::arena::{Arena, Failure, Member};
use crate::figures::{Figures, number};
use crate::ours::{Make, Ours};
use crate::report::{Common, Report};
use crate::systems::System;

/// The time within which all others start.
const SPREAD: Duration = Duration::from_millis(500);
/// The longest time that it may take.
const AT_MOST: Duration = Duration::from_secs(900);
/// The longest time that it may take up to a thousand members without a store, in seconds.
const WITHOUT_STORE: f64 = 30.0;

/// One member starts, then all others at once: when does each member see all members?
#[derive(clap::Args, Clone, Debug)]
pub struct Bootstrap {
    #[command(flatten)]
    pub common: Common,
    /// The numbers of members: by default 100, 500, 1000 and 2000, with `--full` also 1500
    #[arg(long, value_delimiter = ',', value_parser = clap::value_parser!(u16).range(2..=10_000))]
    pub silos: Vec<u16>,
    /// The round-trip time of a table call, in milliseconds
    #[arg(long, value_delimiter = ',', default_values_t = [5, 20, 50], value_parser = clap::value_parser!(u64).range(1..=5000))]
    pub table: Vec<u64>,
    /// The systems; those without a table run once for each size
    #[arg(long, value_enum, value_delimiter = ',', default_values_t = [System::Membership, System::Gossip, System::Foca])]
    pub systems: Vec<System>,
    /// Also start over as many rows of crashed silos, up to this many members: by default 100, with
    /// `--full` 2000
    #[arg(long)]
    pub ghosts: Option<u16>,
    /// Also start while the silo that writes for the others is disturbed, and without that for
    /// comparison; for systems with a table
    #[arg(long, value_enum, value_delimiter = ',')]
    pub variants: Vec<Variant>,
    /// The largest number of rows in one commit, as the store takes it
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u16).range(2..=1000))]
    pub batch: u16,
    /// How many rows the store reads or writes in a second, one call after the other: 200000 is a
    /// usual server; by default as many as are asked for
    #[arg(long, conflicts_with = "variants", value_parser = clap::value_parser!(u32).range(1_000..=100_000_000))]
    pub rows_per_second: Option<u32>,
    /// Also print what happened by when, in steps of this many milliseconds
    #[arg(long, value_parser = clap::value_parser!(u64).range(10..=10_000))]
    pub phases: Option<u64>,
    /// Run every size with every table, with and without ghosts, instead of a sample (the largest
    /// size, and ghosts, with the middle table only). Takes many hours
    #[arg(long)]
    pub full: bool,
}

#[derive(Clone, Copy, Debug)]
struct Piece {
    system: System,
    silos: usize,
    table: Option<u64>,
    ghosts: bool,
    seed: u64,
    /// The largest number of rows in one commit.
    batch: usize,
    /// How many rows the store reads or writes in a second.
    rate: Option<f64>,
    /// The time between two phases.
    phases: Option<Duration>,
}

struct Outcome {
    took: Option<f64>,
    sizes: usize,
    table: Option<[u64; 7]>,
    phases: Vec<Phase>,
}

/// The published figures, by number of members: ZooKeeper, memberlist, Rapid; seconds, and
/// different sizes seen.
const PUBLISHED: [(usize, [&str; 3], [&str; 3]); 3] = [
    (1000, ["33", "45", "30"], ["1000", "901", "4"]),
    (1500, ["80", "68", "40"], ["1500", "1383", "8"]),
    (2000, ["165", "97", "53"], ["2000", "1858", "4"]),
];

/// The default limit for ghosts: a join over as many rows of crashed silos takes long to simulate.
const FEW_GHOSTS: u16 = 100;
const MOST_GHOSTS: u16 = 2000;

impl Bootstrap {
    fn sizes(&self) -> Vec<usize> {
        let sizes = match (self.common.quick, self.full) {
            (true, _) => vec![20],
            _ if !self.silos.is_empty() => self.silos.clone(),
            (_, true) => vec![100, 500, 1000, 1500, 2000],
            (_, false) => vec![100, 500, 1000, 2000],
        };
        unique(&sizes).into_iter().map(usize::from).collect()
    }

    fn rate(&self) -> Option<f64> {
        self.rows_per_second.map(f64::from)
    }

    /// Runs the experiment.
    ///
    /// # Errors
    /// When a simulation stops.
    pub fn report(&self) -> Result<Report, Failure> {
        let sizes = self.sizes();
        let (tables, systems) = (unique(&self.table), unique(&self.systems));
        let ghosts =
            usize::from(
                self.ghosts
                    .unwrap_or(if self.full { MOST_GHOSTS } else { FEW_GHOSTS }),
            );
        let mut pieces = Vec::new();
        for silos in sizes.iter().copied() {
            for system in &systems {
                for seed in self.common.seeds_or(1) {
                    let asked: Vec<Option<u64>> = if !system.has_table() {
                        vec![None]
                    } else {
                        tables.iter().map(|ms| Some(*ms)).collect()
                    };
                    let middle = tables.get(tables.len() / 2).copied();
                    for table in asked {
                        let sampled = self.full || table == middle;
                        if table.is_none() || silos <= 1000 || sampled {
                            pieces.push(Piece {
                                system: *system,
                                silos,
                                table,
                                ghosts: false,
                                seed,
                                batch: usize::from(self.batch),
                                rate: self.rate(),
                                phases: self.phases.map(Duration::from_millis),
                            });
                        }
                        if table.is_some() && silos <= ghosts && sampled {
                            pieces.push(Piece {
                                system: *system,
                                silos,
                                table,
                                ghosts: true,
                                seed,
                                batch: usize::from(self.batch),
                                rate: self.rate(),
                                phases: self.phases.map(Duration::from_millis),
                            });
                        }
                    }
                }
            }
        }
        let outcomes = each(
            "bootstrap",
            &pieces,
            self.common.threads(),
            |piece| piece.seed,
            one,
        )?;
        let mut report = Report::default();
        let mut figures = Figures::new(
            4,
            &[
                "system",
                "members",
                "ghosts",
                "table ms",
                "all see all s",
                "sizes seen",
                "commits",
                "conflicts",
                "reads",
                "of one row",
                "rows read",
                "heartbeats read",
                "MB read",
            ],
        );
        let mut by_phase = Figures::new(
            4,
            &[
                "seed",
                "members",
                "ghosts",
                "table ms",
                "at s",
                "rows",
                "Active",
                "current",
                "commits",
                "conflicts",
                "reads",
                "of one row",
                "rows read",
            ],
        );
        for (piece, o) in pieces.iter().zip(outcomes) {
            for phase in &o.phases {
                let ghosts = if piece.ghosts { piece.silos } else { 0 };
                let table = piece.table.unwrap_or(0);
                by_phase.row(phase.cells(piece.seed, piece.silos, ghosts, table));
            }
            let mut row = vec![
                piece.system.name().to_owned(),
                piece.silos.to_string(),
                if piece.ghosts { piece.silos } else { 0 }.to_string(),
                piece
                    .table
                    .map_or_else(|| "–".to_owned(), |ms| ms.to_string()),
                number(o.took, 1),
                o.sizes.to_string(),
            ];
            row.extend(o.table.map_or_else(
                || vec!["–".to_owned(); 7],
                |counts| counts.iter().map(u64::to_string).collect(),
            ));
            figures.row(row);
            if piece.system == System::Gossip && piece.silos <= 1000 {
                let (silos, seed) = (piece.silos, piece.seed);
                report.must(
                    o.took.is_some_and(|took| took <= WITHOUT_STORE),
                    format!("gossip, {silos} members, seed {seed}: not all saw all within {WITHOUT_STORE} s"),
                );
            }
            if piece.system == System::Membership {
                let name = format!(
                    "{} members, table {} ms, seed {}",
                    piece.silos,
                    piece.table.unwrap_or(0),
                    piece.seed
                );
                report.must(
                    o.took.is_some(),
                    format!("{name}: not all saw all within {} s", AT_MOST.as_secs()),
                );
            }
        }
        let (disturbed, outcomes) = disturbed::run(self, &sizes)?;
        for (piece, o) in disturbed.iter().zip(&outcomes) {
            for phase in &o.phases {
                by_phase.row(phase.cells(piece.seed, piece.silos, 0, piece.table));
            }
        }
        // Only for sizes that were run.
        for (members, seconds, seen) in PUBLISHED
            .into_iter()
            .filter(|(members, ..)| sizes.contains(members))
        {
            for ((name, seconds), seen) in [
                "ZooKeeper, published",
                "memberlist, published",
                "Rapid, published",
            ]
            .iter()
            .zip(seconds)
            .zip(seen)
            {
                let dash = || "–".to_owned();
                figures.row(vec![
                    (*name).to_owned(),
                    members.to_string(),
                    "0".to_owned(),
                    dash(),
                    seconds.to_owned(),
                    seen.to_owned(),
                    dash(),
                    dash(),
                    dash(),
                    dash(),
                    dash(),
                    dash(),
                    dash(),
                ]);
            }
        }
        report.table(
            "One member starts, ten seconds later all others within 0.5 s; until all members see \
             all members",
            figures,
        );
        if !disturbed.is_empty() {
            disturbed::add(&mut report, &disturbed, &outcomes);
        }
        if self.phases.is_some() {
            report.table("What had happened by when", by_phase);
        }
        report.note(format!("Settings: {}.", large()));
        if let Some(rate) = self.rows_per_second {
            report.note(format!(
                "The store reads and writes {rate} rows per second, one call after the other; \
                 the version row and each heartbeat count as one."
            ));
        }
        let sample = if self.full {
            String::new()
        } else {
            format!(
                "Above 1,000 members, and with ghosts, the sample has only one latency of the \
                 table, and at most {ghosts} ghosts; `--full` runs everything. "
            )
        };
        report.note(format!(
            "{sample}Times are from the start of the others. *Ghosts*: rows in the table of \
             silos that crashed at one moment 5 s before. *Sizes seen*: distinct sizes of the \
             cluster that any member saw. *Rows read*: in whole tables, by reads and with \
             conflicts; *of one row*: reads of the version row and at most one other; *heartbeats read*: one for each row with every read. {WITHOUT_CHITCHAT} Published: Rapid, ATC 2018, figure 5 (read \
             off a plot) and table 1."
        ));
        Ok(report)
    }
}

fn one(piece: &Piece) -> Result<Outcome, Failure> {
    let Some(table) = piece.table else {
        let mut world = piece.system.world(piece.seed, piece.silos)?;
        world.start(1, Duration::ZERO);
        return grow(&mut *world, piece.silos);
    };
    let way = Duration::from_millis(table) / 2;
    let make = piece.system.make(piece.seed, piece.silos)?;
    let mut ours: Ours = Make {
        table: (way.mul_f64(0.8), way.mul_f64(1.2)),
        bytes: false,
        ..make
    }
    .build_with(|builder| builder.limits(limits(piece)))?;
    ours.supervised = false;
    if piece.rate.is_some() {
        ours.cluster.table_rate(piece.rate);
    }
    if piece.ghosts {
        crate::arena::settled(&mut ours, piece.silos, Duration::from_secs(60))?;
        for member in 0..piece.silos {
            ours.kill(member);
        }
        ours.run_for(Duration::from_secs(5))?;
        ours.forget();
    }
    ours.start(1, Duration::ZERO);
    let before = (*ours.cluster.stats(), ours.cluster.table_traffic());
    others(&mut ours, piece.silos)?;
    let began = ours.now() - SPREAD;
    let mut phases = Vec::new();
    let mut agreed = None;
    while agreed.is_none() && ours.now() < began + AT_MOST {
        if piece.phases.is_some() {
            phases.push(phase(&ours, began, &before));
        }
        let step = piece.phases.unwrap_or(AT_MOST);
        agreed = super::until_agreed(&mut ours, piece.silos, step)?;
    }
    let took = agreed.map(|_| (ours.now() - began).as_secs_f64());
    if piece.phases.is_some() {
        phases.push(phase(&ours, began, &before));
    }
    Ok(Outcome {
        took,
        sizes: ours.record().sizes.len(),
        table: Some(counts(&ours, &before)),
        phases,
    })
}

/// What the store takes: as many rows as all members have, and those that crashed before.
fn limits(piece: &Piece) -> TableLimits {
    let rows = (piece.silos * 2).max(10_000);
    TableLimits::new(piece.batch, 64 << 10, 1 << 20, rows)
}

/// Starts all others ten seconds later.
fn others(world: &mut dyn Arena, silos: usize) -> Result<Range<Member>, Failure> {
    world.run_for(Duration::from_secs(10))?;
    Ok(world.start(silos - 1, SPREAD))
}

/// Starts all others, and waits until every member counts all members.
fn grow(world: &mut dyn Arena, silos: usize) -> Result<Outcome, Failure> {
    others(world, silos)?;
    let began = world.now() - SPREAD;
    let mut took = None;
    while took.is_none() && world.now() < began + AT_MOST {
        world.run_for(Duration::from_millis(500))?;
        took = world.record().all_count(0..silos, silos);
    }
    let sizes = world.record().sizes.len();
    Ok(Outcome {
        took: took.map(|at| at.saturating_sub(began).as_secs_f64()),
        sizes,
        table: None,
        phases: Vec::new(),
    })
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use clap::Parser as _;

    use super::*;

    #[derive(clap::Parser)]
    struct Line {
        #[command(flatten)]
        bootstrap: Bootstrap,
    }

    #[test]
    fn every_published_size_has_a_counterpart_in_the_full_one() {
        let sizes = |line: &str| {
            Line::try_parse_from(line.split(' '))
                .unwrap()
                .bootstrap
                .sizes()
        };
        assert!(
            PUBLISHED
                .iter()
                .all(|(members, ..)| sizes("bootstrap --full").contains(members))
        );
        assert_eq!(sizes("bootstrap"), [100, 500, 1000, 2000]);
        assert_eq!(sizes("bootstrap --full --silos 30,20,30"), [30, 20]);
        assert_eq!(sizes("bootstrap --quick"), [20]);
    }
}
