//! Reads many inputs of one target.

use std::collections::HashSet;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::{Duration, Instant};

use crate::{Mutator, Outcome, Target};

/// How many inputs others are made from, at most.
const KEPT: usize = 2_000;

/// What a campaign did so far.
#[derive(Clone, Copy, Debug, Default)]
#[non_exhaustive]
pub struct Report {
    /// Inputs that were read.
    pub inputs: u64,
    /// Bytes of all of them.
    pub bytes: u64,
    /// Different outcomes.
    pub outcomes: usize,
    /// The longest time that one input took.
    pub slowest: Duration,
}

/// An input with an outcome that was not seen before.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Found {
    /// The input.
    pub input: Vec<u8>,
}

/// An input that breaks a rule.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Broken {
    /// The input.
    pub input: Vec<u8>,
    /// What the target says.
    pub why: String,
}

/// Reads one input.
///
/// # Errors
/// It breaks a rule.
pub fn repeat(target: &Target, input: &[u8]) -> Result<Outcome, Broken> {
    catch_unwind(AssertUnwindSafe(|| (target.read)(input))).map_err(|panic| {
        let text = panic.downcast_ref::<String>().cloned();
        let text = text.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned()));
        Broken {
            input: input.to_vec(),
            why: text.unwrap_or_else(|| "a panic without a text".to_owned()),
        }
    })
}

/// Reads inputs made from the target's valid ones and from `more`, until `goes_on` says no: it is
/// asked now and then. Returns what was done, and the inputs that led to new outcomes.
///
/// # Errors
/// The first input that breaks a rule.
pub fn campaign(
    target: &Target,
    seed: u64,
    more: Vec<Vec<u8>>,
    mut goes_on: impl FnMut(&Report) -> bool,
) -> Result<(Report, Vec<Found>), Broken> {
    let mut mutator = Mutator::new(seed);
    let (mut report, mut seen, mut found) = (Report::default(), HashSet::new(), Vec::new());
    let mut pool: Vec<Vec<u8>> = Vec::new();
    for mut input in (target.seeds)().into_iter().chain(more) {
        input.truncate(target.longest);
        let outcome = read(target, &input, &mut report)?;
        seen.insert(outcome);
        pool.push(input);
    }
    if pool.is_empty() {
        pool.push(Vec::new());
    }
    while goes_on(&report) {
        for _ in 0..64 {
            let mut input = pool[mutator.below(pool.len())].clone();
            let other = mutator.below(pool.len());
            mutator.change(&mut input, &pool[other], target.words, target.longest);
            let outcome = read(target, &input, &mut report)?;
            if seen.insert(outcome) {
                let shown = Found {
                    input: input.clone(),
                };
                found.push(shown);
                if pool.len() < KEPT {
                    pool.push(input);
                } else {
                    let old = mutator.below(pool.len());
                    pool[old] = input;
                }
            }
        }
        report.outcomes = seen.len();
    }
    report.outcomes = seen.len();
    Ok((report, found))
}

fn read(target: &Target, input: &[u8], report: &mut Report) -> Result<Outcome, Broken> {
    let since = Instant::now();
    let outcome = repeat(target, input)?;
    report.inputs += 1;
    report.bytes += input.len() as u64;
    report.slowest = report.slowest.max(since.elapsed());
    Ok(outcome)
}
