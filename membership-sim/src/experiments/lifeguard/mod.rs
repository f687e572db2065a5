//! `lifeguard`: members that are blocked before they send and after they receive, once or
//! repeatedly, as in the paper of that name.

mod judge;
mod runs;

use std::collections::BTreeSet;
use std::time::Duration;

use membership_testing::{Rng, TableTraffic};

use super::{QUIET, draw, each, false_deaths, repeats, unique, victims};
use crate::arena::{Arena, Failure, Member, Traffic, settled};
use crate::report::{Common, Report};
use crate::systems::System;

/// The duration of the repeated anomaly, and the time within which a single anomaly must be
/// detected.
const RUN: Duration = Duration::from_secs(120);
/// The time after the anomaly in which its consequences count.
const AFTER: Duration = Duration::from_secs(60);
/// A single anomaly that is shorter than this many milliseconds need not be detected.
const NOTICEABLE: u64 = 16_384;
/// The repetitions of each cell, each with a seed of its own, as in the paper.
const REPETITIONS: u64 = 10;

/// Slow members: which are declared dead, and how soon
#[derive(clap::Args, Clone, Debug)]
pub struct Lifeguard {
    #[command(flatten)]
    pub common: Common,
    /// The number of members
    #[arg(long, default_value_t = 128, value_parser = clap::value_parser!(u16).range(40..=1000))]
    pub silos: u16,
    /// The systems
    #[arg(long, value_enum, value_delimiter = ',', default_values_t = [System::Membership, System::Gossip, System::Foca, System::Chitchat])]
    pub systems: Vec<System>,
    /// Run all cells of the paper's grid (432 of repeated anomalies, 54 of single ones) instead of
    /// a sample, chitchat in all of them, with ten seeds: takes days of a core, nearly all of them
    /// for chitchat
    #[arg(long)]
    pub full: bool,
}

/// One cell: the number of blocked members, how long they are blocked, and how long they are
/// released in between; zero: blocked once. Times are in milliseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Cell {
    members: usize,
    on: u64,
    off: u64,
}

impl Cell {
    /// One run of chitchat takes a quarter of a minute of a core, and each is repeated, so it runs
    /// only the cells in the middle of the sample.
    const fn is_for_chitchat(self) -> bool {
        self.members == 16
    }

    /// The random number generator of a run, equal for every system.
    fn rng(self, seed: u64) -> Rng {
        Rng::new(seed ^ (self.members as u64) << 48 ^ self.on << 24 ^ self.off)
    }
}

fn grid(full: bool, quick: bool) -> Vec<Cell> {
    let pick = |all: &[u64], sample: &[u64], least: &[u64]| {
        if quick {
            least.to_vec()
        } else if full {
            all.to_vec()
        } else {
            sample.to_vec()
        }
    };
    let members = pick(&[1, 4, 8, 12, 16, 20, 24, 28, 32], &[1, 8, 16, 32], &[4]);
    let on = pick(
        &[128, 512, 2_048, 8_192, 16_384, 32_768],
        &[512, 8_192, 32_768],
        &[32_768],
    );
    let off = pick(
        &[1, 4, 16, 64, 256, 1_024, 4_096, 16_384],
        &[4, 1_024, 16_384],
        &[1_024],
    );
    let mut cells = Vec::new();
    for members in members.into_iter().filter_map(|m| usize::try_from(m).ok()) {
        for on in &on {
            cells.push(Cell {
                members,
                on: *on,
                off: 0,
            });
            cells.extend(off.iter().map(|off| Cell {
                members,
                on: *on,
                off: *off,
            }));
        }
    }
    cells
}

/// One run: a repetition of a cell with a seed.
#[derive(Clone, Copy, Debug)]
struct Piece {
    system: System,
    repeat: u32,
    seed: u64,
    cell: Cell,
}

#[derive(Clone, Debug, Default)]
struct Outcome {
    /// False deaths; of these, declared by members that were never blocked.
    all: usize,
    healthy: usize,
    victims: usize,
    blocked: usize,
    /// For each member that was blocked once for long enough: seconds until the first member
    /// detected it, and until all had; infinite if never.
    first: Vec<f64>,
    full: Vec<f64>,
    traffic: Traffic,
    table: Option<TableTraffic>,
    member_seconds: f64,
}

impl Lifeguard {
    /// Runs the experiment.
    ///
    /// # Errors
    /// When a simulation stops.
    pub fn report(&self) -> Result<Report, Failure> {
        let seeds = self
            .common
            .seeds_or(if self.full { REPETITIONS } else { 1 });
        let (cells, systems) = (grid(self.full, self.common.quick), unique(&self.systems));
        let mut pieces = Vec::new();
        for system in &systems {
            let all = *system != System::Chitchat || self.common.quick || self.full;
            let cells: Vec<Cell> = cells
                .iter()
                .copied()
                .filter(|cell| all || cell.is_for_chitchat())
                .collect();
            for repeat in 0..repeats(*system, &self.common) {
                for seed in &seeds {
                    pieces.extend(cells.iter().map(|cell| Piece {
                        system: *system,
                        repeat,
                        seed: *seed,
                        cell: *cell,
                    }));
                }
            }
        }
        let threads = self.common.threads();
        let outcomes = each(
            "lifeguard",
            &pieces,
            threads,
            |piece| piece.seed,
            |piece| self.one(piece),
        )?;
        let results: Vec<(Piece, Outcome)> = pieces.into_iter().zip(outcomes).collect();
        Ok(judge::judge(self.silos, &systems, &results))
    }

    fn one(&self, piece: &Piece) -> Result<Outcome, Failure> {
        let (silos, cell) = (usize::from(self.silos), piece.cell);
        let mut rng = cell.rng(piece.seed);
        let blocked = draw(&mut rng, silos, cell.members);
        let mut world = piece.system.world(rng.next_u64(), silos)?;
        settled(&mut *world, silos, QUIET)?;
        let well: BTreeSet<Member> = (0..silos)
            .filter(|member| !blocked.contains(member))
            .collect();
        let sent = |world: &dyn Arena| {
            (0..silos).fold(Traffic::default(), |sum, member| {
                sum.plus(world.sent(member))
            })
        };
        let (began, before, asked) = (world.now(), sent(&*world), world.table());
        loop {
            for member in &blocked {
                world.hold(*member, Duration::from_millis(cell.on));
            }
            if cell.off == 0 {
                world.run_for(RUN)?;
                break;
            }
            world.run_for(Duration::from_millis(cell.on + cell.off))?;
            if world.now() >= began + RUN {
                break;
            }
        }
        let member_seconds = (world.now() - began).as_secs_f64() * f64::from(self.silos);
        let traffic = sent(&*world).since(before);
        let table = world.table().zip(asked).map(|(now, then)| now.since(&then));
        world.run_for(AFTER)?;
        let record = world.record();
        let mut outcome = Outcome {
            traffic,
            table,
            member_seconds,
            ..Outcome::default()
        };
        if cell.off == 0 && cell.on >= NOTICEABLE {
            let after =
                |at: Option<Duration>| at.map_or(f64::INFINITY, |at| (at - began).as_secs_f64());
            for member in &blocked {
                outcome
                    .first
                    .push(after(record.first_death(*member, &well)));
                outcome
                    .full
                    .push(after(record.known_to_all(*member, &well)));
            }
        }
        outcome.all = false_deaths(&record, &well).count();
        outcome.healthy = false_deaths(&record, &well)
            .filter(|death| well.contains(&death.by))
            .count();
        outcome.victims = victims(false_deaths(&record, &well));
        outcome.blocked = victims(
            record
                .deaths
                .iter()
                .filter(|death| blocked.contains(&death.of)),
        );
        Ok(outcome)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_whole_grid_equals_the_papers_grid() {
        let cells = grid(true, false);
        assert_eq!(cells.iter().filter(|cell| cell.off > 0).count(), 432);
        assert_eq!(cells.iter().filter(|cell| cell.off == 0).count(), 54);
    }

    #[test]
    fn each_cell_has_a_seed_of_its_own() {
        let cells = grid(true, false);
        let first = |cell: &Cell| (cell.rng(1).next_u64(), cell.rng(2).next_u64());
        assert_eq!(
            cells.iter().map(first).collect::<BTreeSet<_>>().len(),
            cells.len()
        );
    }
}
