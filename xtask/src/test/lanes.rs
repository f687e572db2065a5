//! Shares, one after the other or side by side. What a share prints stays together: with others beside it, it is shown when the share has ended.

use std::collections::VecDeque;
use std::fs::File;
use std::io::{Read, Seek, Write};
use std::process::Command;
use std::sync::Mutex;

use super::build::Program;
use super::providers::Provider;
use super::share::{Manner, Outcome};
use crate::{Failure, say};

/// Where a share's words go.
#[derive(Debug)]
pub enum Voice {
    /// To the terminal, as they are said.
    Loud,
    /// Into a file without a name, for later.
    Kept(File),
}

impl Voice {
    /// A line.
    pub fn say(&mut self, text: &str) -> Result<(), Failure> {
        match self {
            Self::Loud => say(text),
            Self::Kept(file) => writeln!(file, "{text}")?,
        }
        Ok(())
    }

    /// What a command prints.
    pub fn lend(&self, command: &mut Command) -> Result<(), Failure> {
        if let Self::Kept(file) = self {
            command.stdout(file.try_clone()?).stderr(file.try_clone()?);
        }
        Ok(())
    }

    fn kept(self) -> Result<String, Failure> {
        let Self::Kept(mut file) = self else {
            return Ok(String::new());
        };
        let mut bytes = Vec::new();
        file.rewind()?;
        file.read_to_end(&mut bytes)?;
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    }
}

/// Runs them all, as many at once as `jobs` says; their outcomes in the order in which they were given.
pub fn run(
    lines: &[&'static Provider],
    jobs: usize,
    manner: &Manner,
    programs: &[Program],
) -> Result<Vec<Outcome>, Failure> {
    if jobs <= 1 || lines.len() <= 1 {
        let loudly = |line: &&'static Provider| {
            say(&format!("\n=== {}", line.name));
            manner.share(line, programs, &mut Voice::Loud)
        };
        return lines.iter().map(loudly).collect();
    }
    say(&format!("{} shares, {jobs} at once", lines.len()));
    let waiting: Mutex<VecDeque<_>> = Mutex::new(lines.iter().enumerate().collect());
    let done: Mutex<Vec<(usize, Result<Outcome, Failure>)>> = Mutex::new(Vec::new());
    let next = || {
        waiting
            .lock()
            .map_or(None, |mut waiting| waiting.pop_front())
    };
    std::thread::scope(|scope| {
        for _ in 0..jobs.min(lines.len()) {
            scope.spawn(|| {
                while let Some((place, line)) = next() {
                    say(&format!("began: {}", line.name));
                    let outcome = aside(line, manner, programs);
                    if let Ok(mut done) = done.lock() {
                        done.push((place, outcome));
                    }
                }
            });
        }
    });
    let mut done = done
        .into_inner()
        .unwrap_or_else(std::sync::PoisonError::into_inner);
    done.sort_by_key(|(place, _)| *place);
    done.into_iter().map(|(_, outcome)| outcome).collect()
}

/// One share whose words are kept until its end, and then shown at once.
fn aside(line: &Provider, manner: &Manner, programs: &[Program]) -> Result<Outcome, Failure> {
    let mut voice = Voice::Kept(tempfile::tempfile()?);
    let outcome = manner.share(line, programs, &mut voice);
    say(&format!(
        "\n=== {}\n{}",
        line.name,
        voice.kept()?.trim_end()
    ));
    if let Ok(outcome) = &outcome {
        let verdict = if outcome.wrong.is_empty() {
            "passed"
        } else {
            "FAILED"
        };
        say(&format!(
            "\nended: {} after {} s, {verdict}",
            line.name,
            outcome.took.as_secs()
        ));
    }
    outcome
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_command_prints_is_kept_in_its_place() {
        let mut voice = Voice::Kept(tempfile::tempfile().unwrap());
        voice.say("before").unwrap();
        let mut command = Command::new("sh");
        command.args(["-c", "echo out; echo err >&2"]);
        voice.lend(&mut command).unwrap();
        assert!(command.status().unwrap().success());
        voice.say("after").unwrap();
        assert_eq!(voice.kept().unwrap(), "before\nout\nerr\nafter\n");
    }
}
