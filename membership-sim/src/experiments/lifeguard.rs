//! `lifeguard`: members that are blocked before they send and after they receive, for a while or again and again, as in the paper of that
//! name.

use std::collections::BTreeSet;
use std::time::Duration;

use membership_core::testing::Dice;

use super::{QUIET, draw, false_deaths, victims};
use crate::arena::{Member, Traffic, Trouble, settled};
use crate::figures::{Figures, mean, number, quantile};
use crate::report::{Common, Report};
use crate::systems::System;
use crate::work::side_by_side;

/// How long the anomaly goes on, and how long a single one may take to be noticed.
const RUN: Duration = Duration::from_secs(120);
/// After the anomaly, for what it caused.
const AFTER: Duration = Duration::from_secs(60);

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
    /// All cells of the paper's grid (432 of repeated anomalies, 54 of single ones) and not a sample of them, and chitchat in all of them:
    /// takes half a day
    #[arg(long)]
    pub full: bool,
}

/// One cell: so many members, blocked for so long, and again after so long; zero: never again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Cell {
    members: usize,
    on: u64,
    off: u64,
}

/// Of a system, in all its runs or only in those of chitchat: false deaths, those at healthy members, healthy members given up, and the
/// median of when the first one noticed a single anomaly.
type Sum = ((System, bool), [f64; 3], Option<f64>);

impl Cell {
    /// One run of chitchat takes a quarter of a minute of a core, and each is repeated: of the sample it gets what lies in the middle.
    const fn is_for_chitchat(self) -> bool {
        self.members == 16
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
    let on = pick(&[128, 512, 2_048, 8_192, 16_384, 32_768], &[512, 8_192, 32_768], &[32_768]);
    let off = pick(&[1, 4, 16, 64, 256, 1_024, 4_096, 16_384], &[4, 1_024, 16_384], &[1_024]);
    let mut cells = Vec::new();
    for members in members.into_iter().filter_map(|m| usize::try_from(m).ok()) {
        for on in &on {
            cells.push(Cell { members, on: *on, off: 0 });
            cells.extend(off.iter().map(|off| Cell { members, on: *on, off: *off }));
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
    all: usize,
    healthy: usize,
    victims: usize,
    blocked: usize,
    first: Vec<f64>,
    full: Vec<f64>,
    missed: usize,
    traffic: Traffic,
    member_seconds: f64,
}

impl Lifeguard {
    /// Runs it.
    ///
    /// # Errors
    /// When a world stands still.
    pub fn report(&self) -> Result<Report, Trouble> {
        let (seeds, cells) = (self.common.seeds_or(1), grid(self.full, self.common.quick));
        let mut pieces = Vec::new();
        for system in &self.systems {
            // Its choices do not repeat with the seed: repetitions show how far they go.
            let repeats = if *system == System::Chitchat && !self.common.quick { 5 } else { 1 };
            let all = *system != System::Chitchat || self.common.quick || self.full;
            let cells: Vec<Cell> = cells.iter().copied().filter(|cell| all || cell.is_for_chitchat()).collect();
            for repeat in 0..repeats {
                for seed in &seeds {
                    pieces.extend(cells.iter().map(|cell| Piece { system: *system, repeat, seed: *seed, cell: *cell }));
                }
            }
        }
        let outcomes = side_by_side("lifeguard", &pieces, self.common.threads(), |piece| self.one(piece.system, piece.seed, piece.cell));
        let mut results = Vec::new();
        for (piece, outcome) in pieces.iter().zip(outcomes) {
            results.push((*piece, outcome?));
        }
        Ok(self.judge(&results, cells.len() * seeds.len()))
    }

    fn one(&self, system: System, seed: u64, cell: Cell) -> Result<Outcome, Trouble> {
        let silos = usize::from(self.silos);
        let mut world = system.world(seed, silos)?;
        settled(&mut *world, silos, QUIET)?;
        let mut dice = Dice::new(seed ^ (cell.members as u64) << 48 ^ cell.on << 24 ^ cell.off);
        let blocked = draw(&mut dice, silos, cell.members);
        let well: BTreeSet<Member> = (0..silos).filter(|member| !blocked.contains(member)).collect();
        let sent = |world: &dyn crate::arena::Arena| (0..silos).fold(Traffic::default(), |sum, member| sum.plus(world.sent(member)));
        let (began, before) = (world.now(), sent(&*world));
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
        world.run_for(AFTER)?;
        let record = world.record();
        let mut outcome = Outcome { traffic, member_seconds, ..Outcome::default() };
        if cell.off == 0 {
            // Shorter ones are none that anybody is to notice.
            for member in blocked.iter().filter(|_| cell.on >= 16_384) {
                match record.first_death(*member, &well) {
                    Some(at) => outcome.first.push((at - began).as_secs_f64()),
                    None => outcome.missed += 1,
                }
                outcome.full.extend(record.known_to_all(*member, &well).map(|at| (at - began).as_secs_f64()));
            }
        }
        outcome.all = false_deaths(&record, &well).count();
        outcome.healthy = false_deaths(&record, &well).filter(|death| well.contains(&death.by)).count();
        outcome.victims = victims(false_deaths(&record, &well));
        outcome.blocked = victims(record.deaths.iter().filter(|death| blocked.contains(&death.of)));
        Ok(outcome)
    }

    #[allow(clippy::cast_precision_loss, reason = "figures for people")]
    fn judge(&self, results: &[(Piece, Outcome)], once: usize) -> Report {
        let mut report = Report::default();
        let mut again = Figures::new(&[
            "repeated anomalies",
            "runs",
            "false deaths",
            "at healthy",
            "healthy given up",
            "blocked given up",
            "messages/s",
            "KB/s",
        ]);
        let mut single = Figures::new(&[
            "one anomaly",
            "first: median s",
            "p99",
            "p99.9",
            "all: median s",
            "p99",
            "p99.9",
            "not noticed",
            "false deaths",
        ]);
        let cells_of = |system: System| -> Vec<Cell> { results.iter().filter(|(p, _)| p.system == system).map(|(p, _)| p.cell).collect() };
        // Those who ran fewer cells are compared in these.
        let shared = cells_of(System::Chitchat);
        let fewer = !shared.is_empty() && shared.len() < cells_of(System::Membership).len();
        let mut rows: Vec<(System, bool)> = self.systems.iter().map(|system| (*system, false)).collect();
        if fewer {
            rows.extend(self.systems.contains(&System::Membership).then_some((System::Membership, true)));
        }
        let mut sums: Vec<Sum> = Vec::new();
        for (system, only_shared) in &rows {
            let mine = || results.iter().filter(|(piece, _)| piece.system == *system && (!only_shared || shared.contains(&piece.cell)));
            let repeats = mine().map(|(piece, _)| piece.repeat).max().unwrap_or(0) + 1;
            let sum = |repeat: u32, what: fn(&Outcome) -> usize, repeated: bool| -> f64 {
                mine().filter(|(piece, _)| piece.repeat == repeat && (piece.cell.off > 0) == repeated).map(|(_, o)| what(o)).sum::<usize>()
                    as f64
            };
            let spread = |what: fn(&Outcome) -> usize, repeated: bool| {
                let sums: Vec<f64> = (0..repeats).map(|repeat| sum(repeat, what, repeated)).collect();
                let (least, most) = (sums.iter().copied().fold(f64::MAX, f64::min), sums.iter().copied().fold(0.0, f64::max));
                let text = if repeats == 1 { format!("{most:.0}") } else { format!("{least:.0} to {most:.0}") };
                (mean(&sums).unwrap_or(0.0), text)
            };
            let whole = || mine().filter(|(piece, _)| piece.cell.off > 0).map(|(_, o)| o);
            let seconds: f64 = whole().map(|o| o.member_seconds).sum();
            let load = |what: fn(&Outcome) -> u64| number((seconds > 0.0).then(|| whole().map(what).sum::<u64>() as f64 / seconds), 2);
            let kbytes = number((seconds > 0.0).then(|| whole().map(|o| o.traffic.bytes).sum::<u64>() as f64 / seconds / 1e3), 2);
            let runs = mine().filter(|(piece, _)| piece.repeat == 0 && piece.cell.off > 0).count();
            let (all, healthy, given_up) = (spread(|o| o.all, true), spread(|o| o.healthy, true), spread(|o| o.victims, true));
            let name = if *only_shared { format!("{}, only chitchat's runs", system.name()) } else { system.name().to_owned() };
            let runs = if repeats == 1 { runs.to_string() } else { format!("{repeats} × {runs}") };
            again.row(vec![
                name.clone(),
                runs,
                all.1,
                healthy.1,
                given_up.1,
                spread(|o| o.blocked, true).1,
                load(|o| o.traffic.messages),
                kbytes,
            ]);
            let first: Vec<f64> = mine().flat_map(|(_, o)| o.first.iter().copied()).collect();
            let full: Vec<f64> = mine().flat_map(|(_, o)| o.full.iter().copied()).collect();
            let cells = [(&first, 0.5), (&first, 0.99), (&first, 0.999), (&full, 0.5), (&full, 0.99), (&full, 0.999)];
            let mut row = vec![name];
            row.extend(cells.iter().map(|(values, q)| number(quantile(values, *q), 2)));
            row.extend([spread(|o| o.missed, false).1, spread(|o| o.all, false).1]);
            single.row(row);
            sums.push(((*system, *only_shared), [all.0, healthy.0, given_up.0], quantile(&first, 0.5)));
        }
        for (name, all, healthy) in [("SWIM, published", "339002", "1326"), ("Lifeguard, published", "5193", "25")] {
            let dash = || "–".to_owned();
            again.row(vec![
                name.to_owned(),
                "4320".to_owned(),
                all.to_owned(),
                healthy.to_owned(),
                dash(),
                dash(),
                "6.6".to_owned(),
                "2.4".to_owned(),
            ]);
        }
        for (name, row) in [
            ("SWIM, published", ["12.44", "16.96", "19.40", "12.90", "16.93", "20.17"]),
            ("Lifeguard, published", ["12.45", "17.90", "21.20", "12.91", "18.05", "21.68"]),
        ] {
            let mut cells = vec![name.to_owned()];
            cells.extend(row.iter().map(|cell| (*cell).to_owned()).chain(["–".to_owned(), "–".to_owned()]));
            single.row(cells);
        }
        report.table(format!("{} members, blocked and released again and again for 120 s", self.silos), again);
        report.table(format!("{} members, blocked once for 16.4 or 32.8 s", self.silos), single);
        report.note(format!(
            "{}{once} runs of each system with the same seeds, the same network and the same members blocked; 120 s of quiet before, 60 s \
             after. A false death is one member's belief that a member is dead that was never blocked; *at healthy*: held by a member \
             that was never blocked. *Given up*: different members that somebody believed dead. Load per member, over the time of the \
             anomaly. The published figures are of Consul agents on one machine (Lifeguard, arXiv 1707.00788, tables IV to VI; load \
             derived).",
            if self.full || self.common.quick {
                ""
            } else {
                "A sample of the paper's grid (1, 8, 16 and 32 members; 0.5, 8.2 and 32.8 s on; never again, or 4 ms, 1 s and 16.4 s off), \
                 and of that for chitchat, which is slow to simulate, only 8 and \
                 16 members, twice; `--full` takes everything. "
            }
        ));
        self.verdict(&sums, &mut report);
        report
    }

    fn verdict(&self, sums: &[Sum], report: &mut Report) {
        let ours = |only_shared| sums.iter().find(|(of, ..)| *of == (System::Membership, only_shared));
        for ((system, _), theirs, their_first) in sums.iter().filter(|((s, _), ..)| matches!(s, System::Foca | System::Chitchat)) {
            let fewer = if *system == System::Chitchat { ours(true) } else { None };
            let Some((_, ours, first)) = fewer.or_else(|| ours(false)) else { return };
            for (what, (mine, theirs)) in
                ["false deaths", "false deaths at healthy members", "healthy members given up"].iter().zip(ours.iter().zip(theirs))
            {
                report.must(mine <= theirs, format!("{what}: {mine:.0}, {} has {theirs:.1}", system.name()));
            }
            if *system == System::Foca {
                let no_later = first.zip(*their_first).is_none_or(|(mine, theirs)| mine <= theirs);
                let (mine, theirs) = (number(*first, 2), number(*their_first, 2));
                report.must(no_later, format!("median first declared death {mine} s, foca's {theirs} s"));
            }
        }
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
}
