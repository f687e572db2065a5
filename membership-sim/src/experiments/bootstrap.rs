//! `bootstrap`: one member, then all others within half a second.

use std::ops::Range;
use std::time::Duration;

use super::{each, large, unique};
use crate::arena::{Arena, Member, Trouble};
use crate::figures::{Figures, number};
use crate::ours::{Make, Ours};
use crate::report::{Common, Report};
use crate::systems::System;

/// All others start within so long.
const SPREAD: Duration = Duration::from_millis(500);
/// So long it may take.
const AT_MOST: Duration = Duration::from_secs(900);

/// One member, then all others at once: when does everybody see everybody?
#[derive(clap::Args, Clone, Debug)]
pub struct Bootstrap {
    #[command(flatten)]
    pub common: Common,
    /// Members
    #[arg(long, value_delimiter = ',', default_values_t = [100, 500, 1000, 2000], value_parser = clap::value_parser!(u16).range(2..=5000))]
    pub silos: Vec<u16>,
    /// How long a call to the table takes there and back, in milliseconds
    #[arg(long, value_delimiter = ',', default_values_t = [5, 20, 50], value_parser = clap::value_parser!(u64).range(1..=5000))]
    pub table: Vec<u64>,
    /// Which systems; those without a table run once for each size
    #[arg(long, value_enum, value_delimiter = ',', default_values_t = [System::Membership, System::Foca])]
    pub systems: Vec<System>,
    /// Over as many rows of silos that crashed, too; up to so many members: by default 100, with `--full` 1000
    #[arg(long)]
    pub ghosts: Option<u16>,
    /// Every size with every table, with and without ghosts, and not a sample: the largest, and ghosts, with the middle table only. Takes
    /// hours
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
}

struct Outcome {
    took: Option<f64>,
    sizes: usize,
    table: Option<[u64; 5]>,
}

/// Published, by number of members: ZooKeeper, memberlist, Rapid; seconds, and different sizes seen.
const PUBLISHED: [(usize, [&str; 3], [&str; 3]); 3] = [
    (1000, ["33", "45", "30"], ["1000", "901", "4"]),
    (1500, ["80", "68", "40"], ["1500", "1383", "8"]),
    (2000, ["165", "97", "53"], ["2000", "1858", "4"]),
];

impl Bootstrap {
    /// Runs it.
    ///
    /// # Errors
    /// When a world stands still.
    pub fn report(&self) -> Result<Report, Trouble> {
        let sizes: Vec<usize> = if self.common.quick { vec![20] } else { unique(&self.silos).into_iter().map(usize::from).collect() };
        let (tables, systems) = (unique(&self.table), unique(&self.systems));
        let ghosts = usize::from(self.ghosts.unwrap_or(if self.full { 1000 } else { 100 }));
        let mut pieces = Vec::new();
        for silos in sizes {
            for system in &systems {
                for seed in self.common.seeds_or(1) {
                    let asked: Vec<Option<u64>> = if matches!(system, System::Foca | System::Chitchat) {
                        vec![None]
                    } else {
                        tables.iter().map(|ms| Some(*ms)).collect()
                    };
                    let middle = tables.get(tables.len() / 2).copied();
                    for table in asked {
                        let sampled = self.full || table == middle;
                        if table.is_none() || silos <= 1000 || sampled {
                            pieces.push(Piece { system: *system, silos, table, ghosts: false, seed });
                        }
                        if table.is_some() && silos <= ghosts && sampled {
                            pieces.push(Piece { system: *system, silos, table, ghosts: true, seed });
                        }
                    }
                }
            }
        }
        let outcomes = each("bootstrap", &pieces, self.common.threads(), |piece| piece.seed, one)?;
        let mut report = Report::default();
        let mut figures = Figures::new(&[
            "system",
            "members",
            "ghosts",
            "table ms",
            "all see all s",
            "sizes seen",
            "commits",
            "conflicts",
            "reads",
            "rows read",
            "MB read",
        ]);
        for (piece, o) in pieces.iter().zip(outcomes) {
            let mut row = vec![
                piece.system.name().to_owned(),
                piece.silos.to_string(),
                if piece.ghosts { piece.silos } else { 0 }.to_string(),
                piece.table.map_or_else(|| "–".to_owned(), |ms| ms.to_string()),
                number(o.took, 1),
                o.sizes.to_string(),
            ];
            row.extend(o.table.map_or_else(|| vec!["–".to_owned(); 5], |counts| counts.iter().map(u64::to_string).collect()));
            figures.row(row);
            if piece.system == System::Membership {
                let name = format!("{} members, table {} ms, seed {}", piece.silos, piece.table.unwrap_or(0), piece.seed);
                report.must(o.took.is_some(), format!("{name}: not all saw all within {} s", AT_MOST.as_secs()));
            }
        }
        for (members, seconds, seen) in PUBLISHED {
            for ((name, seconds), seen) in
                ["ZooKeeper, published", "memberlist, published", "Rapid, published"].iter().zip(seconds).zip(seen)
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
                ]);
            }
        }
        report.table("One member, ten seconds later all others within 0.5 s, until all see all", figures);
        report.note(format!("Settings: {}.", large()));
        report.note(
            "Unless `--full` is given: above 1,000 members, and with ghosts, one latency of the table only, and ghosts up to 100. Time from the start of the others; with ghosts, the same over as many rows of silos that crashed at one moment 5 s before. \
             *Sizes seen*: different sizes of the cluster that anybody saw. *Rows read*: with whole tables, by reads and with \
             conflicts. \
             Published: Rapid, ATC 2018, figure 5 (read off a plot) and table 1.",
        );
        Ok(report)
    }
}

fn one(piece: &Piece) -> Result<Outcome, Trouble> {
    let Some(table) = piece.table else {
        let mut world = piece.system.world(piece.seed, piece.silos)?;
        world.start(1, Duration::ZERO);
        return grow(&mut *world, piece.silos);
    };
    let (config, rows_per_commit) = piece.system.config(piece.silos).ok_or_else(|| Trouble::new("no table"))?;
    let way = Duration::from_millis(table) / 2;
    let mut ours: Ours =
        Make { rows_per_commit, table: (way.mul_f64(0.8), way.mul_f64(1.2)), bytes: false, ..Make::new(piece.seed, config) }.build()?;
    ours.supervised = false;
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
    let took = super::until_agreed(&mut ours, piece.silos, AT_MOST)?.map(|_| (ours.now() - began).as_secs_f64());
    let (stats, traffic) = (*ours.cluster.stats(), ours.cluster.table_traffic().since(&before.1));
    let counts = [
        stats.commits - before.0.commits,
        stats.conflicts - before.0.conflicts,
        traffic.reads + traffic.unchanged,
        traffic.rows_read,
        traffic.bytes_read / 1_000_000,
    ];
    Ok(Outcome { took, sizes: ours.record().sizes.len(), table: Some(counts) })
}

/// Ten seconds later, all others.
fn others(world: &mut dyn Arena, silos: usize) -> Result<Range<Member>, Trouble> {
    world.run_for(Duration::from_secs(10))?;
    Ok(world.start(silos - 1, SPREAD))
}

/// Starts all others, and waits until everybody counts everybody.
fn grow(world: &mut dyn Arena, silos: usize) -> Result<Outcome, Trouble> {
    others(world, silos)?;
    let began = world.now() - SPREAD;
    let mut took = None;
    while took.is_none() && world.now() < began + AT_MOST {
        world.run_for(Duration::from_millis(500))?;
        took = world.record().all_count(0..silos, silos);
    }
    let sizes = world.record().sizes.len();
    Ok(Outcome { took: took.map(|at| at.saturating_sub(began).as_secs_f64()), sizes, table: None })
}
