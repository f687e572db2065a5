//! The report of an experiment, and how it is printed.

#![allow(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "the output of the commands"
)]

use std::fmt::Write as _;
use std::ops::Range;
use std::path::PathBuf;
use std::process::ExitCode;

use crate::arena::Failure;
use crate::figures::Figures;
use crate::svg;

/// Options that every experiment has.
#[derive(clap::Args, Clone, Debug, Default)]
pub struct Common {
    /// The seeds, as A..B, without B. Each seed decides all randomness of one repetition
    #[arg(long, value_name = "A..B", value_parser = few_seeds)]
    pub seeds: Option<Range<u64>>,
    /// Print comma-separated values
    #[arg(long)]
    pub csv: bool,
    /// Print Markdown
    #[arg(long, conflicts_with = "csv")]
    pub markdown: bool,
    /// Also draw the tables into this file
    #[arg(long, value_name = "FILE")]
    pub svg: Option<PathBuf>,
    /// Run small and short: this shows that the experiment works, and measures nothing
    #[arg(long)]
    pub quick: bool,
    /// The number of threads; each runs one simulation at a time. Default: one for each core
    #[arg(long, value_parser = clap::value_parser!(u16).range(1..=MOST_JOBS))]
    pub jobs: Option<u16>,
}

/// More threads than any machine has cores. Each one has a simulation in memory.
pub const MOST_JOBS: i64 = 1024;
/// The largest number of repetitions: the results of all are kept until the last one ends.
const MOST_SEEDS: u64 = 10_000;

/// Parses `A..B`.
///
/// # Errors
/// When the text is not such a range.
pub fn seeds(text: &str) -> Result<Range<u64>, String> {
    let range = text
        .split_once("..")
        .and_then(|(from, to)| Some(from.parse().ok()?..to.parse().ok()?));
    range
        .filter(|range| !range.is_empty())
        .ok_or_else(|| "expected A..B with A smaller than B, such as 0..100".to_owned())
}

/// Parses `A..B`, with a length that an experiment can run.
fn few_seeds(text: &str) -> Result<Range<u64>, String> {
    let range = seeds(text)?;
    let many = range.end - range.start;
    if many > MOST_SEEDS {
        Err(format!(
            "{many} seeds are too many for an experiment: at most {MOST_SEEDS}"
        ))
    } else {
        Ok(range)
    }
}

/// The number of threads: the requested number, or one for each core.
pub fn threads(asked: Option<u16>) -> usize {
    asked.map_or_else(
        || std::thread::available_parallelism().map_or(1, std::num::NonZero::get),
        usize::from,
    )
}

/// The command that runs the same experiment with one seed.
fn again(arguments: impl IntoIterator<Item = String>, seed: u64) -> String {
    let mut command = "cargo run --release -p membership-sim --".to_owned();
    let mut arguments = arguments.into_iter();
    while let Some(argument) = arguments.next() {
        match argument.as_str() {
            "--seeds" | "--svg" => {
                arguments.next();
            }
            "--csv" | "--markdown" => {}
            other if other.starts_with("--seeds=") || other.starts_with("--svg=") => {}
            other => {
                let _ = write!(command, " {other}");
            }
        }
    }
    let _ = write!(command, " --seeds {seed}..{}", seed.saturating_add(1));
    command
}

impl Common {
    /// The seeds; without the option this many, from 1 on.
    pub fn seeds_or(&self, many: u64) -> Vec<u64> {
        self.seeds
            .clone()
            .unwrap_or(1..1 + if self.quick { 1 } else { many })
            .collect()
    }

    /// The number of threads.
    pub fn threads(&self) -> usize {
        threads(self.jobs)
    }

    /// Prints the report. The exit code is a failure if a requirement does not hold.
    pub fn print(&self, outcome: Result<Report, Failure>) -> ExitCode {
        let report = match outcome {
            Ok(report) => report,
            Err(failure) => {
                eprintln!("{failure}");
                if let Some(seed) = failure.seed {
                    eprintln!("to reproduce it: {}", again(std::env::args().skip(1), seed));
                }
                return ExitCode::from(2);
            }
        };
        if self.markdown {
            print!("{}", report.markdown());
        }
        for (caption, figures) in report.tables.iter().filter(|_| !self.markdown) {
            if self.csv {
                print!("# {caption}\n{}", figures.csv());
            } else {
                println!("{caption}\n\n{}", figures.text());
            }
        }
        if !self.csv && !self.markdown {
            for note in &report.notes {
                println!("{note}");
            }
        }
        if let Some(path) = &self.svg {
            let drawn = svg::bars(&report.tables);
            if let Err(error) = std::fs::write(path, drawn) {
                eprintln!("{}: {error}", path.display());
                return ExitCode::from(2);
            }
        }
        for missed in &report.missed {
            eprintln!("this requirement does not hold: {missed}");
        }
        ExitCode::from(u8::from(!report.missed.is_empty()))
    }
}

/// The report of an experiment.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// Tables with their captions.
    pub tables: Vec<(String, Figures)>,
    /// Notes: setup, published figures, what is not simulated.
    pub notes: Vec<String>,
    /// Requirements that do not hold.
    pub missed: Vec<String>,
}

impl Report {
    /// Adds a table.
    pub fn table(&mut self, caption: impl Into<String>, figures: Figures) {
        self.tables.push((caption.into(), figures));
    }

    /// Adds a note.
    pub fn note(&mut self, note: impl Into<String>) {
        self.notes.push(note.into());
    }

    /// Adds a requirement; `what` is reported if it does not hold.
    pub fn must(&mut self, holds: bool, what: impl Into<String>) {
        if !holds {
            self.missed.push(what.into());
        }
    }

    /// Adds another report behind this one.
    pub fn append(&mut self, more: Self) {
        self.tables.extend(more.tables);
        for note in more.notes {
            if !self.notes.contains(&note) {
                self.notes.push(note);
            }
        }
        self.missed.extend(more.missed);
    }

    /// The report as Markdown.
    pub fn markdown(&self) -> String {
        let mut text = String::new();
        for (caption, figures) in &self.tables {
            let _ = write!(text, "{caption}\n\n{}\n", figures.markdown());
        }
        for note in &self.notes {
            let _ = write!(text, "{note}\n\n");
        }
        for missed in &self.missed {
            let _ = write!(text, "**Must hold, and does not:** {missed}\n\n");
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_is_reproduced_with_its_seed_alone() {
        let arguments = |text: &str| text.split(' ').map(str::to_owned).collect::<Vec<_>>();
        let command = again(
            arguments("pause --silos 30 --seeds 1..9 --csv --svg=a.svg --quick"),
            7,
        );
        assert_eq!(
            command,
            "cargo run --release -p membership-sim -- pause --silos 30 --quick --seeds 7..8"
        );
        let command = again(arguments("split --svg a.svg --seeds=1..9"), 7);
        assert_eq!(
            command,
            "cargo run --release -p membership-sim -- split --seeds 7..8"
        );
    }

    #[test]
    fn seeds_are_limited() {
        assert_eq!(seeds("0..18446744073709551615"), Ok(0..u64::MAX));
        assert_eq!(few_seeds("5..10005"), Ok(5..10_005));
        assert!(
            few_seeds("0..18446744073709551615")
                .unwrap_err()
                .contains("at most 10000")
        );
        assert!(few_seeds("3..3").is_err());
    }
}
