//! `cargo xtask deploy check`: every file of `deploy/` is read by the tool that will read it. Where
//! the machine lacks a tool, the output says what did not run.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::Command;

use super::queries::{self, array, metrics_in, text};
use super::tools::{Tools, is_there};
use super::{DASHBOARD, OPERATOR_RULES, RULES, RUNBOOK, kubernetes, operator_rules, read};
use crate::{Failure, output, say};

const COMPOSE: &str = "deploy/docker/compose.yml";
const PROMETHEUS: &str = "deploy/prometheus/prometheus.yml";
const UNIT: &str = "deploy/systemd/membership@.service";
/// Of 100, where `systemd-analyze security` shows a tenth of it; below 20 is "OK".
const EXPOSURE: u32 = 15;

pub(super) fn run(root: &Path) -> Result<(), Failure> {
    let tools = Tools::ready()?;
    rules(&tools, root)?;
    runbook(&tools, root)?;
    metrics(root)?;
    kubernetes::check(&tools, root)?;
    compose(&tools, root)?;
    unit(root)
}

fn rules(tools: &Tools, root: &Path) -> Result<(), Failure> {
    let folder = root.join("deploy/prometheus");
    for (arguments, what) in [
        (&["check", "config", "prometheus.yml"][..], "syntax"),
        (&["check", "rules", "rules.yml"], "rules"),
        (&["test", "rules", "rules_test.yml"], "tests of rules"),
    ] {
        let mut promtool = tools.program("promtool")?;
        let ran = promtool.args(arguments).current_dir(&folder).output()?;
        // It writes what failed to either output.
        if !ran.status.success() {
            return Err(Failure::new(format!(
                "promtool {}\n{}{}",
                arguments.join(" "),
                String::from_utf8_lossy(&ran.stdout),
                String::from_utf8_lossy(&ran.stderr)
            )));
        }
        say(&format!("promtool {}: {what} ok", arguments.join(" ")));
    }
    let tests = fs::read_to_string(folder.join("rules_test.yml"))?;
    for alert in queries::alerts(tools, root)? {
        let name = format!("alertname: {}", alert.name);
        let fires = tests
            .split(&name)
            .skip(1)
            .any(|case| case.trim_start().starts_with("eval_time") && case.contains("exp_labels"));
        if !fires {
            return Err(Failure::new(format!(
                "rules_test.yml has no case in which {} fires: add one",
                alert.name
            )));
        }
    }
    if read(root, OPERATOR_RULES)? != operator_rules(root)? {
        return Err(Failure::new(format!(
            "{OPERATOR_RULES} differs from {RULES}: run `cargo xtask deploy rules`"
        )));
    }
    Ok(())
}

/// Every alert leads to an entry, and every entry belongs to an alert.
fn runbook(tools: &Tools, root: &Path) -> Result<(), Failure> {
    let book = read(root, RUNBOOK)?;
    let entries: BTreeSet<&str> = book
        .lines()
        .filter_map(|line| line.strip_prefix("## Membership").and(line.get(3..)))
        .collect();
    let alerts = queries::alerts(tools, root)?;
    for alert in &alerts {
        if !entries.contains(alert.name.as_str()) {
            return Err(Failure::new(format!(
                "{RUNBOOK} has no entry '## {}'",
                alert.name
            )));
        }
        let link = format!("/{RUNBOOK}#{}", alert.name.to_lowercase());
        if !alert.runbook.ends_with(&link) {
            return Err(Failure::new(format!(
                "{RULES}: the runbook_url of {} does not end with {link}",
                alert.name
            )));
        }
    }
    if let Some(entry) = entries
        .iter()
        .find(|entry| !alerts.iter().any(|alert| alert.name == **entry))
    {
        return Err(Failure::new(format!(
            "{RUNBOOK}: there is no alert {entry}"
        )));
    }
    say(&format!(
        "{RUNBOOK}: an entry for each of {} alerts",
        alerts.len()
    ));
    Ok(())
}

/// Rules and dashboard name metrics that exist, and the dashboard shows each.
fn metrics(root: &Path) -> Result<(), Failure> {
    let document = read(root, "docs/operating.md")?;
    let part = document.split("\n## Metrics\n").nth(1).unwrap_or_default();
    let part = part.split("\n## ").next().unwrap_or_default();
    let names = part
        .lines()
        .filter_map(|line| line.strip_prefix("| `")?.split('`').next());
    let known: BTreeSet<String> = names.map(str::to_owned).collect();
    for file in [RULES, DASHBOARD] {
        let named = metrics_in(&read(root, file)?);
        if let Some(unknown) = named.difference(&known).next() {
            return Err(Failure::new(format!(
                "{file}: docs/operating.md lists no metric {unknown}"
            )));
        }
        if file == DASHBOARD
            && let Some(absent) = known.difference(&named).next()
        {
            return Err(Failure::new(format!("{DASHBOARD} shows no {absent}")));
        }
    }
    say(&format!(
        "{DASHBOARD}: {} queries, all {} metrics",
        queries::dashboard(root)?.len(),
        known.len()
    ));
    Ok(())
}

/// Its files exist, and Prometheus scrapes the addresses that silos have.
fn compose(tools: &Tools, root: &Path) -> Result<(), Failure> {
    let documents = tools.yaml(&root.join(COMPOSE))?;
    let folder = root.join("deploy/docker");
    let mut addresses = BTreeSet::new();
    let services = documents
        .first()
        .and_then(|all| all["services"].as_object());
    for (name, service) in services.into_iter().flatten() {
        for volume in array(&service["volumes"]).iter().map(text) {
            let from = volume.split(':').next().unwrap_or_default();
            if from.starts_with('.') && !folder.join(from).exists() {
                return Err(Failure::new(format!(
                    "{COMPOSE}: {name} mounts {from}, which does not exist"
                )));
            }
        }
        if name.starts_with("silo") {
            let ip = text(&service["networks"]["silos"]["ipv4_address"]);
            let command = array(&service["command"]).iter().map(text);
            if !command
                .into_iter()
                .any(|word| word == format!("--listen={ip}:7100"))
            {
                return Err(Failure::new(format!(
                    "{COMPOSE}: {name} does not listen at its address, {ip}:7100"
                )));
            }
            addresses.insert(format!("{ip}:9700"));
        }
    }
    let config = tools.yaml(&root.join(PROMETHEUS))?;
    let targets = config
        .iter()
        .flat_map(|config| array(&config["scrape_configs"]))
        .flat_map(|scrape| array(&scrape["static_configs"]))
        .flat_map(|fixed| array(&fixed["targets"]));
    let targets: BTreeSet<String> = targets.map(text).collect();
    if targets != addresses || targets.is_empty() {
        return Err(Failure::new(format!(
            "{PROMETHEUS} scrapes {targets:?}; the silos of {COMPOSE} answer at {addresses:?}"
        )));
    }
    if is_there("docker", "compose") {
        output(
            Command::new("docker")
                .args(["compose", "-f", COMPOSE, "config", "--quiet"])
                .current_dir(root),
        )?;
        say(&format!("{COMPOSE}: docker compose config ok"));
    } else {
        say(&format!(
            "{COMPOSE}: files and addresses ok; NOT RUN here, for lack of docker compose: docker compose config"
        ));
    }
    say("deploy/docker/Dockerfile: NOT RUN here: it needs an engine that pulls images");
    Ok(())
}

/// The unit, with a program that exists.
fn unit(root: &Path) -> Result<(), Failure> {
    if !is_there("systemd-analyze", "--version") {
        say(&format!(
            "{UNIT}: NOT RUN here, for lack of systemd-analyze"
        ));
        return Ok(());
    }
    let folder = tempfile::tempdir()?;
    let program = std::env::current_exe()?;
    let unit = read(root, UNIT)?;
    let unit = unit.replace("/usr/bin/membership", &program.to_string_lossy());
    let file = folder.path().join("membership@.service");
    fs::write(&file, unit)?;
    // It only warns of a directive that it does not know.
    let verified = Command::new("systemd-analyze")
        .arg("verify")
        .arg(folder.path().join("membership@a.service"))
        .output()?;
    let warnings = String::from_utf8_lossy(&verified.stderr);
    let of_unit = warnings.lines().any(|line| line.contains("membership@"));
    if of_unit || !verified.status.success() {
        return Err(Failure::new(format!(
            "{UNIT}: systemd-analyze verify\n{warnings}"
        )));
    }
    let threshold = format!("--threshold={EXPOSURE}");
    let said = output(
        Command::new("systemd-analyze")
            .args(["security", "--no-pager", "--offline=true", &threshold])
            .arg(&file),
    )?;
    let level = said
        .lines()
        .rfind(|line| line.contains("exposure level"))
        .unwrap_or_default();
    let level = level.trim_start_matches(['→', ' ']);
    say(&format!("{UNIT}: systemd-analyze verify ok; {level}"));
    Ok(())
}
