//! `dissemination`: one commit of many rows in a settled cluster, of which a part has just died
//! unnoticed.

mod watch;

use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

use membership_core::protocol::{Command, RequestId};
use membership_core::{SiloAddress, TableLimits};
use membership_testing::{ProcessId, Rng};

use self::watch::{News, Watch};
use super::formed::formed;
use super::{draw, each, unique};
use crate::arena::{Arena as _, Failure};
use crate::figures::{Figures, mean, number, quantile};
use crate::ours::{Make, Ours};
use crate::report::{Common, Report};
use crate::systems::System;

/// The time without faults before the commit.
const QUIET: Duration = Duration::from_secs(20);
/// How long is counted at least after the commit: those that were missed ask by then, and nobody has been
/// declared dead yet.
const COUNTED: Duration = Duration::from_secs(2);
/// The longest time until all know.
const AT_MOST: Duration = Duration::from_secs(60);
/// The most rows of a table.
const ROWS: usize = 20_000;
/// From this number of bytes on a commit is announced, and its rows are asked for.
const LARGE: f64 = 4096.0;
/// The size from which on the requirements apply.
const MANY: usize = 1000;

/// One commit changes many rows, while a part of all silos has died unnoticed: when do all others
/// know, and what does each of them send?
#[derive(clap::Args, Clone, Debug)]
pub struct Dissemination {
    #[command(flatten)]
    pub common: Common,
    /// The number of silos, without those whose rows the commit ends
    #[arg(long, value_delimiter = ',', default_values_t = [1000], value_parser = clap::value_parser!(u16).range(8..=10_000))]
    pub silos: Vec<u16>,
    /// How many rows the commit changes: an operator evicts so many silos that have crashed
    #[arg(long, value_delimiter = ',', default_values_t = [1, 99, 500], value_parser = clap::value_parser!(u16).range(1..=1000))]
    pub rows: Vec<u16>,
    /// How many of the others have crashed as well, unnoticed, in per cent
    #[arg(long, value_delimiter = ',', default_values_t = [0, 1, 10, 30], value_parser = clap::value_parser!(u16).range(0..=90))]
    pub dead: Vec<u16>,
    /// How many messages are lost, in per cent
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u16).range(0..=50))]
    pub loss: u16,
    /// The systems; only those with a table
    #[arg(long, value_enum, value_delimiter = ',', default_values_t = [System::Scribe])]
    pub systems: Vec<System>,
}

#[derive(Clone, Copy, Debug)]
struct Piece {
    system: System,
    silos: usize,
    rows: usize,
    dead: usize,
    loss: u16,
    seed: u64,
}

struct Outcome {
    /// What the rows of the commit take.
    bytes: f64,
    /// Milliseconds until each silo that lives had it, from the moment at which its author did.
    took: Vec<f64>,
    /// How many live.
    live: usize,
    /// For each silo that lives: messages with changes or rows, other messages about news, and the bytes of
    /// both.
    payloads: Vec<f64>,
    others: Vec<f64>,
    sent: Vec<f64>,
    /// The payloads of the author.
    author: f64,
}

impl Outcome {
    /// Milliseconds until this share of the living silos had it.
    fn by(&self, share: f64) -> Option<f64> {
        let mut all = self.took.clone();
        all.resize(self.live, f64::INFINITY);
        quantile(&all, share).filter(|ms| ms.is_finite())
    }
}

impl Dissemination {
    fn pieces(&self) -> Vec<Piece> {
        let quick = self.common.quick;
        let of = |all: &[u16], few: &[u16]| unique(if quick { few } else { all });
        let mut pieces = Vec::new();
        for system in unique(&self.systems) {
            for silos in of(&self.silos, &[24]) {
                for rows in of(&self.rows, &[1, 6]) {
                    for dead in of(&self.dead, &[0, 10]) {
                        pieces.extend(self.common.seeds_or(1).into_iter().map(|seed| Piece {
                            system,
                            silos: silos.into(),
                            rows: rows.into(),
                            dead: dead.into(),
                            loss: self.loss,
                            seed,
                        }));
                    }
                }
            }
        }
        pieces
    }

    /// Runs the experiment.
    ///
    /// # Errors
    /// When a simulation stops.
    pub fn report(&self) -> Result<Report, Failure> {
        let pieces = self.pieces();
        let threads = self.common.threads();
        let outcomes = each("dissemination", &pieces, threads, |piece| piece.seed, one)?;
        let mut report = Report::default();
        let mut figures = Figures::new(
            5,
            &[
                "system",
                "members",
                "rows",
                "dead %",
                "seed",
                "rows kB",
                "half know ms",
                "99 % ms",
                "all ms",
                "do not know",
                "payloads: mean",
                "most",
                "of the author",
                "other messages: mean",
                "kB: mean",
                "kB: most",
            ],
        );
        for (piece, o) in pieces.iter().zip(&outcomes) {
            figures.row(vec![
                piece.system.name().to_owned(),
                piece.silos.to_string(),
                piece.rows.to_string(),
                piece.dead.to_string(),
                piece.seed.to_string(),
                number(Some(o.bytes / 1e3), 1),
                number(o.by(0.5), 1),
                number(o.by(0.99), 1),
                number(o.by(1.0), 1),
                (o.live - o.took.len()).to_string(),
                number(mean(&o.payloads), 2),
                number(quantile(&o.payloads, 1.0), 0),
                number(Some(o.author), 0),
                number(mean(&o.others), 2),
                number(mean(&o.sent).map(|bytes| bytes / 1e3), 2),
                number(quantile(&o.sent, 1.0).map(|bytes| bytes / 1e3), 1),
            ]);
            requires(&mut report, piece, o);
        }
        report.table(
            format!(
                "An operator evicts so many crashed silos in one commit, at the moment at which others \
                 crash unnoticed and {} % of all messages begin to get lost",
                self.loss
            ),
            figures,
        );
        report.note(
            "*Members*: without those that are evicted, which have crashed at the same moment, like their \
             machines: nobody is told. The silo that made the last commit is told to evict, and makes one \
             commit of all. *Rows kB*: the changed rows as the store has them. Times are from the moment \
             at which the author of the commit knows that it is made, until a living silo has published that version. \
             *Payloads*: messages with changes or rows of that version or a later one, lost ones included, within 2 s \
             or until all know; *other messages*: announcements, and questions for changes; *kB*: what both take, per \
             living silo. Required: one row, 10,000 members, 10 % dead, 1 % loss: 99 % within 20 ms, all \
             within 2 s, at most 24 payloads, at most 4.1 on average; a commit of 30 kB: at most 1.1 payloads on \
             average.",
        );
        Ok(report)
    }
}

/// What must hold with at most a tenth dead.
fn requires(report: &mut Report, piece: &Piece, o: &Outcome) {
    if piece.system != System::Scribe || piece.silos < MANY || piece.dead > 10 || piece.loss > 1 {
        return;
    }
    let name = format!(
        "{} members, {} rows, {} % dead, seed {}",
        piece.silos, piece.rows, piece.dead, piece.seed
    );
    let payloads = mean(&o.payloads).unwrap_or(f64::INFINITY);
    let most = quantile(&o.payloads, 1.0).unwrap_or(f64::INFINITY);
    let all = o.by(1.0);
    report.must(
        all.is_some_and(|ms| ms <= 2000.0),
        format!("{name}: all knew after {} ms, not 2 s", number(all, 0)),
    );
    report.must(
        most <= 24.0,
        format!("{name}: one silo sent {most:.0} payloads, not 24"),
    );
    if o.bytes > LARGE {
        report.must(
            payloads <= 1.1,
            format!("{name}: {payloads:.2} payloads on average, not 1.1"),
        );
    } else {
        let soon = o.by(0.99);
        report.must(
            soon.is_some_and(|ms| ms <= 20.0),
            format!("{name}: 99 % knew after {} ms, not 20", number(soon, 1)),
        );
        report.must(
            payloads <= 4.1,
            format!("{name}: {payloads:.2} payloads on average, not 4.1"),
        );
    }
}

#[allow(clippy::cast_precision_loss, reason = "figures for people")]
fn one(piece: &Piece) -> Result<Outcome, Failure> {
    let news = Rc::new(RefCell::new(News::default()));
    let all = piece.silos + piece.rows;
    let make = piece.system.make(piece.seed, piece.silos)?;
    // Every check of every view would take longer than the rest.
    let watched = make.watched && all <= 2 * MANY;
    let limits = TableLimits::new(piece.rows.max(100), 64 << 10, 1 << 20, ROWS);
    let mut ours = Make { watched, ..make }
        .build_beside(vec![Box::new(Watch(Rc::clone(&news)))], |builder| {
            builder.limits(limits)
        })?;
    formed(&mut ours, all, QUIET)?;
    let author = author(&ours).ok_or_else(|| Failure::new("nobody made the last commit"))?;
    let mut rng = Rng::new(piece.seed ^ 0x6e65_7773);
    let ours_of = |member: &usize| ours.process(*member);
    let dead = piece.silos * piece.dead / 100;
    // One more than needed, should the author be among them.
    let drawn = draw(&mut rng, all, piece.rows + dead + 1);
    let mut drawn: Vec<ProcessId> = drawn.iter().map(ours_of).collect();
    rng.shuffle(&mut drawn);
    drawn.retain(|silo| *silo != author);
    drawn.truncate(piece.rows + dead);
    let evicted = drawn.iter().take(piece.rows);
    let evicted: Vec<SiloAddress> = evicted.filter_map(|s| ours.cluster.address(*s)).collect();
    for silo in &drawn {
        ours.cluster.crash_machine(*silo);
    }
    ours.cluster.message_loss(f64::from(piece.loss) / 100.0);
    *news.borrow_mut() = News::of(piece.rows, author);
    // While the silo reads, what it is told waits, and then goes into one commit.
    let request = RequestId(0);
    let command = Command::Refresh {
        request,
        at_least: None,
    };
    ours.cluster.command(author, command);
    for (request, silo) in (1..).zip(evicted) {
        let command = Command::Evict {
            request: RequestId(request),
            silo,
            reason: "its machine has crashed".to_owned(),
        };
        ours.cluster.command(author, command);
    }
    let live = ours.cluster.running();
    let end = ours.now() + AT_MOST;
    loop {
        ours.run_for(Duration::from_millis(100))?;
        let seen = news.borrow();
        let since = seen.began.map(|began| ours.now().saturating_sub(began));
        let all_know = live.iter().all(|silo| seen.knows(*silo).is_some());
        if ours.now() >= end || (all_know && since.is_some_and(|since| since >= COUNTED)) {
            break;
        }
    }
    let news = news.borrow();
    let began = news
        .began
        .ok_or_else(|| Failure::new(format!("no commit of {} rows was made", piece.rows)))?;
    let took = live.iter().filter_map(|silo| news.knows(*silo));
    let sent = |silo: &ProcessId| news.sent(*silo);
    Ok(Outcome {
        bytes: news.bytes as f64,
        took: took
            .map(|at| at.saturating_sub(began).as_secs_f64() * 1e3)
            .collect(),
        live: live.len(),
        payloads: live.iter().map(|s| sent(s).payloads as f64).collect(),
        others: live.iter().map(|s| sent(s).others as f64).collect(),
        sent: live.iter().map(|s| sent(s).bytes as f64).collect(),
        author: sent(&author).payloads as f64,
    })
}

/// The silo that made the last commit, if it still runs, or else any that is Active.
fn author(ours: &Ours) -> Option<ProcessId> {
    let table = ours.cluster.table()?;
    let last = table.version_row.recent.last()?.committer;
    let oldest = table.rows.entries().map(|e| e.address);
    let owner = |silo: SiloAddress| ours.cluster.truth().owners.get(&silo).copied();
    let mut all = last.into_iter().chain(oldest).filter_map(owner);
    all.find(|silo| ours.cluster.is_running(*silo))
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use clap::Parser as _;

    use super::*;

    #[derive(clap::Parser)]
    struct Line {
        #[command(flatten)]
        dissemination: Dissemination,
    }

    fn of(line: &str) -> Dissemination {
        Line::try_parse_from(line.split(' ')).unwrap().dissemination
    }

    #[test]
    fn every_share_runs_with_every_number_of_rows() {
        assert_eq!(of("dissemination").pieces().len(), 3 * 4);
        let few = of("dissemination --silos 10000 --rows 1 --dead 10 --seeds 3..5");
        let pieces = few.pieces();
        assert_eq!(pieces.len(), 2);
        assert_eq!((pieces[1].silos, pieces[1].seed), (10_000, 4));
        assert!(Line::try_parse_from(["dissemination", "--silos", "10001"]).is_err());
    }

    #[test]
    fn one_commit_has_all_rows_and_reaches_all_that_live() {
        let piece = Piece {
            system: System::Scribe,
            silos: 30,
            rows: 12,
            dead: 10,
            loss: 1,
            seed: 4,
        };
        let o = one(&piece).unwrap();
        assert_eq!((o.live, o.took.len()), (27, 27));
        assert!(o.bytes > 12.0 * 100.0, "{}", o.bytes);
        assert!(o.author >= 1.0 && o.by(0.5) <= o.by(1.0));
        let sum: f64 = o.payloads.iter().sum();
        // Whoever knows was told, but for the author.
        assert!(sum >= 26.0, "{sum}");
    }

    #[test]
    fn who_does_not_know_is_late() {
        let o = Outcome {
            bytes: 0.0,
            took: vec![1.0, 2.0, 3.0],
            live: 4,
            payloads: Vec::new(),
            others: Vec::new(),
            sent: Vec::new(),
            author: 0.0,
        };
        assert_eq!(
            (o.by(0.5), o.by(0.75), o.by(1.0)),
            (Some(2.0), Some(3.0), None)
        );
    }
}
