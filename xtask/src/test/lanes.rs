//! Shares one after the other, or side by side: the longest first, and one heavy share at a time.
//!
//! The output of a share stays together: if others run beside it, it is shown when the share has
//! ended.

use std::fs::File;
use std::io::{Read, Seek, Write};
use std::process::Command;
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

use super::build::Program;
use super::run::{Outcome, Runner, every_store_has_a_share};
use super::shares::Share;
use crate::{Failure, say};

/// Where the output of a share goes.
#[derive(Debug)]
pub enum Output {
    /// To the terminal, at once.
    Terminal,
    /// Into a file without a name, for later.
    File(File),
}

impl Output {
    /// Prints a line.
    pub fn line(&mut self, text: &str) -> Result<(), Failure> {
        match self {
            Self::Terminal => say(text),
            Self::File(file) => writeln!(file, "{text}")?,
        }
        Ok(())
    }

    /// Directs the output of a command here.
    pub fn attach(&self, command: &mut Command) -> Result<(), Failure> {
        if let Self::File(file) = self {
            command.stdout(file.try_clone()?).stderr(file.try_clone()?);
        }
        Ok(())
    }

    fn text(self) -> Result<String, Failure> {
        let Self::File(mut file) = self else {
            return Ok(String::new());
        };
        let mut bytes = Vec::new();
        file.rewind()?;
        file.read_to_end(&mut bytes)?;
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    }
}

/// Runs all shares, `jobs` at a time; returns their outcomes in the order in which they ended.
///
/// # Errors
/// A program lists no tests, or has tests of a store that no share runs.
pub fn run(
    shares: &[&'static Share],
    jobs: usize,
    runner: &Runner,
    programs: &[Program],
) -> Result<Vec<Outcome>, Failure> {
    every_store_has_a_share(programs)?;
    if jobs <= 1 || shares.len() <= 1 {
        let aloud = |share: &&'static Share| {
            say(&format!("\n=== {}", share.name));
            runner.share(share, programs, &mut Output::Terminal)
        };
        return shares.iter().map(aloud).collect();
    }
    say(&format!("{} shares, {jobs} at once", shares.len()));
    let lanes = Lanes::new(shares, jobs);
    std::thread::scope(|scope| {
        for _ in 0..jobs.min(shares.len()) {
            scope.spawn(|| {
                while let Some(share) = lanes.next() {
                    lanes.done(share, beside_others(share, runner, programs));
                }
            });
        }
    });
    let state = lanes.state.into_inner();
    state
        .unwrap_or_else(PoisonError::into_inner)
        .outcomes
        .into_iter()
        .collect()
}

/// One share, whose output is kept until its end, and then shown at once.
fn beside_others(share: &Share, runner: &Runner, programs: &[Program]) -> Result<Outcome, Failure> {
    let mut output = Output::File(tempfile::tempfile()?);
    let outcome = runner.share(share, programs, &mut output);
    say(&format!(
        "\n=== {}\n{}",
        share.name,
        output.text()?.trim_end()
    ));
    outcome
}

/// The shares that wait, that run, and that have ended.
struct Lanes {
    jobs: u64,
    began: Instant,
    state: Mutex<State>,
    /// Signalled when a share has ended.
    ended: Condvar,
}

struct State {
    /// The longest first.
    waiting: Vec<&'static Share>,
    running: Vec<(&'static Share, Instant)>,
    outcomes: Vec<Result<Outcome, Failure>>,
}

impl Lanes {
    fn new(shares: &[&'static Share], jobs: usize) -> Self {
        let mut waiting = shares.to_vec();
        waiting.sort_by_key(|share| std::cmp::Reverse(share.seconds));
        Self {
            jobs: u64::try_from(jobs).unwrap_or(1),
            began: Instant::now(),
            state: Mutex::new(State {
                waiting,
                running: Vec::new(),
                outcomes: Vec::new(),
            }),
            ended: Condvar::new(),
        }
    }

    /// The next share, as soon as one may run; none if no share waits any more.
    fn next(&self) -> Option<&'static Share> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            if let Some(share) = state.take(self.jobs) {
                state.running.push((share, Instant::now()));
                say(&format!("began: {}", share.name));
                return Some(share);
            }
            if state.waiting.is_empty() {
                return None;
            }
            state = self
                .ended
                .wait(state)
                .unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn done(&self, share: &'static Share, outcome: Result<Outcome, Failure>) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.running.retain(|(one, _)| one.name != share.name);
        let verdict = match &outcome {
            Ok(outcome) if outcome.wrong.is_empty() => {
                format!("passed after {} s", outcome.took.as_secs())
            }
            Ok(outcome) => format!("FAILED after {} s", outcome.took.as_secs()),
            Err(failure) => format!("FAILED: {failure}"),
        };
        state.outcomes.push(outcome);
        let (ended, left) = (state.outcomes.len(), state.left(self.jobs));
        let all = ended + state.running.len() + state.waiting.len();
        say(&format!(
            "\nended: {}, {verdict}; {ended} of {all} shares in {}, about {} left",
            share.name,
            minutes(self.began.elapsed()),
            minutes(left)
        ));
        self.ended.notify_all();
    }
}

impl State {
    /// Takes the first share that may run now. One heavy share runs at a time, and as long as any
    /// waits, because one after the other they take longest.
    fn take(&mut self, jobs: u64) -> Option<&'static Share> {
        let lanes = |share: &Share| if jobs > 2 { share.lanes } else { 1 };
        let taken: u64 = self.running.iter().map(|(share, _)| lanes(share)).sum();
        let fits = |share: &Share| taken + lanes(share) <= jobs;
        let heavy = self.running.iter().any(|(share, _)| share.heavy);
        let next = self.waiting.iter().position(|share| share.heavy);
        let place = match next.filter(|_| !heavy) {
            Some(place) if !fits(self.waiting[place]) => return None,
            Some(place) => place,
            None => {
                let may_run = |share: &&Share| !share.heavy && fits(share);
                self.waiting.iter().position(may_run)?
            }
        };
        Some(self.waiting.remove(place))
    }

    /// How long the rest takes: at least as long as its longest share, and as its total time
    /// divided by the lanes.
    fn left(&self, jobs: u64) -> Duration {
        let waiting = self.waiting.iter().map(|share| share.seconds);
        let running = self
            .running
            .iter()
            .map(|(share, since)| share.seconds.saturating_sub(since.elapsed().as_secs()));
        let rest: Vec<u64> = waiting.chain(running).collect();
        let heavy = self.waiting.iter().filter(|share| share.heavy);
        let heavy = heavy.map(|share| share.seconds).sum::<u64>();
        let longest = rest.iter().copied().max().unwrap_or(0);
        let work = rest.iter().sum::<u64>().div_ceil(jobs);
        Duration::from_secs(longest.max(work).max(heavy))
    }
}

/// A duration in minutes and seconds.
fn minutes(time: Duration) -> String {
    let seconds = time.as_secs();
    match seconds / 60 {
        0 => format!("{seconds} s"),
        minutes => format!("{minutes} min {} s", seconds % 60),
    }
}

#[cfg(test)]
mod tests {
    use super::super::shares::named;
    use super::*;

    #[test]
    fn the_output_of_a_command_stays_in_its_place() {
        let mut output = Output::File(tempfile::tempfile().unwrap());
        output.line("before").unwrap();
        let mut command = Command::new("sh");
        command.args(["-c", "echo out; echo err >&2"]);
        output.attach(&mut command).unwrap();
        assert!(command.status().unwrap().success());
        output.line("after").unwrap();
        assert_eq!(output.text().unwrap(), "before\nout\nerr\nafter\n");
    }

    #[test]
    fn the_longest_share_starts_first_and_one_heavy_share_runs_at_a_time() {
        let shares = ["toy", "dynamodb", "redis", "cassandra"].map(|name| named(name).unwrap());
        for (jobs, begins) in [
            (2, &["cassandra", "redis"] as &[_]),
            (3, &["cassandra", "redis"]),
            (4, &["cassandra", "redis", "toy"]),
        ] {
            let lanes = Lanes::new(&shares, jobs);
            let begun: Vec<_> = begins.iter().map(|_| lanes.next().unwrap().name).collect();
            assert_eq!(begun, begins);
            let mut state = lanes.state.lock().unwrap();
            assert!(state.take(jobs as u64).is_none());
            state.running.retain(|(share, _)| !share.heavy);
            assert_eq!(state.take(jobs as u64).unwrap().name, "dynamodb");
        }
    }

    #[test]
    fn the_time_left_is_that_of_the_longest_or_of_all_shares() {
        let left = |names: &[&str], jobs| {
            let shares: Vec<_> = names.iter().map(|name| named(name).unwrap()).collect();
            Lanes::new(&shares, 1).state.lock().unwrap().left(jobs)
        };
        let seconds = |name| named(name).unwrap().seconds;
        let longest = Duration::from_secs(seconds("redis"));
        assert_eq!(left(&["redis", "toy"], 2), longest);
        let both = Duration::from_secs(seconds("redis") + seconds("toy"));
        assert_eq!(left(&["redis", "toy"], 1), both);
        assert_eq!(minutes(Duration::from_secs(125)), "2 min 5 s");
    }
}
