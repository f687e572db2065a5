//! `campaign` runs many seeds side by side, and reports violations, and whether enough happened for
//! the result to mean something.

#![allow(
    clippy::print_stdout,
    clippy::print_stderr,
    clippy::cast_precision_loss,
    reason = "the output of the command"
)]

mod floors;
mod gossip;

use std::collections::BTreeMap;
use std::ops::Range;
use std::process::ExitCode;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use indicatif::ProgressBar;
use membership_testing::campaign::{self, CampaignOptions, Fault, Outcome};
use membership_testing::{Stats, Violation};

use crate::{report, work};

/// The number of seeds of one day.
const OF_A_DAY: u64 = 10_000;

/// Which seeds, and the size of the clusters.
#[derive(clap::Args)]
pub struct Campaign {
    /// The seeds, as A..B, without B
    #[arg(long, value_name = "A..B", default_value = "0..100", value_parser = crate::report::seeds)]
    seeds: Range<u64>,
    /// Run the seeds of today (days since 1970 × 10,000 and on), as many as start within the time
    /// of --for
    #[arg(long, conflicts_with = "seeds")]
    daily: bool,
    /// How long --daily starts further seeds
    #[arg(long = "for", value_name = "SECONDS", default_value_t = 60, requires = "daily", value_parser = clap::value_parser!(u64).range(1..=86_400))]
    seconds: u64,
    /// Silos of each cluster
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u16).range(2..=1000))]
    silos: u16,
    /// Virtual minutes of faults
    #[arg(long, default_value_t = 30, value_parser = clap::value_parser!(u64).range(1..=1440))]
    minutes: u64,
    /// A stranger, former members and one member forge messages of every kind all the time
    #[arg(long)]
    hostile: bool,
    /// One silo writes the changes of many
    #[arg(long)]
    scribe: bool,
    /// With --scribe: every other silo that starts does without
    #[arg(long, requires = "scribe")]
    mixed: bool,
    /// Members without a store: the rules G1 to G17, in as long as their faults take
    #[arg(long, conflicts_with_all = ["daily", "hostile", "scribe", "minutes"])]
    gossip: bool,
    /// The number of threads; each runs one cluster at a time. Default: one for each core
    #[arg(long, value_parser = clap::value_parser!(u16).range(1..=report::MOST_JOBS))]
    jobs: Option<u16>,
}

#[derive(Default)]
struct Sum {
    runs: u64,
    stats: Stats,
    kinds: BTreeMap<Fault, u64>,
    broken: Vec<Violation>,
    last: u64,
}

/// The number of days since 1970, so that each day has other seeds.
fn today() -> u64 {
    std::time::SystemTime::now()
        .duration_since(std::time::UNIX_EPOCH)
        .map_or(0, |since| since.as_secs() / 86_400)
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
                bar.suspend(|| {
                    eprintln!(
                        "seed {seed}: {} is violated: {}",
                        violation.invariant(),
                        violation.what()
                    )
                });
                self.broken.push(violation);
                bar.set_message(format!(", {} violations", self.broken.len()));
            }
        }
    }
}

impl Campaign {
    pub fn run(&self) -> ExitCode {
        if self.gossip {
            return gossip::run(self.seeds.clone(), self.silos.into(), self.jobs);
        }
        let began = Instant::now();
        let mut sum = Sum::default();
        if self.daily {
            let first = today() * OF_A_DAY;
            let time = Duration::from_secs(self.seconds);
            let at_least = floors::ENOUGH;
            self.over(first..first + OF_A_DAY, Some((time, at_least)), &mut sum);
            println!("seeds of today {first}..{}", sum.last + 1);
        } else {
            self.over(self.seeds.clone(), None, &mut sum);
            println!("seeds {}..{}", self.seeds.start, self.seeds.end);
        }
        self.report(&sum, began.elapsed().as_secs_f64())
    }

    fn options(&self) -> CampaignOptions {
        CampaignOptions {
            silos: self.silos.into(),
            minutes: self.minutes,
            hostile: self.hostile,
            scribe: self.scribe,
            mixed: self.mixed,
            ..CampaignOptions::default()
        }
    }

    /// Runs these seeds, or as many of them as start within the time, but at least that number.
    fn over(&self, seeds: Range<u64>, within: Option<(Duration, u64)>, sum: &mut Sum) {
        let options = self.options();
        let jobs = report::threads(self.jobs)
            .min(usize::try_from(seeds.end - seeds.start).unwrap_or(usize::MAX));
        let bar = if within.is_some() {
            ProgressBar::no_length()
        } else {
            work::bar(seeds.end - seeds.start, "seeds")
        };
        let (next, all, began) = (
            AtomicU64::new(seeds.start),
            Mutex::new(std::mem::take(sum)),
            Instant::now(),
        );
        std::thread::scope(|scope| {
            for _ in 0..jobs {
                scope.spawn(|| {
                    loop {
                        let seed = next.fetch_add(1, Ordering::Relaxed);
                        let late = within.is_some_and(|(most, at_least)| {
                            began.elapsed() >= most && seed >= seeds.start + at_least
                        });
                        if late || seed >= seeds.end {
                            return;
                        }
                        let outcome = campaign::run(seed, &options);
                        all.lock()
                            .unwrap_or_else(PoisonError::into_inner)
                            .count(seed, outcome, &bar);
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
            took * report::threads(self.jobs) as f64 / sum.runs.max(1) as f64
        );
        println!(
            "{} inputs, {} messages; {}",
            s.inputs,
            s.sent,
            floors::counts(s)
        );
        let kinds: Vec<String> = Fault::ALL
            .iter()
            .map(|kind| format!("{kind:?} {}", sum.kinds.get(kind).unwrap_or(&0)))
            .collect();
        println!("runs by kind of fault: {}", kinds.join(", "));
        let mut code = ExitCode::SUCCESS;
        let whole = sum.runs - sum.broken.len() as u64;
        for missed in floors::missed(whole, self.silos.into(), self.minutes, s, &sum.kinds) {
            println!("too few events: {missed}");
            code = ExitCode::from(1);
        }
        let mut broken: Vec<&Violation> = sum.broken.iter().collect();
        broken.sort_by_key(|violation| violation.seed());
        for violation in &broken {
            println!(
                "broken: {} by seed {}: {}",
                violation.invariant(),
                violation.seed(),
                violation.what()
            );
            let seed = violation.seed();
            println!(
                "  again, line by line: {}",
                campaign::replay_command(seed, &self.options())
            );
            println!(
                "  smaller: {}",
                campaign::shrink_command(seed, &self.options())
            );
            code = ExitCode::from(1);
        }
        if broken.is_empty() {
            println!("every invariant held in every run");
        }
        code
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn todays_first_seeds_run_however_late_it_is() {
        let campaign = Campaign {
            seeds: 0..1,
            daily: true,
            seconds: 60,
            silos: 5,
            hostile: false,
            scribe: false,
            mixed: false,
            gossip: false,
            minutes: 1,
            jobs: Some(3),
        };
        let mut sum = Sum::default();
        campaign.over(7..30, Some((Duration::ZERO, 2)), &mut sum);
        assert_eq!((sum.runs, sum.last), (2, 8));
    }
}
