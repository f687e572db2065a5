//! `cargo xtask versions`: the suite over other versions of the servers than the usual ones, and the
//! table of versions in the documents.

use std::fs;
use std::path::{Path, PathBuf};

use membership_testbed::{Kind, install};
use serde_json::Value;

use crate::status::{VARIABLE, between, cells, line};
use crate::{Failure, say};

/// The document with the table of versions.
const DOCUMENT: &str = "docs/conformance.md";
const BEGIN: &str = "<!-- cargo xtask versions: the last column -->";

/// The suite's test over one server of a kind: package, features, target and test.
const SUITES: &[(Kind, [&str; 4])] = &[
    (
        Kind::Postgres,
        [
            "membership-sql",
            "postgres",
            "postgres_conformance",
            "conformance",
        ],
    ),
    (
        Kind::MariaDb,
        ["membership-sql", "mysql", "mysql_conformance", "mariadb"],
    ),
    (
        Kind::Redis,
        ["membership-redis", "", "conformance", "redis"],
    ),
    (
        Kind::Valkey,
        ["membership-redis", "", "conformance", "valkey"],
    ),
    (
        Kind::ZooKeeper,
        ["membership-zk", "", "conformance", "zookeeper"],
    ),
    (
        Kind::Etcd,
        ["membership-etcd", "", "conformance", "one_member"],
    ),
    (
        Kind::Consul,
        ["membership-consul", "", "conformance", "consul"],
    ),
    (
        Kind::Nats,
        ["membership-nats", "", "conformance", "one_server"],
    ),
];

/// Runs the suite over each other version of the servers, and writes what it found into the table of
/// versions.
#[derive(clap::Args)]
pub struct Versions {
    /// Only these servers. [default: all]
    #[arg(long, value_name = "NAME", value_delimiter = ',', num_args = 1..)]
    only: Vec<Kind>,
    /// Say which versions there are, and run nothing.
    #[arg(long)]
    list: bool,
    /// Write nothing; fail where the table says something else than the runs.
    #[arg(long)]
    check: bool,
}

impl Versions {
    /// Runs the command; an error if a version cannot be installed or fails.
    pub fn run(&self, root: &Path) -> Result<(), Failure> {
        let chosen = |kind: Kind| self.only.is_empty() || self.only.contains(&kind);
        let versions = install::versions().filter(|(kind, _)| chosen(*kind));
        if self.list {
            versions.for_each(|(kind, version)| say(&format!("{kind} {version}")));
            return Ok(());
        }
        let (mut found, mut wrong) = (Vec::new(), Vec::new());
        for (kind, version) in versions {
            let said = suite(root, kind, version)?;
            say(&format!("versions: {kind} {version}: {said}"));
            if !said.starts_with(|c: char| c.is_ascii_digit()) {
                wrong.push(format!("{kind} {version}: {said}"));
            }
            found.push((format!("{kind} {version}"), said));
        }
        let path = root.join(DOCUMENT);
        let text = fs::read_to_string(&path)?;
        let new = table(&text, &found)?;
        if self.check && counted(&new) != counted(&text) {
            wrong.push(format!(
                "{DOCUMENT} says something else: run `cargo xtask versions`"
            ));
        } else if !self.check {
            fs::write(&path, new)?;
        }
        if wrong.is_empty() {
            return Ok(());
        }
        Err(Failure::new(wrong.join("\nerror: ")))
    }
}

/// Without the number of passed cases, which changes with every case that is added.
fn counted(text: &str) -> String {
    let words = text.split(' ').collect::<Vec<_>>();
    let kept = words
        .windows(2)
        .filter(|pair| !pair[1].starts_with("passed"));
    kept.map(|pair| pair[0]).collect::<Vec<_>>().join(" ")
}

/// The table with the result of each of these versions in its last cell.
fn table(document: &str, found: &[(String, String)]) -> Result<String, Failure> {
    between(document, BEGIN, |lines| {
        let row = |text: &&str| {
            let mut cells = cells(text);
            let name = cells.iter().take(2).cloned().collect::<Vec<_>>().join(" ");
            match found.iter().find(|(of, _)| *of == name) {
                Some((_, said)) => {
                    if let Some(last) = cells.last_mut() {
                        last.clone_from(said);
                    }
                    line(&cells)
                }
                None => (*text).to_owned(),
            }
        };
        lines.iter().map(row).collect()
    })
}

/// What the suite over one version comes to.
fn suite(root: &Path, kind: Kind, version: &str) -> Result<String, Failure> {
    let suite = SUITES.iter().find(|(of, _)| *of == kind);
    let Some((_, [package, features, target, test])) = suite else {
        return Err(Failure::new(format!(
            "{kind} has no suite in xtask/src/versions.rs"
        )));
    };
    let records = records(root, kind, version);
    let _ = fs::remove_dir_all(&records);
    let mut command = crate::cargo();
    command
        .current_dir(root)
        .args(["test", "--locked", "-p", package, "--features", features])
        .args(["--test", target, "--", "--exact", test])
        .env(VARIABLE, &records)
        .env("MEMBERSHIP_TEST_CONTAINERS", "never")
        .env(
            format!("MEMBERSHIP_TEST_{}_VERSION", kind.name().to_uppercase()),
            version,
        );
    let passed = command.status()?.success();
    let (mut cases, mut failed) = ([0_usize; 2], Vec::new());
    for file in fs::read_dir(&records).into_iter().flatten().flatten() {
        let run: Value = serde_json::from_str(&fs::read_to_string(file.path())?)?;
        for case in run["cases"].as_array().into_iter().flatten() {
            match case["outcome"].as_str() {
                Some("passed") => cases[0] += 1,
                Some("not_applicable") => cases[1] += 1,
                _ => failed.push(case["name"].as_str().unwrap_or_default().to_owned()),
            }
        }
    }
    Ok(match (passed, failed.is_empty(), cases) {
        (true, true, [passed, others]) if passed > 0 => {
            format!("{passed} passed, {others} not applicable")
        }
        (_, false, _) => format!("**failed**: {}", failed.join(", ")),
        _ => "**could not be run**".to_owned(),
    })
}

fn records(root: &Path, kind: Kind, version: &str) -> PathBuf {
    let all = crate::status::records(root);
    all.with_file_name("versions")
        .join(format!("{kind}-{version}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_version_has_a_suite_and_a_row() {
        let text = fs::read_to_string(crate::root().join(DOCUMENT)).unwrap();
        for (kind, version) in install::versions() {
            assert!(SUITES.iter().any(|(of, _)| *of == kind), "{kind}");
            let name = format!("{kind} {version}");
            let marked = table(&text, &[(name.clone(), "marked".to_owned())]).unwrap();
            assert!(
                marked.contains("| marked |"),
                "{DOCUMENT} has no row for {name}"
            );
        }
    }

    #[test]
    fn a_new_case_is_no_difference() {
        let said = |n| format!("| a | b | {n} passed, 3 not applicable |");
        assert_eq!(counted(&said(1)), counted(&said(2)));
        assert_ne!(counted(&said(1)), counted("| a | b | **failed**: x |"));
    }
}
