//! `campaign`: many seeds, side by side; what broke, and whether enough happened for the rest to mean something.

#![allow(clippy::print_stdout, clippy::print_stderr, clippy::cast_precision_loss, reason = "what the command answers")]

use std::collections::BTreeMap;
use std::num::NonZero;
use std::ops::Range;
use std::process::ExitCode;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use indicatif::ProgressBar;
use membership_core::testing::campaign::{self, CampaignOptions, Fault, Outcome};
use membership_core::testing::{Stats, Violation};

use crate::work;

/// What of a run is counted.
type Count = fn(&Stats) -> u64;

/// So much of everything must have happened in each run on the average, or the campaign proves nothing.
const FLOORS: &[(&str, Count, u64)] = &[
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
/// Each kind of fault must have been drawn in at least one of so many runs.
const SHARE: u64 = 20;
/// With fewer runs not every kind of fault is drawn.
const ENOUGH: u64 = 20;

/// Seeds that run every time, with `--daily`.
const FIXED: Range<u64> = 0..40;
/// After so long, with `--daily`, no further seed begins.
const DAILY: Duration = Duration::from_secs(4 * 60);
/// So many seeds belong to a day.
const OF_A_DAY: u64 = 10_000;

/// Which seeds, and of what kind.
#[derive(clap::Args)]
pub struct Campaign {
    /// The seeds, as A..B; B is not among them
    #[arg(long, value_name = "A..B", default_value = "0..100", value_parser = crate::report::seeds)]
    seeds: Range<u64>,
    /// The seeds 0..40, and then those of today (days since 1970 × 10,000 and on) for four minutes in all
    #[arg(long, conflicts_with = "seeds")]
    daily: bool,
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

#[derive(Default)]
struct Sum {
    runs: u64,
    stats: Stats,
    kinds: BTreeMap<Fault, u64>,
    broken: Vec<Violation>,
    last: u64,
}

/// How many days have passed since 1970: whoever runs tomorrow runs other seeds.
fn today() -> u64 {
    std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).map_or(0, |since| since.as_secs() / 86_400)
}

impl Sum {
    fn count(&mut self, seed: u64, outcome: Result<Outcome, Violation>, bar: &ProgressBar) {
        self.runs += 1;
        self.last = self.last.max(seed);
        match outcome {
            Ok(outcome) => {
                self.stats.add(&outcome.stats);
                for kind in outcome.kinds {
                    *self.kinds.entry(kind).or_default() += 1;
                }
            }
            Err(violation) => {
                bar.suspend(|| eprintln!("seed {seed}: {} is broken: {}", violation.invariant(), violation.what()));
                self.broken.push(violation);
                bar.set_message(format!(", {} broken", self.broken.len()));
            }
        }
    }
}

impl Campaign {
    pub fn run(&self) -> ExitCode {
        let began = Instant::now();
        let mut sum = Sum::default();
        if self.daily {
            self.over(FIXED, None, &mut sum);
            let first = today() * OF_A_DAY;
            let left = DAILY.saturating_sub(began.elapsed());
            self.over(first..first + OF_A_DAY, Some(left), &mut sum);
            println!("seeds {}..{} and of today {first}..{}", FIXED.start, FIXED.end, sum.last + 1);
        } else {
            self.over(self.seeds.clone(), None, &mut sum);
            println!("seeds {}..{}", self.seeds.start, self.seeds.end);
        }
        self.report(&sum, began.elapsed().as_secs_f64())
    }

    fn options(&self) -> CampaignOptions {
        CampaignOptions { silos: self.silos.into(), minutes: self.minutes, ..CampaignOptions::default() }
    }

    /// Runs these seeds, or as many of them as begin within the time.
    fn over(&self, seeds: Range<u64>, within: Option<Duration>, sum: &mut Sum) {
        let options = self.options();
        let jobs = self.jobs.or_else(|| std::thread::available_parallelism().ok()).map_or(1, NonZero::get);
        let bar = if within.is_some() { ProgressBar::no_length() } else { work::bar(seeds.end - seeds.start, "seeds") };
        let (next, all, began) = (AtomicU64::new(seeds.start), Mutex::new(std::mem::take(sum)), Instant::now());
        std::thread::scope(|scope| {
            for _ in 0..jobs {
                scope.spawn(|| {
                    while within.is_none_or(|most| began.elapsed() < most) {
                        let seed = next.fetch_add(1, Ordering::Relaxed);
                        if seed >= seeds.end {
                            return;
                        }
                        let outcome = campaign::run(seed, &options);
                        all.lock().unwrap_or_else(PoisonError::into_inner).count(seed, outcome, &bar);
                        bar.inc(1);
                    }
                });
            }
        });
        bar.finish_and_clear();
        *sum = all.into_inner().unwrap_or_else(PoisonError::into_inner);
    }

    fn report(&self, sum: &Sum, took: f64) -> ExitCode {
        let s = &sum.stats;
        println!(
            "{} runs of {} silos for {} virtual minutes, in {took:.0} s ({:.1} s each on one thread)",
            sum.runs,
            self.silos,
            self.minutes,
            took * self.jobs.or_else(|| std::thread::available_parallelism().ok()).map_or(1, NonZero::get) as f64 / sum.runs.max(1) as f64
        );
        println!("{} inputs, {} messages, {} commits, {} views, {} silos voted out", s.inputs, s.sent, s.commits, s.views, s.voted_out);
        let kinds: Vec<String> = Fault::ALL.iter().map(|kind| format!("{kind:?} {}", sum.kinds.get(kind).unwrap_or(&0))).collect();
        println!("runs by kind of fault: {}", kinds.join(", "));
        let mut code = ExitCode::SUCCESS;
        let whole = sum.runs - sum.broken.len() as u64;
        if whole >= ENOUGH {
            for kind in Fault::ALL {
                let runs = sum.kinds.get(&kind).copied().unwrap_or(0);
                if runs < whole / SHARE {
                    println!("too little happened: {kind:?} in {runs} of {whole} runs, at least one in {SHARE} is due");
                    code = ExitCode::from(1);
                }
            }
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
            let seed = violation.seed();
            println!("  again, line by line: {}", campaign::replay_command(seed, &self.options()));
            println!("  smaller: {}", campaign::shrink_command(seed, &self.options()));
            code = ExitCode::from(1);
        }
        if broken.is_empty() {
            println!("every invariant held in every run");
        }
        code
    }
}
