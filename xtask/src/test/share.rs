//! One share: its tests, run, timed, and held against its limit.

use std::process::{Child, Command, ExitStatus};
use std::time::{Duration, Instant};

use super::build::Program;
use super::lanes::Voice;
use super::providers::{Provider, SILOS, owner};
use crate::Failure;

/// How long a share may take before somebody must look into it; see docs/conformance.md.
pub const LIMIT: Duration = Duration::from_secs(300);
/// A share that takes this many times its limit hangs, and is ended.
const HANGS: u32 = 4;

/// How a share went.
#[derive(Debug)]
pub struct Outcome {
    pub name: String,
    pub tests: usize,
    pub took: Duration,
    /// What is wrong, one line each; nothing if all is well.
    pub wrong: Vec<String>,
}

/// How the tests are run.
#[derive(Clone, Debug)]
pub struct Manner {
    /// Longer is wrong; nothing is too long without a limit.
    pub limit: Option<Duration>,
    /// Tests too that are left out usually because they take long.
    pub ignored_too: bool,
    /// Somebody watches for hours: what tests say is shown as they say it, and they run one after the other, so that no test is slow because
    /// another one is busy.
    pub watched: bool,
    /// Environment of the tests.
    pub environment: Vec<(&'static str, String)>,
}

impl Manner {
    /// Runs a command to its end, or ends it when it hangs.
    fn run(&self, mut command: Command) -> Result<Result<ExitStatus, String>, Failure> {
        command.envs(self.environment.iter().map(|(name, value)| (*name, value)));
        let mut child = command.spawn()?;
        let deadline = self.limit.map(|limit| Instant::now() + limit * HANGS);
        loop {
            if let Some(status) = child.try_wait()? {
                return Ok(Ok(status));
            }
            if deadline.is_some_and(|deadline| Instant::now() > deadline) {
                return Ok(Err(end(&mut child)?));
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Runs a whole command as a share of its own.
    pub fn whole(&self, name: &str, command: Command) -> Result<Outcome, Failure> {
        let shown = format!("{command:?}").replace('"', "");
        let began = Instant::now();
        let mut wrong = Vec::new();
        match self.run(command)? {
            Ok(status) if status.success() => {}
            Ok(_) => wrong.push(format!("failed: {shown}")),
            Err(why) => wrong.push(why),
        }
        Ok(Outcome {
            name: name.to_owned(),
            tests: 0,
            took: began.elapsed(),
            wrong,
        })
    }

    /// Runs the tests of a store.
    pub fn share(
        &self,
        line: &Provider,
        programs: &[Program],
        voice: &mut Voice,
    ) -> Result<Outcome, Failure> {
        let mut outcome = Outcome {
            name: line.name.to_owned(),
            tests: 0,
            took: Duration::ZERO,
            wrong: Vec::new(),
        };
        let began = Instant::now();
        for program in programs {
            let (mine, all) = self.tests(line, program, &[])?;
            let (ignored, _) = self.tests(line, program, &["--ignored"])?;
            if mine.is_empty() {
                continue;
            }
            outcome.tests += mine
                .iter()
                .filter(|test| self.ignored_too || !ignored.contains(test))
                .count();
            let mut command = program.command();
            if mine.len() < all {
                command.arg("--exact").args(&mine);
            }
            if self.ignored_too {
                command.arg("--include-ignored");
            }
            if self.watched {
                command.args(["--nocapture", "--test-threads", "1"]);
            } else if program.package != SILOS.0 && std::env::var_os("RUST_TEST_THREADS").is_none()
            {
                // Most of their time tests wait for a server that they have killed or frozen. (Silos are asked whether they live: they do not wait.)
                let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
                command.args(["--test-threads", &(2 * cores).max(4).to_string()]);
            }
            voice.say(&format!(
                "\n--- {}: {} tests of {}, {}",
                line.name,
                mine.len(),
                program.package,
                program.target
            ))?;
            voice.lend(&mut command)?;
            match self.run(command)? {
                Ok(status) if status.success() => {}
                Ok(_) => outcome
                    .wrong
                    .push(format!("failed: {}", again(line, program))),
                Err(why) => outcome
                    .wrong
                    .push(format!("{why}: {}", again(line, program))),
            }
        }
        outcome.took = began.elapsed();
        if let Some(limit) = self.limit
            && outcome.took > limit
        {
            outcome.wrong.push(format!(
                "took {} s, more than its limit of {} s",
                outcome.took.as_secs(),
                limit.as_secs()
            ));
        }
        if outcome.tests == 0 {
            outcome.wrong.push("has no tests".to_owned());
        }
        Ok(outcome)
    }

    /// The store's tests in a program, or some of them, and how many there are of all stores.
    fn tests(
        &self,
        line: &Provider,
        program: &Program,
        some: &[&str],
    ) -> Result<(Vec<String>, usize), Failure> {
        let mut command = program.command();
        let output = command
            .args(["--list", "--format", "terse"])
            .args(some)
            .output()?;
        if !output.status.success() {
            return Err(Failure::new(format!(
                "{} does not list its tests",
                program.path.display()
            )));
        }
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let all: Vec<&str> = text
            .lines()
            .filter_map(|test| test.strip_suffix(": test"))
            .collect();
        let is_mine = |test: &&&str| {
            owner(&program.package, &program.target, test)
                .is_some_and(|owner| owner.name == line.name)
        };
        Ok((
            all.iter()
                .filter(is_mine)
                .map(|test| (*test).to_owned())
                .collect(),
            all.len(),
        ))
    }
}

impl Program {
    fn command(&self) -> Command {
        let mut command = Command::new(&self.path);
        command
            .current_dir(&self.folder)
            .env("CARGO_MANIFEST_DIR", &self.folder)
            .env("CARGO_PKG_NAME", &self.package);
        command
    }
}

/// The command that repeats it alone.
fn again(line: &Provider, program: &Program) -> String {
    format!(
        "{} of {}; again: cargo xtask test --only {}",
        program.target, program.package, line.name
    )
}

fn end(child: &mut Child) -> Result<String, Failure> {
    child.kill()?;
    child.wait()?;
    Ok("hung, and was ended".to_owned())
}
