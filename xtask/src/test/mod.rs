//! `cargo xtask test`: every test, against real servers; `cargo xtask soak`: the same for long.

mod build;
mod lanes;
mod providers;
mod share;

use std::path::Path;
use std::process::Command;
use std::time::Instant;

use crate::{Failure, backends, cargo, say, status};
use build::Plan;
use providers::{PROVIDERS, Provider};
use share::{LIMIT, Manner, Outcome};

/// Runs all tests, those against real servers included; installs the servers that are missing.
#[derive(clap::Args)]
pub struct Test {
    /// Only the tests of these stores: memory, sqlite, redis, valkey, postgres, mariadb (or mysql), dynamodb (or
    /// dynamo), mongodb, mongodb-set (three members), azure-table (or azurite), etcd, etcd-set, zookeeper (or
    /// zk), zookeeper-set (three servers), consul, consul-set, cassandra. Several, or separated by commas.
    #[arg(long, value_name = "NAME", value_delimiter = ',', num_args = 1.., value_parser = providers::named)]
    only: Vec<&'static Provider>,
    /// Servers as containers, by a Docker engine, and not as processes of this machine.
    #[arg(long)]
    containers: bool,
    /// How many shares run side by side: most of their time they wait for servers that a test has killed or frozen. With more than one, what a
    /// share prints is shown when it has ended.
    #[arg(long, value_name = "NUMBER", default_value_t = side_by_side(), value_parser = clap::value_parser!(u8).range(1..=16))]
    jobs: u8,
}

/// One for each core, but not more than a few: each starts servers of its own.
fn side_by_side() -> u8 {
    std::thread::available_parallelism().map_or(1, |cores| {
        u8::try_from(cores.get()).unwrap_or(u8::MAX).min(4)
    })
}

/// Runs the long tests: hours. For before something is called finished.
#[derive(clap::Args)]
pub struct Soak {
    /// Only the tests of these stores.
    #[arg(long, value_name = "NAME", value_delimiter = ',', num_args = 1.., value_parser = providers::named)]
    only: Vec<&'static Provider>,
    /// Servers as containers.
    #[arg(long)]
    containers: bool,
    /// The seeds of the simulated clusters.
    #[arg(long, value_name = "FROM..TO", default_value = "1000..1600")]
    seeds: String,
}

impl Test {
    /// Runs them; an error if any share went wrong.
    pub fn run(&self, root: &Path) -> Result<(), Failure> {
        let manner = Manner {
            limit: Some(LIMIT),
            ignored_too: false,
            watched: false,
            environment: environment(root, self.containers),
        };
        let mut outcomes = Vec::new();
        if self.only.is_empty() {
            let mut command = Command::new(cargo());
            command
                .args(["test", "--locked", "--no-fail-fast"])
                .current_dir(root);
            heading("cargo test: what needs no server");
            // No limit: it compiles, too.
            let unlimited = Manner {
                limit: None,
                ..manner.clone()
            };
            outcomes.push(unlimited.whole("cargo test", command)?);
        }
        shares(
            root,
            &self.only,
            self.containers,
            self.jobs,
            &manner,
            &mut outcomes,
        )?;
        summary(&outcomes)
    }
}

impl Soak {
    /// Runs them; an error if any share went wrong.
    pub fn run(&self, root: &Path) -> Result<(), Failure> {
        let mut environment = environment(root, self.containers);
        environment.push(("MEMBERSHIP_CONFORMANCE_EFFORT", "soak".to_owned()));
        let manner = Manner {
            limit: None,
            ignored_too: true,
            watched: true,
            environment,
        };
        let mut outcomes = Vec::new();
        if self.only.is_empty() {
            heading(&format!("simulated clusters, seeds {}", self.seeds));
            let mut command = Command::new(cargo());
            command.args([
                "test",
                "--locked",
                "-p",
                "membership-core",
                "--features",
                "testing",
                "--test",
                "campaign",
            ]);
            command
                .env("MEMBERSHIP_SEEDS", &self.seeds)
                .current_dir(root);
            outcomes.push(manner.whole("campaign", command)?);
            heading("messages per silo, among up to a thousand");
            let mut command = Command::new(cargo());
            command.args([
                "test",
                "--locked",
                "-p",
                "membership-core",
                "--features",
                "testing",
                "--test",
                "load",
            ]);
            command.args(["--", "--include-ignored"]).current_dir(root);
            outcomes.push(manner.whole("load", command)?);
            // Larger clusters, a floor for each kind of fault, and the experiments that take longest. chitchat's part of the whole grid is
            // run with one of the ten seeds: with all of them it takes days.
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
                let mut command = Command::new(cargo());
                command
                    .args(["run", "--locked", "--release", "-p", "membership-sim", "--"])
                    .args(arguments)
                    .current_dir(root);
                outcomes.push(manner.whole(what, command)?);
            }
        }
        let everything: Vec<&Provider> = PROVIDERS.iter().collect();
        let asked = if self.only.is_empty() {
            &everything
        } else {
            &self.only
        };
        shares(root, asked, self.containers, 1, &manner, &mut outcomes)?;
        summary(&outcomes)
    }
}

fn environment(root: &Path, containers: bool) -> Vec<(&'static str, String)> {
    // Runs of the suite are kept for `cargo xtask status`.
    let mut environment = vec![(
        status::VARIABLE,
        status::records(root).to_string_lossy().into_owned(),
    )];
    if containers {
        // Asked for: then no engine is an error, and not a reason for another way.
        environment.push(("MEMBERSHIP_TEST_CONTAINERS", "always".to_owned()));
    }
    environment
}

/// Installs the servers, builds once, and runs each share; what fails does not keep the others.
fn shares(
    root: &Path,
    only: &[&'static Provider],
    containers: bool,
    jobs: u8,
    manner: &Manner,
    outcomes: &mut Vec<Outcome>,
) -> Result<(), Failure> {
    let chosen: Vec<&Provider> = match only {
        [] => PROVIDERS.iter().filter(|line| !line.by_default).collect(),
        only => PROVIDERS
            .iter()
            .filter(|line| only.iter().any(|one| one.name == line.name))
            .collect(),
    };
    if !containers {
        let kinds: Vec<_> = chosen
            .iter()
            .filter_map(|line| line.server)
            .filter(|kind| {
                kind.url_variables()
                    .iter()
                    .all(|name| std::env::var_os(name).is_none())
            })
            .collect();
        // The shares that need it will say that it is missing.
        if let Err(failure) = backends::ready(&kinds) {
            say(&format!("error: {failure}"));
        }
    }
    heading("building the tests that need servers");
    let began = Instant::now();
    let plan = Plan::new(root, containers)?;
    let programs = plan.build(root)?;
    say(&format!("built in {} s", began.elapsed().as_secs()));
    outcomes.extend(lanes::run(&chosen, jobs.into(), manner, &programs)?);
    if only.is_empty() {
        heading("the examples in the documentation");
        let mut command = plan.command(root);
        command.arg("--doc");
        let unlimited = Manner {
            limit: None,
            ..manner.clone()
        };
        outcomes.push(unlimited.whole("doc tests", command)?);
    }
    Ok(())
}

fn heading(text: &str) {
    say(&format!("\n=== {text}"));
}

fn summary(outcomes: &[Outcome]) -> Result<(), Failure> {
    heading("summary");
    for outcome in outcomes {
        let tests = if outcome.tests == 0 {
            String::new()
        } else {
            format!("{} tests", outcome.tests)
        };
        let verdict = if outcome.wrong.is_empty() {
            "passed"
        } else {
            "FAILED"
        };
        say(&format!(
            "{:<12} {tests:>10} {:>6} s  {verdict}",
            outcome.name,
            outcome.took.as_secs()
        ));
        for line in &outcome.wrong {
            say(&format!("             {line}"));
        }
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
