//! Compares the runs with what must have run: the reviewed list of the suite's cases, and the
//! set-ups of the table. A run alone says only that it has all the cases that the suite has now.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use super::{Run, Runs, base, of, rows};
use crate::Failure;

/// The list of cases; a test of the suite compares it.
pub(super) const LIST: &str = "conformance-tests/cases.txt";

/// Fails for a run of other cases than those of the list, or of a part of them that says it is
/// whole.
pub(super) fn check(root: &Path, runs: &Runs) -> Result<(), Failure> {
    let text = fs::read_to_string(root.join(LIST))?;
    let lines = text.lines().filter_map(|line| line.split_once(':'));
    let list: BTreeSet<String> = lines.map(|(name, _)| name.to_owned()).collect();
    let wrong: Vec<String> = runs
        .iter()
        .filter_map(|(store, run)| Some(format!("{store}: {}", difference(&list, run)?)))
        .collect();
    if wrong.is_empty() {
        return Ok(());
    }
    Err(Failure::new(format!(
        "the cases that ran are not those of {LIST}:\n{}\nan old run? `cargo xtask test` makes a new one",
        wrong.join("\n")
    )))
}

fn difference(list: &BTreeSet<String>, run: &Run) -> Option<String> {
    let missing = list.difference(&run.cases).filter(|_| !run.is_part);
    let missing: Vec<&str> = missing.map(String::as_str).collect();
    let unknown = run.cases.difference(list);
    let unknown: Vec<&str> = unknown.map(String::as_str).collect();
    let named = |what: &str, names: &[&str]| {
        let some = !names.is_empty();
        some.then(|| format!("{what} {}", names.join(", ")))
    };
    let both = [named("without", &missing), named("also", &unknown)];
    let both: Vec<String> = both.into_iter().flatten().collect();
    (!both.is_empty()).then(|| both.join("; "))
}

/// Fails for a row of the table of round trips that no run stands for; with `one_is_enough`, only if no
/// other row of its store has a run either.
pub(super) fn every_row_has_a_run(
    document: &str,
    runs: &Runs,
    one_is_enough: bool,
) -> Result<(), Failure> {
    let missing: Vec<String> = rows(document)
        .into_iter()
        .filter(|name| !runs.contains_key(name))
        .filter(|name| !one_is_enough || of(runs, base(name)).next().is_none())
        .collect();
    if missing.is_empty() {
        return Ok(());
    }
    Err(Failure::new(format!(
        "no run of {}: `cargo xtask test --all` makes all but those of memory and SQLite, which are made by `cargo test`; remove the row of a set-up that is no longer tested",
        missing.join(", ")
    )))
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    /// The runs of earlier commits would stand for tests that did not run.
    #[test]
    fn the_checks_begin_without_runs() {
        let script = fs::read_to_string(crate::root().join(".ci/run")).unwrap();
        let body = |name: &str| {
            let after = script.split_once(&format!("\n{name}() {{\n")).unwrap().1;
            after.split_once("\n}\n").unwrap().0.to_owned()
        };
        for (step, first) in [("tests", "cargo test"), ("nightly", "-p conformance-tests")] {
            let body = body(step);
            let before = body.split_once(first).unwrap().0;
            assert!(
                before.contains("\n    keep_runs\n") || before.starts_with("    keep_runs\n"),
                "{step}"
            );
        }
        let target = tempfile::tempdir().unwrap();
        let records = target.path().join("conformance");
        fs::create_dir(&records).unwrap();
        fs::write(records.join("redis.json"), "{}").unwrap();
        let mut command = Command::new("bash");
        command.env("target", target.path());
        command.args(["-euc", &body("keep_runs")]);
        assert!(command.status().unwrap().success());
        assert!(!records.exists());
    }
}
