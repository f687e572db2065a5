//! The results of the runs of `lifeguard` beside the published figures, and the comparison of the
//! systems.

use std::collections::BTreeSet;

use super::{Cell, NOTICEABLE, Outcome, Piece};
use crate::figures::{Figures, number};
use crate::report::Report;
use crate::systems::System;

use super::runs::{COMPARED, Runs, rows};

/// The messages of Consul's agents in the paper, of each of 128 members in each second of 4,320
/// runs of 120 s: of SWIM 435.33 million messages and 149.15 GiB, of Lifeguard 481.42 million and
/// 146.13 GiB (table VI). False deaths are those of table IV, latencies those of table V.
const PUBLISHED: [(&str, [&str; 4], [&str; 6]); 2] = [
    (
        "SWIM, published",
        ["339002", "1326", "6.56", "2.41"],
        ["12.44", "16.96", "19.40", "12.90", "16.93", "20.17"],
    ),
    (
        "Lifeguard, published",
        ["5193", "25", "7.25", "2.36"],
        ["12.45", "17.90", "21.20", "12.91", "18.05", "21.68"],
    ),
];
/// The report of these runs.
pub(super) fn judge(silos: u16, systems: &[System], results: &[(Piece, Outcome)]) -> Report {
    let mut again = Figures::new(
        2,
        &[
            "repeated anomalies",
            "runs",
            "false deaths",
            "at healthy",
            "healthy given up",
            "blocked given up",
            "messages/s",
            "KB/s",
            "table requests/s",
            "table KB/s",
        ],
    );
    let mut single = Figures::new(
        2,
        &[
            "one anomaly",
            "samples",
            "first: median s",
            "p99",
            "p99.9",
            "all: median s",
            "p99",
            "p99.9",
            "not noticed",
            "false deaths",
            "at healthy",
        ],
    );
    let rows = rows(systems, results);
    for runs in &rows {
        again.row(runs.repeated());
        single.row(runs.single());
    }
    let dash = || "–".to_owned();
    for (name, [all, healthy, messages, kbytes], times) in PUBLISHED {
        let row = [
            name, "4320", all, healthy, "–", "–", messages, kbytes, "–", "–",
        ];
        again.row(row.iter().map(|cell| (*cell).to_owned()).collect());
        let mut row = vec![name.to_owned(), dash()];
        row.extend(
            times
                .iter()
                .map(|cell| (*cell).to_owned())
                .chain(std::iter::repeat_with(dash).take(3)),
        );
        single.row(row);
    }
    let mut report = Report::default();
    report.table(
        format!("{silos} members, blocked and released repeatedly for 120 s"),
        again,
    );
    let long: BTreeSet<u64> = results
        .iter()
        .map(|(p, _)| p.cell)
        .filter(|c| c.off == 0 && c.on >= NOTICEABLE)
        .map(|c| c.on)
        .collect();
    report.table(
        format!(
            "{silos} members, blocked once; times are those of members blocked for {} ms",
            list(long.iter(), "or")
        ),
        single,
    );
    report.note(format!(
        "{} Each system has the same seeds, network and blocked members; each cell has a world \
         of its own, with 120 s of quiet before and 60 s after. A false death is the belief of \
         one member that a never-blocked member is dead; *at healthy*: the member with \
         the belief was never blocked either. *Given up*: distinct members that any member \
         believed dead. A member that was not noticed, or not by all, counts as noticed after \
         infinite time (–). With fewer than 1,000 samples p99.9 is the longest of them, with \
         fewer than 100 p99 as well. Load is per member, over the time of the anomaly; beside it \
         are the requests of membership to its table. The conditions that must hold compare sums \
         over both tables, and means of repetitions. The published figures are those of Consul \
         agents on one machine (Lifeguard, arXiv 1707.00788, tables IV to \
         VI; their load derived).",
        cells_of(&rows)
    ));
    verdict(&rows, &mut report);
    report
}
/// The cells of each system, with the number of seeds and repetitions.
fn cells_of(rows: &[Runs<'_>]) -> String {
    let mut kinds: Vec<(String, Vec<&str>)> = Vec::new();
    for runs in rows.iter().filter(|runs| !runs.shared) {
        let pieces = || runs.of.iter().map(|(piece, _)| piece);
        let cells: BTreeSet<Cell> = pieces().map(|piece| piece.cell).collect();
        let seeds = pieces()
            .map(|piece| piece.seed)
            .collect::<BTreeSet<_>>()
            .len();
        let members: BTreeSet<usize> = cells.iter().map(|cell| cell.members).collect();
        let (on, off): (BTreeSet<u64>, BTreeSet<u64>) =
            cells.iter().map(|cell| (cell.on, cell.off)).unzip();
        let text = format!(
            "{} cells of the paper's 486 ({} members; {} ms on; never again, or {} ms off), with {seeds} {}{}",
            cells.len(),
            list(members.iter(), "or"),
            list(on.iter(), "or"),
            list(off.iter().filter(|off| **off > 0), "or"),
            if seeds == 1 { "seed" } else { "seeds" },
            if runs.repeats() == 1 {
                String::new()
            } else {
                format!(", {} times", runs.repeats())
            }
        );
        match kinds.iter_mut().find(|(kind, _)| *kind == text) {
            Some((_, names)) => names.push(runs.system.name()),
            None => kinds.push((text, vec![runs.system.name()])),
        }
    }
    let kinds: Vec<String> = kinds
        .into_iter()
        .map(|(text, names)| format!("{}: {text}.", list(names.iter(), "and")))
        .collect();
    kinds.join(" ")
}

/// Joins items as in `1, 2 or 3`.
fn list(items: impl Iterator<Item = impl ToString>, before_last: &str) -> String {
    let mut items: Vec<String> = items.map(|item| item.to_string()).collect();
    match (items.pop(), items.is_empty()) {
        (Some(last), false) => format!("{} {before_last} {last}", items.join(", ")),
        (last, _) => last.unwrap_or_else(|| "no".to_owned()),
    }
}

fn verdict(rows: &[Runs<'_>], report: &mut Report) {
    if let Some(gossip) = rows.iter().find(|runs| runs.system == System::Gossip) {
        let [_, healthy, _] = gossip.compared();
        report.must(
            healthy == 0.0,
            format!("gossip: {healthy:.0} false deaths at healthy members"),
        );
    }
    let ours = |shared| {
        rows.iter()
            .find(|runs| runs.system == System::Membership && runs.shared == shared)
    };
    for theirs in rows
        .iter()
        .filter(|runs| matches!(runs.system, System::Foca | System::Chitchat))
    {
        let fewer = if theirs.system == System::Chitchat {
            ours(true)
        } else {
            None
        };
        let Some(ours) = fewer.or_else(|| ours(false)) else {
            return;
        };
        let name = theirs.system.name();
        for ((what, _), (mine, theirs)) in COMPARED
            .iter()
            .zip(ours.compared().into_iter().zip(theirs.compared()))
        {
            report.must(
                mine <= theirs,
                format!("{what}: {mine:.0}, {name} has {theirs:.1}"),
            );
        }
        if theirs.system == System::Foca {
            let (mine, theirs) = (ours.median(), theirs.median());
            let no_later = mine
                .is_some_and(|mine| mine.is_finite() && theirs.is_none_or(|theirs| mine <= theirs));
            report.must(
                no_later,
                format!(
                    "median first declared death {} s, foca's {} s",
                    number(mine, 2),
                    number(theirs, 2)
                ),
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::grid;
    use super::*;

    /// The sample with made-up outcomes.
    fn sample(of: impl Fn(System, Cell) -> Outcome) -> Report {
        let mut results = Vec::new();
        for system in [System::Membership, System::Foca] {
            results.extend(grid(false, false).into_iter().map(|cell| {
                (
                    Piece {
                        system,
                        repeat: 0,
                        seed: 1,
                        cell,
                    },
                    of(system, cell),
                )
            }));
        }
        let system = System::Chitchat;
        for repeat in 0..5 {
            let cells = grid(false, false)
                .into_iter()
                .filter(|cell| cell.is_for_chitchat());
            results.extend(cells.map(|cell| {
                (
                    Piece {
                        system,
                        repeat,
                        seed: 1,
                        cell,
                    },
                    of(system, cell),
                )
            }));
        }
        judge(
            128,
            &[System::Membership, System::Foca, System::Chitchat],
            &results,
        )
    }

    fn noticed(cell: Cell, after: f64) -> Vec<f64> {
        if cell.off == 0 && cell.on >= NOTICEABLE {
            vec![after; cell.members]
        } else {
            Vec::new()
        }
    }

    #[test]
    fn chitchat_is_compared_in_the_cells_that_it_ran() {
        // Ours would win if all of its cells counted per run, and loses in those that both had.
        let report = sample(|system, cell| {
            let all = match system {
                System::Membership => usize::from(cell.is_for_chitchat()) * 2,
                System::Chitchat => 1,
                _ => 100,
            };
            Outcome {
                all,
                first: noticed(cell, 8.0),
                full: noticed(cell, 9.0),
                ..Outcome::default()
            }
        });
        let row = |name: &str| {
            report.tables[0]
                .1
                .rows()
                .iter()
                .find(|row| row[0] == name)
                .cloned()
                .unwrap_or_default()
        };
        assert_eq!(row("membership")[1..3], ["36", "18"]);
        assert_eq!(row("membership, only chitchat's runs")[1..3], ["9", "18"]);
        assert_eq!(row("chitchat")[1..3], ["5 × 9", "9 to 9"]);
        assert_eq!(report.missed, ["false deaths: 24, chitchat has 12.0"]);
        let note = &report.notes[0];
        assert!(
            note.starts_with(
                "membership and foca: 48 cells of the paper's 486 (1, 8, 16 or 32 members; "
            ),
            "{note}"
        );
        assert!(
            note.contains(
                "chitchat: 12 cells of the paper's 486 (16 members; 512, 8192 or 32768 ms on; "
            ),
            "{note}"
        );
        assert!(
            note.contains("16384 ms off), with 1 seed, 5 times."),
            "{note}"
        );
        assert!(
            report.tables[1].0.ends_with("blocked for 32768 ms"),
            "{}",
            report.tables[1].0
        );
    }

    #[test]
    fn false_deaths_in_single_anomalies_count() {
        let report = sample(|system, cell| {
            let healthy =
                usize::from(system == System::Membership && cell.off == 0 && cell.members == 1);
            Outcome {
                healthy,
                first: noticed(cell, 8.0),
                full: noticed(cell, 9.0),
                ..Outcome::default()
            }
        });
        assert_eq!(
            report.missed,
            ["false deaths at healthy members: 3, foca has 0.0"]
        );
    }

    #[test]
    fn a_member_that_is_never_detected_counts_as_late() {
        let late = |share: fn(usize) -> bool| {
            sample(move |system, cell| {
                let mut first = noticed(cell, 8.0);
                if system == System::Membership {
                    first
                        .iter_mut()
                        .enumerate()
                        .filter(|(i, _)| share(*i))
                        .for_each(|(_, time)| *time = f64::INFINITY);
                }
                Outcome {
                    full: first.clone(),
                    first,
                    ..Outcome::default()
                }
            })
        };
        assert_eq!(late(|i| i % 3 == 2).missed, Vec::<String>::new());
        assert_eq!(
            late(|_| true).missed,
            ["median first declared death – s, foca's 8.00 s"]
        );
        let report = late(|i| i % 3 != 2);
        assert_eq!(
            report.missed,
            ["median first declared death – s, foca's 8.00 s"]
        );
        let row = &report.tables[1].1.rows()[0];
        assert_eq!(row[1..5], ["57", "–", "–", "–"], "{row:?}");
        assert_eq!(row[8], "40", "{row:?}");
    }
}
