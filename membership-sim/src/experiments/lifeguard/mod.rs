//! `lifeguard`: members that are blocked before they send and after they receive, for a while or again and again, as in the paper of that
//! name.

mod judge;

use std::collections::BTreeSet;
use std::time::Duration;

use membership_core::testing::{Dice, TableTraffic};

use super::{QUIET, draw, each, false_deaths, repeats, unique, victims};
use crate::arena::{Arena, Member, Traffic, Trouble, settled};
use crate::report::{Common, Report};
use crate::systems::System;

/// How long the anomaly goes on, and how long a single one may take to be noticed.
const RUN: Duration = Duration::from_secs(120);
/// After the anomaly, for what it caused.
const AFTER: Duration = Duration::from_secs(60);
/// A single anomaly of fewer milliseconds is none that anybody is to notice.
const NOTICEABLE: u64 = 16_384;
/// So many repetitions of each cell, each with a seed of its own, as in the paper.
const REPETITIONS: u64 = 10;

/// Slow members: who is taken for dead, and how soon.
#[derive(clap::Args, Clone, Debug)]
pub struct Lifeguard {
    #[command(flatten)]
    pub common: Common,
    /// Members
    #[arg(long, default_value_t = 128, value_parser = clap::value_parser!(u16).range(40..=1000))]
    pub silos: u16,
    /// Which systems
    #[arg(long, value_enum, value_delimiter = ',', default_values_t = [System::Membership, System::Foca, System::Chitchat])]
    pub systems: Vec<System>,
    /// All cells of the paper's grid (432 of repeated anomalies, 54 of single ones) and not a sample of them, chitchat in all of them, and
    /// ten seeds: takes days of a core, nearly all of them for chitchat
    #[arg(long)]
    pub full: bool,
}

/// One cell: so many members, blocked for so long, and again after so long; zero: never again. Times are in milliseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Cell {
    members: usize,
    on: u64,
    off: u64,
}

impl Cell {
    /// One run of chitchat takes a quarter of a minute of a core, and each is repeated: of the sample it gets what lies in the middle.
    const fn is_for_chitchat(self) -> bool {
        self.members == 16
    }

    /// What decides the dice of a run: equal for every system.
    fn dice(self, seed: u64) -> Dice {
        Dice::new(seed ^ (self.members as u64) << 48 ^ self.on << 24 ^ self.off)
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

/// One run: the so-and-so-manieth repetition of a cell with a seed.
#[derive(Clone, Copy, Debug)]
struct Piece {
    system: System,
    repeat: u32,
    seed: u64,
    cell: Cell,
}

#[derive(Clone, Debug, Default)]
struct Outcome {
    /// False deaths; of these, held by members that were never blocked.
    all: usize,
    healthy: usize,
    victims: usize,
    blocked: usize,
    /// Of each member that was blocked once for long enough: seconds until somebody noticed, and until everybody had; infinite if never.
    first: Vec<f64>,
    full: Vec<f64>,
    traffic: Traffic,
    table: Option<TableTraffic>,
    member_seconds: f64,
}

impl Lifeguard {
    /// Runs it.
    ///
    /// # Errors
    /// When a world stands still.
    pub fn report(&self) -> Result<Report, Trouble> {
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

    fn one(&self, piece: &Piece) -> Result<Outcome, Trouble> {
        let (silos, cell) = (usize::from(self.silos), piece.cell);
        let mut dice = cell.dice(piece.seed);
        let blocked = draw(&mut dice, silos, cell.members);
        let mut world = piece.system.world(dice.number(), silos)?;
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
    fn the_whole_grid_is_the_papers() {
        let cells = grid(true, false);
        assert_eq!(cells.iter().filter(|cell| cell.off > 0).count(), 432);
        assert_eq!(cells.iter().filter(|cell| cell.off == 0).count(), 54);
    }

    #[test]
    fn no_two_cells_begin_in_the_same_world() {
        let cells = grid(true, false);
        let first = |cell: &Cell| (cell.dice(1).number(), cell.dice(2).number());
        assert_eq!(
            cells.iter().map(first).collect::<BTreeSet<_>>().len(),
            cells.len()
        );
    }
}
