//! What an experiment found out, and how it is told.

#![allow(clippy::print_stdout, clippy::print_stderr, reason = "what the commands answer")]

use std::fmt::Write as _;
use std::ops::Range;
use std::path::PathBuf;
use std::process::ExitCode;

use crate::arena::Trouble;
use crate::figures::Figures;
use crate::svg;

/// What every experiment can be told.
#[derive(clap::Args, Clone, Debug, Default)]
pub struct Common {
    /// The seeds, as A..B; B is not among them. Each decides every throw of the dice of one repetition
    #[arg(long, value_name = "A..B", value_parser = seeds)]
    pub seeds: Option<Range<u64>>,
    /// Comma-separated values
    #[arg(long)]
    pub csv: bool,
    /// For a document in Markdown
    #[arg(long, conflicts_with = "csv")]
    pub markdown: bool,
    /// Draws the first table into this file as well
    #[arg(long, value_name = "FILE")]
    pub svg: Option<PathBuf>,
    /// Small and short: shows that it works, not what it measures
    #[arg(long)]
    pub quick: bool,
    /// Threads; each runs one world at a time. By default one for each core
    #[arg(long)]
    pub jobs: Option<std::num::NonZero<usize>>,
}

/// `A..B`.
///
/// # Errors
/// When it is not that.
pub fn seeds(text: &str) -> Result<Range<u64>, String> {
    let range = text.split_once("..").and_then(|(from, to)| Some(from.parse().ok()?..to.parse().ok()?));
    range.filter(|range| !range.is_empty()).ok_or_else(|| "expected A..B with A smaller than B, such as 0..100".to_owned())
}

impl Common {
    /// The seeds, or so many from 1 on.
    pub fn seeds_or(&self, many: u64) -> Vec<u64> {
        self.seeds.clone().unwrap_or(1..1 + if self.quick { 1 } else { many }).collect()
    }

    /// How many threads.
    pub fn threads(&self) -> usize {
        self.jobs.or_else(|| std::thread::available_parallelism().ok()).map_or(1, std::num::NonZero::get)
    }

    /// Prints what came of it; failure when something that must hold does not.
    pub fn tell(&self, outcome: Result<Report, Trouble>) -> ExitCode {
        let report = match outcome {
            Ok(report) => report,
            Err(trouble) => {
                eprintln!("{trouble}");
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
            let drawn = report.tables.first().map(|(caption, figures)| svg::bars(caption, figures)).unwrap_or_default();
            if let Err(error) = std::fs::write(path, drawn) {
                eprintln!("{}: {error}", path.display());
                return ExitCode::from(2);
            }
        }
        for missed in &report.missed {
            eprintln!("must hold, and does not: {missed}");
        }
        ExitCode::from(u8::from(!report.missed.is_empty()))
    }
}

/// What an experiment found out.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// Tables with their captions.
    pub tables: Vec<(String, Figures)>,
    /// What belongs to them: setup, published figures, what is not simulated.
    pub notes: Vec<String>,
    /// What must hold and does not.
    pub missed: Vec<String>,
}

impl Report {
    /// A table more.
    pub fn table(&mut self, caption: impl Into<String>, figures: Figures) {
        self.tables.push((caption.into(), figures));
    }

    /// A note more.
    pub fn note(&mut self, note: impl Into<String>) {
        self.notes.push(note.into());
    }

    /// Something must hold.
    pub fn must(&mut self, holds: bool, what: impl Into<String>) {
        if !holds {
            self.missed.push(what.into());
        }
    }

    /// For a document.
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
