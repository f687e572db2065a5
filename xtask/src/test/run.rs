//! One share: its tests are run, timed, and compared with their limit.

use std::process::{Child, Command, ExitStatus};
use std::time::{Duration, Instant};

use super::build::Program;
use super::lanes::Output;
use super::shares::{PROGRAM, STORES, Share, owner, strays};
use crate::Failure;

/// A share that takes this many times its limit hangs, and is killed.
const HANGS: u32 = 4;

/// The result of a share.
#[derive(Debug)]
pub struct Outcome {
    pub name: String,
    pub tests: usize,
    pub took: Duration,
    /// How long it usually takes, if it is a share.
    pub usual: Option<Duration>,
    /// The failures, one line each; empty if everything passed.
    pub wrong: Vec<String>,
}

/// How the tests are run.
#[derive(Clone, Debug)]
pub struct Runner {
    /// What a share may take on a machine of the usual speed, if there is a limit.
    pub limit: Option<Duration>,
    /// Run also the tests that are ignored by default because they are long.
    pub ignored_too: bool,
    /// Show what tests print at once, and run them one after the other, so that no test is slow
    /// because another one is busy.
    pub watched: bool,
    /// Environment of the tests.
    pub environment: Vec<(&'static str, String)>,
}

impl Runner {
    /// Runs a command to its end, or kills it when it hangs.
    fn run(&self, mut command: Command) -> Result<Result<ExitStatus, String>, Failure> {
        command.envs(self.environment.iter().map(|(name, value)| (*name, value)));
        let mut child = command.spawn()?;
        let deadline = self.limit.map(|limit| Instant::now() + limit * HANGS);
        loop {
            if let Some(status) = child.try_wait()? {
                return Ok(Ok(status));
            }
            if deadline.is_some_and(|deadline| Instant::now() > deadline) {
                return Ok(Err(kill(&mut child)?));
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Runs a whole command as a share of its own.
    pub fn whole(&self, name: &str, command: Command) -> Result<Outcome, Failure> {
        let shown = format!("{command:?}").replace('"', "");
        let began = Instant::now();
        let wrong = match self.run(command)? {
            Ok(status) if status.success() => vec![],
            Ok(_) => vec![format!("failed: {shown}")],
            Err(why) => vec![why],
        };
        Ok(Outcome {
            name: name.to_owned(),
            tests: 0,
            took: began.elapsed(),
            usual: None,
            wrong,
        })
    }

    /// Runs the tests of a share.
    pub fn share(
        &self,
        share: &Share,
        programs: &[Program],
        output: &mut Output,
    ) -> Result<Outcome, Failure> {
        let mut outcome = Outcome {
            name: share.name.to_owned(),
            tests: 0,
            took: Duration::ZERO,
            usual: Some(Duration::from_secs(share.seconds)),
            wrong: Vec::new(),
        };
        let began = Instant::now();
        for program in programs
            .iter()
            .filter(|program| program.package == share.package || program.package == PROGRAM)
        {
            let (mine, all) = program.tests(share, &[])?;
            if mine.is_empty() {
                continue;
            }
            let (ignored, _) = program.tests(share, &["--ignored"])?;
            let run = |test: &&String| self.ignored_too || !ignored.contains(test);
            outcome.tests += mine.iter().filter(run).count();
            let mut command = program.command();
            if mine.len() < all {
                command.arg("--exact").args(&mine);
            }
            if self.ignored_too {
                command.arg("--include-ignored");
            }
            if self.watched {
                command.args(["--nocapture", "--test-threads", "1"]);
            } else if let Some(threads) = threads(program) {
                command.args(["--test-threads", &threads.to_string()]);
            }
            output.line(&format!(
                "\n--- {}: {} tests of {}, {}",
                share.name,
                mine.len(),
                program.package,
                program.target
            ))?;
            output.attach(&mut command)?;
            let again = again(share, program);
            match self.run(command)? {
                Ok(status) if status.success() => {}
                Ok(_) => outcome.wrong.push(format!("failed: {again}")),
                Err(why) => outcome.wrong.push(format!("{why}: {again}")),
            }
        }
        outcome.took = began.elapsed();
        if outcome.tests == 0 {
            outcome.wrong.push("has no tests".to_owned());
        }
        Ok(outcome)
    }
}

/// How many tests of a program run side by side, if not one for each core.
///
/// Tests of tables mostly wait for servers that they have killed or frozen. Tests of real silos
/// judge whether silos answer in time, and get the cores for themselves.
fn threads(program: &Program) -> Option<usize> {
    let is_set = std::env::var_os("RUST_TEST_THREADS").is_some();
    let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    (program.package != PROGRAM && !is_set).then(|| (2 * cores).max(4))
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

    /// The share's tests in this program, or some of them, and how many tests the program has in
    /// all.
    fn tests(&self, share: &Share, some: &[&str]) -> Result<(Vec<String>, usize), Failure> {
        let mut mine = self.list(some)?;
        let all = mine.len();
        mine.retain(|test| {
            owner(&self.package, &self.target, test).is_some_and(|one| one.name == share.name)
        });
        Ok((mine, all))
    }

    /// All its tests, or some of them.
    fn list(&self, some: &[&str]) -> Result<Vec<String>, Failure> {
        let mut command = self.command();
        command.args(["--list", "--format", "terse"]).args(some);
        let output = command.output()?;
        if !output.status.success() {
            return Err(Failure::new(format!(
                "{} does not list its tests",
                self.path.display()
            )));
        }
        let text = String::from_utf8_lossy(&output.stdout);
        let tests = text.lines().filter_map(|test| test.strip_suffix(": test"));
        Ok(tests.map(str::to_owned).collect())
    }
}

/// An error if a module of the test of real silos belongs to no share.
pub fn every_store_has_a_share(programs: &[Program]) -> Result<(), Failure> {
    let stores = |one: &&Program| one.package == PROGRAM && one.target == STORES;
    for program in programs.iter().filter(stores) {
        let tests = program.list(&[])?;
        let strays = strays(tests.iter().map(String::as_str));
        if !strays.is_empty() {
            let strays: Vec<&str> = strays.into_iter().collect();
            return Err(Failure::new(format!(
                "no share runs these modules of membership-cli/tests/stores/main.rs: {}; give them the name of a share of xtask/src/test/shares.rs",
                strays.join(", ")
            )));
        }
    }
    Ok(())
}

/// The command that repeats it alone.
fn again(share: &Share, program: &Program) -> String {
    format!(
        "{} of {}; again: cargo xtask test --only {}",
        program.target, program.package, share.name
    )
}

fn kill(child: &mut Child) -> Result<String, Failure> {
    child.kill()?;
    child.wait()?;
    Ok("hung, and was killed".to_owned())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::super::shares::named;
    use super::super::slow::LIMIT;
    use super::super::{lanes, summary};
    use super::*;

    /// A program of tests that lists these tests, and ends with this status when it is run.
    fn program(folder: &std::path::Path, tests: &str, status: u8) -> Program {
        let path = folder.join("tests.sh");
        let script = format!(
            "#!/bin/sh\ncase \"$*\" in *--ignored*) ;; *--list*) printf '{tests}' ;; *) exit {status} ;; esac\n"
        );
        std::fs::write(&path, script).unwrap();
        std::fs::set_permissions(&path, PermissionsExt::from_mode(0o755)).unwrap();
        Program {
            package: "toy-store".to_owned(),
            target: "toy_store".to_owned(),
            folder: folder.to_owned(),
            path,
        }
    }

    fn runner(limit: Duration) -> Runner {
        Runner {
            limit: Some(limit),
            ignored_too: false,
            watched: false,
            environment: Vec::new(),
        }
    }

    fn outcome(tests: &str, status: u8) -> Outcome {
        let folder = tempfile::tempdir().unwrap();
        let programs = [program(folder.path(), tests, status)];
        let runner = runner(LIMIT);
        let mut output = Output::File(tempfile::tempfile().unwrap());
        let share = named("toy-store").unwrap();
        runner.share(share, &programs, &mut output).unwrap()
    }

    #[test]
    fn a_share_fails_whose_tests_fail_or_are_none() {
        let passed = outcome("one: test\\n", 0);
        assert_eq!((passed.tests, passed.wrong.len()), (1, 0), "{passed:?}");
        assert!(summary(&[passed], &[]).is_ok());
        for (tests, status, why) in [("one: test\\n", 1, "failed: "), ("", 0, "has no tests")] {
            let failed = outcome(tests, status);
            assert!(failed.wrong.iter().any(|w| w.contains(why)), "{failed:?}");
            assert!(summary(&[failed], &[]).is_err(), "{why}");
        }
    }

    #[test]
    fn nothing_is_run_while_a_module_of_silos_over_a_store_has_no_share() {
        let folder = tempfile::tempdir().unwrap();
        let tests = "redis::it: test\\nmystore::it: test\\n";
        let stores = Program {
            package: PROGRAM.to_owned(),
            target: STORES.to_owned(),
            ..program(folder.path(), tests, 0)
        };
        let shares = [named("redis").unwrap()];
        let run = |programs: &[Program]| lanes::run(&shares, 1, &runner(LIMIT), programs);
        let error = run(std::slice::from_ref(&stores)).unwrap_err().to_string();
        assert!(
            error.contains("mystore") && !error.contains("redis"),
            "{error}"
        );
        let other = Program {
            target: "silos".to_owned(),
            ..stores
        };
        run(&[other]).unwrap();
    }
}
