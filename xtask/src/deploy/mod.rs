//! `cargo xtask deploy`: proves what is in `deploy/`. `check` reads the files with the tools that
//! will read them, `prove` puts the alerts and the dashboard before real silos and real faults.

mod check;
mod kubernetes;
mod queries;
mod stage;
mod tools;

use std::fs;
use std::path::{Path, PathBuf};

use clap::Subcommand;

use crate::{Failure, say};

/// Proves the files in `deploy/`: alerts, dashboard, manifests, unit.
#[derive(clap::Args)]
pub struct Deploy {
    #[command(subcommand)]
    action: Action,
}

#[derive(Subcommand)]
enum Action {
    /// Seconds: rules and their tests with promtool, manifests, unit, compose file, and that every
    /// alert has an entry in docs/runbook.md.
    Check,
    /// Minutes: a real Prometheus scrapes five real silos. Every query of the dashboard and of the
    /// alerts returns data, and the alerts fire in faults.
    Prove(Prove),
    /// Writes the rules into the manifest for the Prometheus Operator.
    Rules,
}

#[derive(clap::Args)]
struct Prove {
    /// A program that is built already. [default: builds it]
    #[arg(long)]
    program: Option<PathBuf>,
    /// Only the faults whose text contains this, after the queries.
    #[arg(long, value_name = "TEXT")]
    only: Option<String>,
}

impl Deploy {
    /// Runs the command.
    pub fn run(&self, root: &Path) -> Result<(), Failure> {
        let root = root.canonicalize()?;
        match &self.action {
            Action::Check => check::run(&root),
            Action::Prove(prove) => {
                stage::run(&root, prove.program.as_deref(), prove.only.as_deref())
            }
            Action::Rules => {
                fs::write(root.join(OPERATOR_RULES), operator_rules(&root)?)?;
                say(&format!("{OPERATOR_RULES} is written"));
                Ok(())
            }
        }
    }
}

/// The rules.
const RULES: &str = "deploy/prometheus/rules.yml";
/// The same for the Prometheus Operator.
const OPERATOR_RULES: &str = "deploy/kubernetes/monitoring/prometheus-rule.yaml";
/// The dashboard.
const DASHBOARD: &str = "deploy/grafana/membership.json";
/// What to do when an alert fires.
const RUNBOOK: &str = "docs/runbook.md";

/// The rules as the operator's kind, with the same text.
fn operator_rules(root: &Path) -> Result<String, Failure> {
    let rules = read(root, RULES)?;
    let groups = rules
        .split_once("\ngroups:\n")
        .ok_or_else(|| Failure::new(format!("{RULES} has no line 'groups:'")))?
        .1;
    let mut text = String::from(
        "# The rules of ../../prometheus/rules.yml for the Prometheus Operator, written by `cargo xtask deploy rules`.\n\
         apiVersion: monitoring.coreos.com/v1\n\
         kind: PrometheusRule\n\
         metadata:\n\
         \x20 name: membership\n\
         spec:\n\
         \x20 groups:\n",
    );
    for line in groups.lines() {
        if !line.is_empty() {
            text.push_str("  ");
            text.push_str(line);
        }
        text.push('\n');
    }
    Ok(text)
}

/// A file of the repository.
fn read(root: &Path, file: &str) -> Result<String, Failure> {
    fs::read_to_string(root.join(file)).map_err(|error| Failure::new(format!("{file}: {error}")))
}
