//! `campaign --gossip`: members without a store, under the rules G1 to G17.

use std::ops::Range;
use std::process::ExitCode;
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use membership_testing::gossip::campaign::{self, Broken, Counts, Fault, Options};

use crate::{report, work};

/// With fewer runs some situations do not occur, or not often enough.
const ENOUGH: u64 = 24;
/// The size of the clusters for which the floors are written.
const MEMBERS: usize = 20;
/// The lines of one violation that are printed.
const LINES: usize = 12;

/// How often in a hundred runs of [`MEMBERS`] members something must have happened for a rule to have
/// judged anything: at most half of what is usual. Smaller clusters have a share of it.
const FLOORS: [(&str, &str, u64); 19] = [
    ("G1", "merges of different states", 30),
    ("G2", "steps", 30_000),
    ("G3", "removals", 3_000),
    ("G4", "agreements", 5_000),
    ("G5", "states held by several", 15_000),
    ("G6, G7", "sets of flags", 40_000),
    ("G8", "leaders", 200),
    ("G9", "flags", 2_500),
    ("G9", "resumed", 70),
    ("G9, G16", "calm times", 80),
    ("G10", "decisions compared", 400),
    ("G11", "splits judged", 80),
    ("G11", "clean splits with a change under way", 12),
    ("G11", "down-unreachable", 40),
    ("G12", "members downed in a split while they live", 800),
    ("G13", "agreed at the end", 160),
    ("G14", "foundings", 80),
    ("G15", "members that were gone and met one that knew", 4),
    ("G16", "states that arrived", 30_000),
];

/// What happened in all runs.
#[derive(Default)]
struct Sum {
    counts: Counts,
    broken: Vec<(u64, Box<Broken>)>,
}

pub(super) fn run(seeds: Range<u64>, members: usize, jobs: Option<u16>) -> ExitCode {
    let began = Instant::now();
    let options = Options {
        members,
        ..Options::default()
    };
    let all: Vec<u64> = seeds.clone().collect();
    let sum = Mutex::new(Sum::default());
    work::side_by_side("seeds", &all, report::threads(jobs), |seed| {
        let outcome = campaign::run(*seed, &options);
        let mut sum = sum.lock().unwrap_or_else(PoisonError::into_inner);
        match outcome {
            Ok(counts) => {
                for (what, n) in counts {
                    *sum.counts.entry(what).or_default() += n;
                }
            }
            Err(broken) => {
                eprintln!(
                    "seed {seed}: {}",
                    broken.violations.first().map_or("", |v| v)
                );
                sum.broken.push((*seed, broken));
            }
        }
    });
    let sum = sum.into_inner().unwrap_or_else(PoisonError::into_inner);
    let (runs, took) = (all.len() as u64, began.elapsed().as_secs_f64());
    println!("seeds {}..{}", seeds.start, seeds.end);
    println!("{runs} runs of {members} members without a store, in {took:.0} s");
    print(sum, runs, members)
}

fn print(mut sum: Sum, runs: u64, members: usize) -> ExitCode {
    let counts = sum.counts.iter().map(|(what, n)| format!("{n} {what}"));
    println!("{}", counts.collect::<Vec<_>>().join(", "));
    let mut code = ExitCode::SUCCESS;
    for missed in missed(&sum.counts, runs - sum.broken.len() as u64, members) {
        println!("too few events: {missed}");
        code = ExitCode::from(1);
    }
    sum.broken.sort_by_key(|(seed, _)| *seed);
    for (seed, broken) in &sum.broken {
        println!("broken by seed {seed}:");
        for line in broken.violations.iter().take(LINES) {
            println!("  {line}");
        }
        println!("  after:");
        for line in &broken.story {
            println!("    {line}");
        }
        let next = seed + 1;
        println!(
            "  again: cargo run --release -p membership-sim -- campaign --gossip --silos {members} --seeds {seed}..{next}"
        );
        code = ExitCode::from(1);
    }
    if sum.broken.is_empty() {
        println!("every rule held in every run");
    }
    code
}

/// What happened too seldom, as messages of an error; none for few runs.
fn missed(counts: &Counts, runs: u64, members: usize) -> Vec<String> {
    if runs < ENOUGH {
        return Vec::new();
    }
    let count = |what: &str| counts.get(what).copied().unwrap_or(0);
    // What happens among members grows with their pairs.
    let (members, most) = (members.min(MEMBERS) as u64, MEMBERS as u64);
    let share = |due: u64| due * members * members / (most * most);
    let faults = Fault::ALL.map(|fault| ("the faults", fault.name(), runs * 10));
    let floors = FLOORS.map(|(rule, what, due)| (rule, what, share(runs * due)));
    // Rare events vary, so three times the square root is subtracted.
    let due = |due: u64| {
        let due = due / 100;
        due.saturating_sub(3 * due.isqrt()).max(due.min(1))
    };
    let all = faults.into_iter().chain(floors);
    let all = all.map(|(rule, what, hundredths)| (rule, what, due(hundredths)));
    all.filter(|(_, what, due)| count(what) < *due)
        .map(|(rule, what, due)| {
            let count = count(what);
            format!("{count} {what} ({rule}) in {runs} runs, at least {due} are expected")
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_campaign_in_which_nothing_happens_misses_every_floor() {
        let all = Fault::ALL.len() + FLOORS.len();
        assert_eq!(missed(&Counts::new(), 100, 20).len(), all);
        assert_eq!(missed(&Counts::new(), ENOUGH - 1, 20), Vec::<String>::new());
    }

    #[test]
    fn few_members_have_a_share_of_the_floors() {
        let counts: Counts = FLOORS.iter().map(|(_, what, n)| (*what, n / 4)).collect();
        let rules = |members| {
            let all = missed(&counts, 100, members);
            all.iter().filter(|line| line.contains("(G")).count()
        };
        assert!(rules(20) > 0);
        assert_eq!(rules(4), 0);
    }
}
