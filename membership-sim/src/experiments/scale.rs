//! `scale`: what a quiet cluster asks of its table, the units that some stores bill for that, and how
//! large a cluster each store bears.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use membership_testing::TableTraffic;

use super::{QUIET, each};
use crate::arena::{Arena, Failure, settled};
use crate::figures::{Figures, number};
use crate::ours::Make;
use crate::report::{Common, Report};
use crate::systems::{LARGE, System};

/// The costs of a quiet cluster by size and setting, and how large a cluster each store bears
#[derive(clap::Args, Clone, Debug)]
pub struct Scale {
    #[command(flatten)]
    pub common: Common,
    /// Write docs/scale.md instead of printing
    #[arg(long, conflicts_with_all = ["csv", "markdown", "svg", "quick"])]
    write: bool,
}

/// The clusters that are simulated, and the one whose costs follow from the larger of them.
const SILOS: [usize; 2] = [100, 1000];
const LARGEST: usize = 10_000;
const MINUTES: u64 = 30;
/// How far the growth of the costs may be from the law by which those of the largest cluster are
/// computed.
const TOLERANCE: f64 = 0.15;

const HEAD: &str = "\
# How far it scales

What limits the size of a cluster is its table: how often it is asked, how much it returns, and how many rows it
takes. Messages between silos do not grow with the cluster ([measurements](measurements.md)). Two settings cause the
load of a quiet cluster, and one changes its law:

| setting | what it moves |
|---|---|
| `i_am_alive_period` | one write per silo and period. With `scribe` all silos together write about 33 a second, if that is less, and the leader alone writes in this period; above 200 silos without it set the period to 30 s, as here: 120 instead of 360 per hour. A cluster that loses most of its silos at once, or all, waits for three of these periods |
| `table_refresh_period` | one read per silo and period. A longer one makes silos that have missed a message learn of it later; hints of the store make up for that where it has them |
| [`scribe`](operating.md#hundreds-of-silos) | without it each read returns all heartbeats, so what is read grows with the square of the cluster; with it a quiet silo reads the version row alone. A start needs two commits per silo without it, and with it as many as the rows of all silos fill |

[Choosing a store](choosing.md) has the requests of small clusters, and the first limit of each store in words.

<!-- written by `cargo run --release -p membership-sim -- scale --write`; with all its text -->

";

#[derive(Clone, Copy, Debug)]
struct Piece {
    system: System,
    silos: usize,
    seed: u64,
    minutes: u64,
}

/// What the silos of a cluster together ask of its table within a second.
#[derive(Clone, Copy, Debug)]
struct Load {
    reads: f64,
    heartbeats_read: f64,
    kbytes_read: f64,
    writes: f64,
}

impl Load {
    /// That of a cluster with `times` as many silos. Each silo asks for as much as before; what a read
    /// returns has all heartbeats in it, or none. With a scribe all silos together write as many heartbeats
    /// as those of a large cluster.
    fn of_more(self, times: f64, system: System) -> Self {
        let returned = if self.heartbeats_read > 0.0 {
            times * times
        } else {
            times
        };
        Self {
            reads: self.reads * times,
            heartbeats_read: self.heartbeats_read * returned,
            kbytes_read: self.kbytes_read * returned,
            writes: match system {
                System::Scribe => self.writes,
                _ => self.writes * times,
            },
        }
    }

    /// Whether each figure is about that of the other, or neither is there. The bytes of version rows
    /// alone follow no law: they depend on the last commits. Nor do heartbeats with a scribe: only in the
    /// larger cluster are they rare.
    fn is_about(self, other: Self, system: System) -> bool {
        let bytes = |l: Self| {
            if l.heartbeats_read > 0.0 {
                l.kbytes_read
            } else {
                0.0
            }
        };
        let writes = |l: Self| match system {
            System::Scribe => 0.0,
            _ => l.writes,
        };
        let figures = |l: Self| [l.reads, l.heartbeats_read, bytes(l), writes(l)];
        figures(self)
            .into_iter()
            .zip(figures(other))
            .all(|(a, b)| (a - b).abs() <= TOLERANCE * b)
    }
}

impl Scale {
    /// Prints the report, or writes the document.
    pub fn run(&self) -> ExitCode {
        match self.report() {
            Ok(report) if self.write => {
                let text = format!("{HEAD}{}\n", report.markdown().trim_end());
                let written = std::fs::write(documents().join("scale.md"), text);
                let written = written.map_err(|e| Failure::new(format!("docs/scale.md: {e}")));
                self.common.print(written.map(|()| report))
            }
            outcome => self.common.print(outcome),
        }
    }

    /// Runs the experiment.
    ///
    /// # Errors
    /// When a simulation stops, or docs/providers.md does not say what a store takes.
    pub fn report(&self) -> Result<Report, Failure> {
        let (sizes, minutes) = if self.common.quick {
            ([5, 10], 1)
        } else {
            (SILOS, MINUTES)
        };
        let systems = [System::Membership, System::Scribe];
        let [seed] = self.common.seeds_or(1)[..] else {
            return Err(Failure::new(
                "these costs are those of one seed: give one, such as --seeds 1..2".to_owned(),
            ));
        };
        let pieces: Vec<Piece> = systems
            .into_iter()
            .flat_map(|system| {
                sizes.map(|silos| Piece {
                    system,
                    silos,
                    seed,
                    minutes,
                })
            })
            .collect();
        let loads = each("scale", &pieces, self.common.threads(), |p| p.seed, one)?;
        let mut report = Report::default();
        let mut asked = Figures::new(
            2,
            &[
                "system",
                "silos",
                "reads/s",
                "heartbeats in them/s",
                "KB read/s",
                "heartbeats written/s",
            ],
        );
        let mut billed = Figures::new(
            2,
            &[
                "system",
                "silos",
                "DynamoDB: write units",
                "read units",
                "Azure Table: transactions",
            ],
        );
        // Where reads return nothing else: with a scribe. The row of the largest cluster is as long as that
        // of the large one.
        let row = |load: &Load| load.kbytes_read / load.reads;
        let rows = match &loads[..] {
            [_, _, few, many] => [row(few), row(many), row(many)],
            _ => [0.0; 3],
        };
        for (pieces, loads) in pieces.chunks(2).zip(loads.chunks(2)) {
            let ([small, large], [few, many]) = (pieces, loads) else {
                continue;
            };
            let times = |silos: usize, than: usize| silos as f64 / than as f64;
            let (law, largest) = (
                few.of_more(times(large.silos, small.silos), large.system),
                many.of_more(times(LARGEST, large.silos), large.system),
            );
            report.must(
                self.common.quick || many.is_about(law, large.system),
                format!(
                    "{}: {} silos ask for {many:?}, not about {law:?}",
                    large.system.name(),
                    large.silos
                ),
            );
            let all = [
                (small.silos, few, ""),
                (large.silos, many, ""),
                (LARGEST, &largest, " (computed)"),
            ];
            for ((silos, load, note), version_row) in all.into_iter().zip(rows) {
                let name = || vec![small.system.name().to_owned(), format!("{silos}{note}")];
                let mut row = name();
                row.extend([
                    number(Some(load.reads), 1),
                    number(Some(load.heartbeats_read), 0),
                    number(Some(load.kbytes_read), 0),
                    number(Some(load.writes), 1),
                ]);
                asked.row(row);
                let mut row = name();
                row.extend(
                    units(load, silos as f64, version_row).map(|units| number(Some(units), 0)),
                );
                billed.row(row);
            }
        }
        report.table(
            format!(
                "What a quiet cluster asks of its table, all silos together, preset `lan`, without a scribe with \
                 a heartbeat every 30 s, over {minutes} virtual minutes"
            ),
            asked,
        );
        report.table("The same in billed units, per silo and hour", billed);
        report.table("How large a cluster each store takes", stores()?);
        report.note(format!(
            "Bytes are those of keys and values. *Computed*: each silo of {LARGEST} asks as often as one of \
             {large}, and a read that returns heartbeats returns ten times as many; from {small} to {large} silos the \
             figures follow this law within {percent:.0} %, or the command fails. Only the heartbeats of the \
             scribe's cluster do not: its silos together write about 33 a second, or one each in 10 s if that is less.",
            large = sizes[1],
            small = sizes[0],
            percent = TOLERANCE * 100.0
        ));
        report.note(
            "DynamoDB: a heartbeat is one write unit. A read is consistent: one read unit for each started 4 KB of \
             version row and heartbeats (100 bytes each); a version row alone is read in a transaction, two units for each started 4 KB of it \
             and two for the row that comes with it. (It names the rows of the last 16 commits: 4 to 7 KB where many silos have just started.) Azure Table: a transaction for each heartbeat, \
             and for each started 1,000 entities of a read. Not every store takes so many silos: see below.",
        );
        report.note(
            "*Rows* and *rows per commit* are the limits of [the providers](providers.md). The row of a silo that has left is \
             kept for ten minutes: *silos* is half of the rows, so that all can be replaced within that time. *Commits*: as \
             many as a start of so many silos needs with `scribe` and full commits, two changes for each silo; a tenth \
             of a second and the time of one commit each. A dash: see there.",
        );
        Ok(report)
    }
}

/// The units of DynamoDB (writes, reads) and of Azure Table that a silo of so many costs per hour;
/// `version_row` in KB.
fn units(load: &Load, silos: f64, version_row: f64) -> [f64; 3] {
    let hour = 3600.0 / silos;
    let (reads, writes) = (load.reads * hour, load.writes * hour);
    let with_heartbeats = load.heartbeats_read > 0.0;
    let read_units = if with_heartbeats {
        ((version_row + 0.1 * silos) / 4.0).ceil()
    } else {
        2.0 * (version_row / 4.0).ceil() + 2.0
    };
    let transactions = if with_heartbeats {
        ((silos + 1.0) / 1000.0).ceil()
    } else {
        1.0
    };
    [writes, reads * read_units, writes + reads * transactions]
}

fn documents() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("..")
        .join("docs")
}

/// What docs/providers.md says of the rows that each store takes.
fn stores() -> Result<Figures, Failure> {
    let path = documents().join("providers.md");
    let text = std::fs::read_to_string(&path)
        .map_err(|e| Failure::new(format!("{}: {e}", path.display())))?;
    let mut figures = Figures::new(1, &["store", "rows", "rows per commit", "silos", "commits"]);
    for section in text.split("\n## ").skip(1) {
        let store = section.lines().next().unwrap_or_default();
        let Some(limits) = section
            .lines()
            .find_map(|line| line.strip_prefix("| limits | "))
        else {
            continue;
        };
        let Some((per_commit, rows)) = rows_of(limits) else {
            figures.row([store, "–", "–", "–", "–"].map(str::to_owned).to_vec());
            continue;
        };
        let silos = rows / 2;
        figures.row(vec![
            store.to_owned(),
            rows.to_string(),
            per_commit.to_string(),
            silos.to_string(),
            (2 * silos).div_ceil(per_commit).to_string(),
        ]);
    }
    if figures.rows().is_empty() {
        return Err(Failure::new(format!(
            "{}: no store says how many rows it takes",
            path.display()
        )));
    }
    Ok(figures)
}

/// The rows of a commit and of a cluster, in words such as "49 rows and 1 MiB per commit, 20,000 rows".
fn rows_of(limits: &str) -> Option<(usize, usize)> {
    let rows = |part: &str| {
        let number = part.trim().strip_suffix(" rows")?.replace(',', "");
        number.rsplit(' ').next()?.parse::<usize>().ok()
    };
    let (first, rest) = limits.split_once(" and ")?;
    let per_commit = rows(first)?;
    let rest = rest.split("; ").next()?;
    let all = rest.trim_end_matches(" |").split(", ").filter_map(rows);
    Some((per_commit, all.last()?)).filter(|(per_commit, _)| *per_commit > 0)
}

#[allow(clippy::cast_precision_loss, reason = "figures for people")]
fn one(piece: &Piece) -> Result<Load, Failure> {
    // Those of a large cluster, so that all sizes have the same settings.
    let (config, variant) = piece
        .system
        .config(LARGE + 1)
        .ok_or_else(|| Failure::new(format!("{} has no table", piece.system.name())))?;
    let mut ours = Make {
        watched: false,
        bytes: false,
        variant,
        ..Make::new(piece.seed, config)
    }
    .build()?;
    settled(&mut ours, piece.silos, QUIET)?;
    let before = ours.cluster.table_traffic();
    for _ in 0..piece.minutes {
        ours.run_for(std::time::Duration::from_secs(60))?;
    }
    let traffic: TableTraffic = ours.cluster.table_traffic().since(&before);
    let each = |n: u64| n as f64 / (piece.minutes * 60) as f64;
    Ok(Load {
        reads: each(traffic.reads + traffic.unchanged + traffic.row_reads),
        heartbeats_read: each(traffic.heartbeats_read),
        kbytes_read: each(traffic.bytes_read) / 1e3,
        writes: each(traffic.heartbeats + traffic.cells),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_limits_of_stores_are_read_from_their_description() {
        let rows = |text| rows_of(text);
        assert_eq!(
            rows("49 rows and 1 MiB per commit, 256 KiB per row, 20,000 rows |"),
            Some((49, 20_000))
        );
        assert_eq!(
            rows("10,000 rows and 64 MiB per commit, 1 MiB per row, 100,000 rows |"),
            Some((10_000, 100_000))
        );
        let less = "1,000 rows and 16 MiB per commit, 1 MiB per row, 100,000 rows; less if |";
        assert_eq!(rows(less), Some((1_000, 100_000)));
        let more =
            "1,000 rows and 8 MiB per commit, 256 KiB per row, 10,000 rows, and 16 MB for all |";
        assert_eq!(rows(more), Some((1_000, 10_000)));
        assert_eq!(rows("the server's `max_payload`: about 1,000 rows |"), None);
        assert!(stores().is_ok_and(|stores| stores.rows().len() >= 10));
    }

    #[test]
    fn what_is_read_grows_with_the_square_where_reads_have_heartbeats() {
        let load = Load {
            reads: 10.0,
            heartbeats_read: 1_000.0,
            kbytes_read: 50.0,
            writes: 3.0,
        };
        let (ours, scribe) = (System::Membership, System::Scribe);
        let more = load.of_more(10.0, ours);
        assert!((load.of_more(10.0, scribe).writes - load.writes).abs() < 1e-9);
        assert_eq!((more.reads, more.writes), (100.0, 30.0));
        assert_eq!(
            (more.heartbeats_read, more.kbytes_read),
            (100_000.0, 5_000.0)
        );
        assert!(!more.is_about(load, ours) && load.is_about(load, ours));
        let rare = Load {
            writes: 0.3,
            ..load
        };
        assert!(!rare.is_about(load, ours) && rare.is_about(load, scribe));
        assert_eq!(units(&load, 100.0, 4.0), [108.0, 1_440.0, 468.0]);
        let alone = Load {
            heartbeats_read: 0.0,
            ..load
        };
        assert_eq!(units(&alone, 100.0, 6.0)[1], 2_160.0);
    }
}
