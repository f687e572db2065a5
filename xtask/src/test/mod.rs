//! `cargo xtask test`: every store against its real server; `cargo xtask soak`: the same for hours.

mod available;
mod build;
mod lanes;
mod run;
mod shares;
mod slow;
#[cfg(test)]
mod strays;

use std::path::Path;
use std::time::Instant;

use crate::{Failure, cargo, say, servers, status};
use build::Plan;
use run::{Outcome, Runner};
use shares::{Share, shares};
use slow::{LIMIT, LIMIT_WHOLE};

/// Runs what a plain `cargo test` leaves out: every store against its real server, and all
/// features. Installs servers that are missing.
///
/// Says first which stores this machine can test and which tools the others lack, runs what it can,
/// and names the rest at the end.
#[derive(clap::Args)]
pub struct Test {
    /// Only these shares of the tests: a store (redis, postgres, mysql, zk...), a set-up of it
    /// (mongodb-set, etcd-set...), or program, library, launcher, xtask... A wrong name lists all.
    /// Several, or separated by commas. Builds the tests of these stores alone. What this machine
    /// cannot test is then an error.
    #[arg(long, value_name = "NAME", value_delimiter = ',', num_args = 1.., value_parser = shares::named)]
    only: Vec<&'static Share>,
    /// Fail if this machine cannot test every store.
    #[arg(long, conflicts_with = "only")]
    all: bool,
    /// Run every case also over set-ups that repeat the suite of another one (TLS, three servers),
    /// not only the cases that differ.
    #[arg(long)]
    whole: bool,
    /// Run every case of the suite with fewer repetitions, histories of 500 commits instead of up to
    /// 2,000, and each store over one set-up: what that leaves out is named.
    #[arg(long, conflicts_with = "whole")]
    quick: bool,
    /// Servers as containers of a Docker engine, and not as processes of this machine.
    #[arg(long)]
    containers: bool,
    /// Compile the libraries that the tests need, and run nothing: for while something else waits.
    #[arg(long, conflicts_with_all = ["only", "all", "whole", "quick"])]
    libraries: bool,
    /// How many shares run side by side: most of their time they wait for servers that a test has
    /// killed or frozen. With more than one, what a share prints is shown when it has ended.
    #[arg(long, value_name = "NUMBER", default_value_t = side_by_side(), value_parser = clap::value_parser!(u8).range(1..=16))]
    jobs: u8,
}

/// One for each core, but not more than a few: each starts servers of its own, and most need a core
/// for a while.
fn side_by_side() -> u8 {
    std::thread::available_parallelism().map_or(1, |cores| {
        u8::try_from(cores.get()).unwrap_or(u8::MAX).min(4)
    })
}

/// Runs the long tests: hours. For before something is called finished.
#[derive(clap::Args)]
pub struct Soak {
    /// Only the tests of these stores. What this machine cannot test is then an error.
    #[arg(long, value_name = "NAME", value_delimiter = ',', num_args = 1.., value_parser = shares::named)]
    only: Vec<&'static Share>,
    /// Servers as containers.
    #[arg(long)]
    containers: bool,
    /// The seeds of the simulated clusters.
    #[arg(long, value_name = "FROM..TO", default_value = "1000..1600", value_parser = seeds)]
    seeds: String,
}

/// Checks a range of seeds, which other programs parse later.
fn seeds(text: &str) -> Result<String, String> {
    let range = text
        .split_once("..")
        .and_then(|(from, to)| Some((from.parse::<u64>().ok()?, to.parse::<u64>().ok()?)));
    match range {
        Some((from, to)) if from < to => Ok(text.to_owned()),
        _ => Err("write FROM..TO with FROM smaller than TO, such as 1000..1600".to_owned()),
    }
}

impl Test {
    /// Runs the shares; an error if any of them failed.
    pub fn run(&self, root: &Path) -> Result<(), Failure> {
        if self.libraries {
            return Plan::new(root, self.containers)?.build_libraries(root);
        }
        let mut environment = environment(root, self.containers);
        if self.whole {
            environment.push(("MEMBERSHIP_CONFORMANCE_SETUPS", "whole".to_owned()));
        }
        if self.quick {
            environment.push(("MEMBERSHIP_CONFORMANCE_EFFORT", "quick".to_owned()));
        }
        let limit = if self.whole { LIMIT_WHOLE } else { LIMIT };
        let runner = Runner {
            limit: Some(limit),
            ignored_too: false,
            watched: false,
            environment,
        };
        let is_left_out = |share: &&Share| self.quick && self.only.is_empty() && share.nightly;
        let left_out: Vec<_> = shares().iter().filter(is_left_out).collect();
        let mut chosen = chosen(&self.only, |share| !share.by_default);
        chosen.retain(|share| !is_left_out(share));
        if !left_out.is_empty() {
            let names: Vec<_> = left_out.iter().map(|share| share.name).collect();
            say(&format!(
                "left to runs without --quick: {}",
                names.join(", ")
            ));
        }
        let available = available::sort(chosen, self.containers);
        if self.all || !self.only.is_empty() {
            available.nothing_is_missing()?;
        }
        let mut outcomes = Vec::new();
        run_shares(
            root,
            &available.shares,
            !self.only.is_empty(),
            self.containers,
            self.jobs,
            &runner,
            &mut outcomes,
        )?;
        let limit = slow::judge(&mut outcomes, limit);
        say(&format!("a share may take {} s here", limit.as_secs()));
        if self.only.is_empty() {
            heading("the examples in the documentation");
            let mut command = Plan::new(root, self.containers)?.command(root);
            command.arg("--doc");
            let unlimited = Runner {
                limit: None,
                ..runner
            };
            outcomes.push(unlimited.whole("doc tests", command)?);
        }
        summary(&outcomes, &available.missing)
    }
}

impl Soak {
    /// Runs the shares; an error if any of them failed.
    pub fn run(&self, root: &Path) -> Result<(), Failure> {
        let mut environment = environment(root, self.containers);
        environment.push(("MEMBERSHIP_CONFORMANCE_EFFORT", "soak".to_owned()));
        let runner = Runner {
            limit: None,
            ignored_too: true,
            watched: true,
            environment,
        };
        let chosen = chosen(&self.only, |_| true);
        let available = available::sort(chosen, self.containers);
        if !self.only.is_empty() {
            available.nothing_is_missing()?;
        }
        let mut outcomes = Vec::new();
        if self.only.is_empty() {
            heading(&format!("simulated clusters, seeds {}", self.seeds));
            let mut command = cargo();
            command.args([
                "test",
                "--locked",
                "-p",
                "membership-testing",
                "--test",
                "campaign",
            ]);
            command
                .env("MEMBERSHIP_SEEDS", &self.seeds)
                .current_dir(root);
            outcomes.push(runner.whole("campaign", command)?);
            heading("messages per silo, among up to a thousand");
            let mut command = cargo();
            command.args([
                "test",
                "--locked",
                "-p",
                "membership-testing",
                "--test",
                "load",
            ]);
            command.args(["--", "--include-ignored"]).current_dir(root);
            outcomes.push(runner.whole("load", command)?);
            heading("a partial partition of three hundred");
            let mut command = cargo();
            command.args([
                "test",
                "--locked",
                "-p",
                "membership-testing",
                "--test",
                "detector",
            ]);
            command
                .args(["very_large", "--", "--ignored"])
                .current_dir(root);
            outcomes.push(runner.whole("detector", command)?);
            // Larger clusters, a floor for each kind of fault, and the experiments that take
            // longest. chitchat's part of the whole grid is run with one of the ten seeds: with all
            // of them it takes days.
            for (what, arguments) in [
                (
                    "campaign of 30 silos",
                    vec!["campaign", "--silos", "30", "--seeds", self.seeds.as_str()],
                ),
                (
                    "slow members, the whole grid",
                    vec!["lifeguard", "--full", "--systems", "membership,foca"],
                ),
                (
                    "slow members, the whole grid, with chitchat",
                    vec!["lifeguard", "--full", "--seeds", "1..2"],
                ),
                (
                    "everybody starts at once, over as many that crashed",
                    vec!["bootstrap", "--full"],
                ),
            ] {
                heading(what);
                let mut command = cargo();
                command
                    .args(["run", "--locked", "--release", "-p", "membership-sim", "--"])
                    .args(arguments)
                    .current_dir(root);
                outcomes.push(runner.whole(what, command)?);
            }
        }
        run_shares(
            root,
            &available.shares,
            !self.only.is_empty(),
            self.containers,
            1,
            &runner,
            &mut outcomes,
        )?;
        summary(&outcomes, &available.missing)
    }
}

fn environment(root: &Path, containers: bool) -> Vec<(&'static str, String)> {
    // Keeps the runs of the suite for `cargo xtask status`.
    let mut environment = vec![(
        status::VARIABLE,
        status::records(root).to_string_lossy().into_owned(),
    )];
    // If the caller requested containers, a missing engine is an error, and no other kind of server
    // is used. If not, the servers that were installed are used, also where an engine runs.
    let which = if containers { "always" } else { "never" };
    environment.push(("MEMBERSHIP_TEST_CONTAINERS", which.to_owned()));
    environment
}

/// The requested shares; without a request, those that `usual` accepts.
fn chosen(only: &[&'static Share], usual: impl Fn(&Share) -> bool) -> Vec<&'static Share> {
    let is_asked = |share: &&Share| only.iter().any(|one| one.name == share.name);
    shares()
        .iter()
        .filter(|share| {
            if only.is_empty() {
                usual(share)
            } else {
                is_asked(share)
            }
        })
        .collect()
}

/// Installs the servers, builds once (with `alone`, only the tests of these shares), and runs each
/// share; a failure does not stop the others.
fn run_shares(
    root: &Path,
    chosen: &[&'static Share],
    alone: bool,
    containers: bool,
    jobs: u8,
    runner: &Runner,
    outcomes: &mut Vec<Outcome>,
) -> Result<(), Failure> {
    if !containers {
        let mut kinds: Vec<_> = chosen.iter().filter_map(|share| share.server).collect();
        kinds.retain(|kind| !available::is_given(*kind));
        kinds.dedup();
        // The shares that need it will report that it is missing.
        if let Err(failure) = servers::ready(&kinds) {
            say(&format!("error: {failure}"));
        }
    }
    let plan = if alone {
        heading("building the tests of these shares");
        Plan::of(root, containers, chosen)?
    } else {
        heading("building all tests with all features");
        Plan::new(root, containers)?
    };
    let began = Instant::now();
    let programs = plan.build(root)?;
    say(&format!("built in {} s", began.elapsed().as_secs()));
    outcomes.extend(lanes::run(chosen, jobs.into(), runner, &programs)?);
    Ok(())
}

fn heading(text: &str) {
    say(&format!("\n=== {text}"));
}

fn summary(outcomes: &[Outcome], missing: &[String]) -> Result<(), Failure> {
    heading("summary");
    for outcome in outcomes {
        let tests = match outcome.tests {
            0 => String::new(),
            tests => format!("{tests} tests"),
        };
        let verdict = if outcome.wrong.is_empty() {
            "passed"
        } else {
            "FAILED"
        };
        say(&format!(
            "{:<13} {tests:>10} {:>6} s  {verdict}",
            outcome.name,
            outcome.took.as_secs()
        ));
        for line in &outcome.wrong {
            say(&format!("              {line}"));
        }
    }
    for line in missing {
        say(&format!("not tested: {line}"));
    }
    let failed: Vec<&str> = outcomes
        .iter()
        .filter(|outcome| !outcome.wrong.is_empty())
        .map(|outcome| outcome.name.as_str())
        .collect();
    if failed.is_empty() {
        Ok(())
    } else {
        Err(Failure::new(format!(
            "not everything passed: {}",
            failed.join(", ")
        )))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seeds_are_a_range_that_is_not_empty() {
        assert_eq!(seeds("1000..1600").as_deref(), Ok("1000..1600"));
        for wrong in ["rubbish", "5..1", "5..5", "5", "-1..5", "1..=5", ""] {
            let error = seeds(wrong).unwrap_err();
            assert!(error.contains("FROM..TO"), "{wrong}: {error}");
        }
    }

    #[test]
    fn what_was_asked_for_and_cannot_be_tested_is_an_error() {
        let mut available = available::Available {
            shares: vec![],
            missing: vec![],
        };
        assert!(available.nothing_is_missing().is_ok());
        available.missing = vec!["zookeeper: this machine lacks Java 17 or newer".to_owned()];
        let error = available.nothing_is_missing().unwrap_err().to_string();
        assert!(
            error.contains("zookeeper") && error.contains("Java"),
            "{error}"
        );
    }
}
