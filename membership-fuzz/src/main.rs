//! `membership-fuzz`: reads millions of damaged inputs.
#![allow(clippy::print_stdout, reason = "it is what the program is for")]

use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use clap::{Parser, Subcommand};
use membership_fuzz::{Broken, Found, Report, TARGETS, Target, campaign, repeat, target};

/// More memory than this is a finding: readers bound what they take from others.
const MOST_MEMORY: u64 = 1 << 30;
/// The kept inputs of a target, at most, and the longest of them.
const MOST_KEPT: usize = 64;
const LONGEST_KEPT: usize = 4096;

/// Reads inputs that are damaged in many ways, and reports the first one that breaks a rule.
#[derive(Debug, Parser)]
#[command(version)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Lists the targets.
    List,
    /// Makes and reads inputs, of all targets or of some, one target after the other.
    Run {
        /// The targets; all of them if none is named.
        targets: Vec<String>,
        /// How many inputs, of all targets together.
        #[arg(long, default_value_t = 1_000_000)]
        inputs: u64,
        /// How many threads.
        #[arg(long, default_value_t = 1)]
        jobs: u64,
        /// Inputs are made from this number; another one makes others.
        #[arg(long, default_value_t = 1)]
        seed: u64,
        /// The folder of inputs to begin with, one folder per target.
        #[arg(long, default_value = "fuzz/corpus")]
        corpus: PathBuf,
        /// Adds inputs with new outcomes to that folder.
        #[arg(long)]
        keep: bool,
    },
    /// Reads one input again.
    Repeat {
        /// The target.
        target: String,
        /// The file of the input.
        file: PathBuf,
    },
}

fn main() -> anyhow::Result<()> {
    match Arguments::parse().command {
        Command::List => {
            for target in TARGETS {
                println!("{:12} {}", target.name, target.about);
            }
            Ok(())
        }
        Command::Run {
            targets,
            inputs,
            jobs,
            seed,
            corpus,
            keep,
        } => {
            let targets = named(&targets)?;
            let each = inputs.div_ceil(targets.len() as u64);
            for target in targets {
                let more = kept(&corpus, target)?;
                run(target, each, jobs.max(1), seed, &more)
                    .map(|found| (target, found))
                    .and_then(|(target, found)| {
                        if keep {
                            store(&corpus, target, &found)
                        } else {
                            Ok(())
                        }
                    })?;
            }
            Ok(())
        }
        Command::Repeat { target, file } => {
            let target = named(&[target])?[0];
            let input = fs::read(&file).with_context(|| file.display().to_string())?;
            match repeat(target, &input) {
                Ok(outcome) => println!("no rule is broken: {outcome:?}"),
                Err(broken) => bail!("{}: {}", target.name, broken.why),
            }
            Ok(())
        }
    }
}

fn named(names: &[String]) -> anyhow::Result<Vec<&'static Target>> {
    if names.is_empty() {
        return Ok(TARGETS.iter().collect());
    }
    let one = |name: &String| {
        target(name).with_context(|| {
            format!("no target is called `{name}`: `membership-fuzz list` shows them")
        })
    };
    names.iter().map(one).collect()
}

/// Reads `inputs` inputs with several threads.
fn run(
    target: &'static Target,
    inputs: u64,
    jobs: u64,
    seed: u64,
    more: &[Vec<u8>],
) -> anyhow::Result<Vec<Found>> {
    forget_peak();
    let (done, stop, since) = (AtomicU64::new(0), AtomicBool::new(false), Instant::now());
    type Ended = std::thread::Result<Result<(Report, Vec<Found>), Broken>>;
    let results: Vec<Ended> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..jobs)
            .map(|job| {
                let (done, stop) = (&done, &stop);
                scope.spawn(move || {
                    let (mut before, mut told) = (0, Instant::now());
                    let result = campaign(
                        target,
                        seed.wrapping_mul(jobs).wrapping_add(job),
                        more.to_vec(),
                        |report| {
                            let all = done.fetch_add(report.inputs - before, Relaxed)
                                + report.inputs
                                - before;
                            before = report.inputs;
                            if job == 0 && told.elapsed() > Duration::from_secs(10) {
                                told = Instant::now();
                                println!("{}", progress(target, all, inputs, since.elapsed()));
                            }
                            all < inputs && !stop.load(Relaxed)
                        },
                    );
                    stop.fetch_or(result.is_err(), Relaxed);
                    result
                })
            })
            .collect();
        threads.into_iter().map(|thread| thread.join()).collect()
    });
    let mut found = Vec::new();
    let mut report = Report::default();
    for result in results {
        let Ok(result) = result else {
            bail!(
                "{}: the runner itself failed, as printed above",
                target.name
            );
        };
        match result {
            Ok((one, new)) => {
                report.outcomes = report.outcomes.max(one.outcomes);
                report.slowest = report.slowest.max(one.slowest);
                found.extend(new);
            }
            Err(broken) => return Err(failure(target, &broken)),
        }
    }
    let memory = peak();
    let shown = memory.map_or_else(
        || "not known".to_owned(),
        |bytes| format!("{} MiB", bytes >> 20),
    );
    println!(
        "{}, {} outcomes, slowest {:.1?}, memory at most {shown}",
        progress(target, done.load(Relaxed), inputs, since.elapsed()),
        report.outcomes,
        report.slowest
    );
    if memory.is_some_and(|bytes| bytes > MOST_MEMORY) {
        bail!("{}: inputs took {shown} of memory", target.name);
    }
    Ok(found)
}

fn progress(target: &Target, done: u64, of: u64, took: Duration) -> String {
    let rate = done as f64 / took.as_secs_f64().max(0.001);
    format!(
        "{:12} {done} of {of} inputs, {rate:.0} a second",
        target.name
    )
}

/// Keeps the input that broke a rule.
fn failure(target: &Target, broken: &Broken) -> anyhow::Error {
    let mut hasher = DefaultHasher::new();
    broken.input.hash(&mut hasher);
    let folder = Path::new("target/fuzz").join(target.name);
    let path = folder.join(format!("{:016x}", hasher.finish()));
    let kept = fs::create_dir_all(&folder).and_then(|()| fs::write(&path, &broken.input));
    let how = match kept {
        Ok(()) => format!(
            "again: membership-fuzz repeat {} {}",
            target.name,
            path.display()
        ),
        Err(error) => format!("the input cannot be kept in {}: {error}", path.display()),
    };
    anyhow::anyhow!("{} breaks a rule: {}\n{how}", target.name, broken.why)
}

fn kept(corpus: &Path, target: &Target) -> anyhow::Result<Vec<Vec<u8>>> {
    let folder = corpus.join(target.name);
    let files = match fs::read_dir(&folder) {
        Ok(files) => files,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(error).with_context(|| folder.display().to_string()),
    };
    let mut paths: Vec<PathBuf> = files.filter_map(|file| Some(file.ok()?.path())).collect();
    paths.sort();
    let read = |path: PathBuf| fs::read(&path).with_context(|| path.display().to_string());
    paths.into_iter().map(read).collect()
}

/// Adds the shortest of these inputs, as long as there are few.
fn store(corpus: &Path, target: &Target, found: &[Found]) -> anyhow::Result<()> {
    let folder = corpus.join(target.name);
    fs::create_dir_all(&folder).with_context(|| folder.display().to_string())?;
    let room = MOST_KEPT.saturating_sub(fs::read_dir(&folder)?.count());
    let mut inputs: Vec<&[u8]> = found.iter().map(|found| &found.input[..]).collect();
    inputs.retain(|input| input.len() <= LONGEST_KEPT);
    inputs.sort_by_key(|input| input.len());
    for input in inputs.into_iter().take(room) {
        let mut hasher = DefaultHasher::new();
        input.hash(&mut hasher);
        let path = folder.join(format!("{:016x}", hasher.finish()));
        fs::write(&path, input).with_context(|| path.display().to_string())?;
    }
    Ok(())
}

/// The most memory that this process had since [`forget_peak`], where the system tells it.
fn peak() -> Option<u64> {
    let status = fs::read_to_string("/proc/self/status").ok()?;
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("VmHWM:"))?;
    let kib: u64 = line.trim().trim_end_matches(" kB").parse().ok()?;
    Some(kib << 10)
}

fn forget_peak() {
    // Where that is not possible the figure is that of all targets so far.
    let _ = fs::write("/proc/self/clear_refs", "5");
}
