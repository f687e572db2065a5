//! `campaign`: many seeds, side by side; what broke, and whether enough happened for the rest to mean something.

#![allow(clippy::print_stdout, clippy::print_stderr, reason = "what the command answers")]

use std::collections::BTreeMap;
use std::num::NonZero;
use std::ops::Range;
use std::process::ExitCode;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use indicatif::{ProgressBar, ProgressStyle};
use membership_core::testing::campaign::{self, CampaignOptions, Fault};
use membership_core::testing::{Stats, Violation};

/// So much of everything must have happened in each run on the average, or the campaign proves nothing.
const FLOORS: &[(&str, fn(&Stats) -> u64, u64)] = &[
    ("dropped messages", |s| s.dropped, 500),
    ("kills", |s| s.kills, 2),
    ("restarts", |s| s.restarts, 1),
    ("pauses", |s| s.pauses, 1),
    ("leaves", |s| s.leaves, 1),
    ("blocked directions", |s| s.blocks, 10),
    ("conflicts", |s| s.conflicts, 5),
    ("unknown outcomes", |s| s.unknown, 1),
    ("failed table calls", |s| s.failed_calls, 5),
    ("commits", |s| s.commits, 30),
    ("views", |s| s.views, 500),
    ("silos voted out", |s| s.voted_out, 2),
    ("wrong clocks", |s| s.clock_offsets, 1),
];
/// With fewer runs not every kind of fault is drawn.
const ENOUGH: u64 = 20;

/// Which seeds, and of what kind.
#[derive(clap::Args)]
pub struct Campaign {
    /// The seeds, as A..B; B is not among them
    #[arg(long, value_name = "A..B", default_value = "0..100", value_parser = seeds)]
    seeds: Range<u64>,
    /// Silos of each cluster
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u16).range(5..=1000))]
    silos: u16,
    /// Virtual minutes of faults
    #[arg(long, default_value_t = 30, value_parser = clap::value_parser!(u64).range(1..=1440))]
    minutes: u64,
    /// Threads; each runs one cluster at a time. By default one for each core
    #[arg(long)]
    jobs: Option<NonZero<usize>>,
}

fn seeds(text: &str) -> Result<Range<u64>, String> {
    let range = text.split_once("..").and_then(|(from, to)| Some(from.parse().ok()?..to.parse().ok()?));
    range.filter(|range| !range.is_empty()).ok_or_else(|| "expected A..B with A smaller than B, such as 0..100".to_owned())
}

#[derive(Default)]
struct Sum {
    runs: u64,
    stats: Stats,
    kinds: BTreeMap<Fault, u64>,
    broken: Vec<Violation>,
}

impl Campaign {
    pub fn run(&self) -> ExitCode {
        let options = CampaignOptions { silos: self.silos.into(), minutes: self.minutes, ..CampaignOptions::default() };
        let jobs = self.jobs.or_else(|| std::thread::available_parallelism().ok()).map_or(1, NonZero::get);
        let (next, sum) = (AtomicU64::new(self.seeds.start), Mutex::new(Sum::default()));
        let bar = ProgressBar::new(self.seeds.end - self.seeds.start);
        bar.set_style(
            ProgressStyle::with_template("{bar:40} {pos} of {len} seeds, {eta} left{msg}").unwrap_or_else(|_| ProgressStyle::default_bar()),
        );
        let began = Instant::now();
        std::thread::scope(|scope| {
            for _ in 0..jobs {
                scope.spawn(|| {
                    loop {
                        let seed = next.fetch_add(1, Ordering::Relaxed);
                        if seed >= self.seeds.end {
                            return;
                        }
                        let outcome = campaign::run(seed, &options);
                        let Ok(mut sum) = sum.lock() else { return };
                        sum.runs += 1;
                        match outcome {
                            Ok(outcome) => {
                                sum.stats.add(&outcome.stats);
                                for kind in outcome.kinds {
                                    *sum.kinds.entry(kind).or_default() += 1;
                                }
                            }
                            Err(violation) => {
                                bar.suspend(|| eprintln!("seed {seed}: {} is broken: {}", violation.invariant(), violation.what()));
                                sum.broken.push(violation);
                                bar.set_message(format!(", {} broken", sum.broken.len()));
                            }
                        }
                        drop(sum);
                        bar.inc(1);
                    }
                });
            }
        });
        bar.finish_and_clear();
        let sum = sum.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner);
        self.report(&sum, began.elapsed().as_secs_f64())
    }

    fn report(&self, sum: &Sum, took: f64) -> ExitCode {
        let s = &sum.stats;
        println!(
            "seeds {}..{}: {} runs of {} silos for {} virtual minutes, in {took:.0} s",
            self.seeds.start, self.seeds.end, sum.runs, self.silos, self.minutes
        );
        println!("{} inputs, {} messages, {} commits, {} views, {} silos voted out", s.inputs, s.sent, s.commits, s.views, s.voted_out);
        let kinds: Vec<String> = Fault::ALL.iter().map(|kind| format!("{kind:?} {}", sum.kinds.get(kind).unwrap_or(&0))).collect();
        println!("runs by kind of fault: {}", kinds.join(", "));
        let mut code = ExitCode::SUCCESS;
        let whole = sum.runs - sum.broken.len() as u64;
        if whole >= ENOUGH {
            for (what, count, floor) in FLOORS {
                if count(s) < whole * floor {
                    println!("too little happened: {} {what} in {whole} runs, at least {floor} in each are due", count(s));
                    code = ExitCode::from(1);
                }
            }
        }
        let mut broken: Vec<&Violation> = sum.broken.iter().collect();
        broken.sort_by_key(|violation| violation.seed());
        for violation in &broken {
            println!("broken: {} by seed {}: {}", violation.invariant(), violation.seed(), violation.what());
            println!(
                "  again: cargo run --release -p membership-sim -- replay {} --silos {} --minutes {}",
                violation.seed(),
                self.silos,
                self.minutes
            );
            code = ExitCode::from(1);
        }
        if broken.is_empty() {
            println!("every invariant held in every run");
        }
        code
    }
}
