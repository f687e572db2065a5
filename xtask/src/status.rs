//! `cargo xtask status`: writes the results of the suite into the tables of the documents. No
//! number that the suite can count is written by hand.

mod cases;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::providers::{Provider, providers};
use crate::{Failure, say};

/// The environment variable that makes the suite keep its runs.
pub const VARIABLE: &str = "MEMBERSHIP_CONFORMANCE_RECORDS";

/// Where runs of the suite are kept.
pub fn records(root: &Path) -> PathBuf {
    crate::target(root).join("conformance")
}

/// The document with the table of round trips.
const PROVIDERS: &str = "docs/providers.md";

const BEGIN: &str = "<!-- cargo xtask status: the last column -->";
const BEGIN_ALL: &str = "<!-- cargo xtask status: all of it -->";
const END: &str = "<!-- end of cargo xtask status -->";

/// The scheme of the store without a server and without a crate.
const MEMORY: &str = "memory";

/// All stores, each with its scheme, in the order of the crates.
fn stores_of_schemes() -> impl Iterator<Item = (&'static str, &'static str)> {
    let of = |it: &'static Provider| {
        it.stores
            .iter()
            .map(|one| (it.scheme.as_str(), one.as_str()))
    };
    let others = providers().flat_map(move |(_, it)| of(it));
    [(MEMORY, MEMORY)].into_iter().chain(others)
}

/// The operations of the table of round trips, by their names in the suite.
const OPERATIONS: [&str; 4] = ["read", "read_row", "commit", "update_i_am_alive"];

/// Writes what the last runs of the suite found into the tables of README.md and docs/providers.md.
#[derive(clap::Args)]
pub struct Status {
    /// Write nothing; fail where a table says something else than the runs.
    #[arg(long)]
    check: bool,
    /// Fail where only a part of the cases ran over a set-up.
    #[arg(long)]
    whole: bool,
    /// Fail where a set-up in the table of docs/providers.md has no run.
    #[arg(long)]
    all: bool,
    /// Fail where a store in that table has no run over any set-up.
    #[arg(long)]
    stores: bool,
}

/// One store's last whole run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Run {
    passed: usize,
    failed: usize,
    not_applicable: usize,
    /// Whether only those cases ran that can differ in this set-up.
    is_part: bool,
    round_trips: BTreeMap<String, u64>,
    /// The names of the cases that ran.
    cases: BTreeSet<String>,
}

impl Run {
    fn parse(text: &str) -> Option<(String, Self)> {
        let value: Value = serde_json::from_str(text).ok()?;
        let count = |word| {
            value["cases"].as_array().map_or(0, |cases| {
                cases.iter().filter(|case| case["outcome"] == word).count()
            })
        };
        let trips = value["round_trips"].as_object().into_iter().flatten();
        let round_trips = trips
            .filter_map(|(name, n)| Some((name.clone(), n.as_u64()?)))
            .collect();
        let cases = value["cases"].as_array().into_iter().flatten();
        let names = cases.filter_map(|case| Some(case["name"].as_str()?.to_owned()));
        let run = Self {
            cases: names.collect(),
            passed: count("passed"),
            failed: count("failed"),
            not_applicable: count("not_applicable"),
            is_part: value["complete"] == false,
            round_trips,
        };
        Some((value["store"].as_str()?.to_owned(), run))
    }

    fn cases(&self) -> String {
        match self.failed {
            0 => format!(
                "{} passed, {} not applicable",
                self.passed, self.not_applicable
            ),
            failed => format!("**{failed} of {} failed**", self.passed + failed),
        }
    }
}

type Runs = BTreeMap<String, Run>;

/// Writes the runs into a document.
type Write<'a> = dyn Fn(&str, &Runs) -> Result<String, Failure> + 'a;

fn runs(folder: &Path) -> Result<Runs, Failure> {
    let nothing = || {
        Failure::new(format!(
            "there are no runs in {}; `cargo xtask test` makes them",
            folder.display()
        ))
    };
    let mut runs = Runs::new();
    for file in fs::read_dir(folder).map_err(|_| nothing())? {
        let path = file?.path();
        if path.extension().is_some_and(|end| end == "json") {
            let run = Run::parse(&fs::read_to_string(&path)?);
            let (name, run) = run.ok_or_else(|| {
                Failure::new(format!(
                    "{} is no run of the suite; remove it",
                    path.display()
                ))
            })?;
            // Other runs are of examples, and of tables with planted faults.
            if stores_of_schemes().any(|(_, store)| store == base(&name)) {
                runs.insert(name, run);
            }
        }
    }
    if runs.is_empty() {
        Err(nothing())
    } else {
        Ok(runs)
    }
}

pub fn cells(line: &str) -> Vec<String> {
    line.trim()
        .trim_matches('|')
        .split('|')
        .map(|cell| cell.trim().to_owned())
        .collect()
}

pub fn line(cells: &[String]) -> String {
    format!("| {} |", cells.join(" | "))
}

/// Replaces the lines between the markers by the result of `change`.
pub fn between(
    document: &str,
    begin: &str,
    change: impl Fn(&[&str]) -> Vec<String>,
) -> Result<String, Failure> {
    let missing = || {
        Failure::new(format!(
            "a document has lost its marker `{begin}` or `{END}`"
        ))
    };
    let (before, rest) = document
        .split_once(&format!("{begin}\n"))
        .ok_or_else(missing)?;
    let (table, after) = rest.split_once(END).ok_or_else(missing)?;
    let mut table = change(&table.lines().collect::<Vec<_>>()).join("\n");
    table.push('\n');
    Ok(format!("{before}{begin}\n{table}{END}{after}"))
}

/// The store of a run: `redis`, also if a description of the set-up follows in the run's name.
fn base(name: &str) -> &str {
    name.split(|c: char| c != '-' && !c.is_ascii_alphanumeric())
        .next()
        .unwrap_or_default()
}

/// The runs of one store, in the order of their names.
fn of<'a>(runs: &'a Runs, store: &'a str) -> impl Iterator<Item = (&'a String, &'a Run)> {
    runs.iter().filter(move |(name, _)| base(name) == store)
}

/// The set-ups in the table of round trips.
fn rows(document: &str) -> BTreeSet<String> {
    let table = document.split_once(BEGIN_ALL).unwrap_or_default().1;
    let table = table.split(END).next().unwrap_or_default();
    let names = table
        .lines()
        .filter_map(|line| cells(line).into_iter().next());
    names
        .filter(|name| stores_of_schemes().any(|(_, store)| store == base(name)))
        .collect()
}

/// The result of one store in a few words that do not change when the suite grows: its worst run,
/// and the number of set-ups that it has run over, now or earlier.
fn in_short(runs: &Runs, rows: &BTreeSet<String>, store: &str) -> Option<String> {
    let worst = of(runs, store)
        .map(|(_, run)| run)
        .max_by_key(|run| run.failed)?;
    let word = if worst.failed == 0 {
        "passes".to_owned()
    } else {
        worst.cases()
    };
    let earlier = rows.iter().filter(|name| base(name) == store);
    let set_ups: BTreeSet<_> = of(runs, store)
        .map(|(name, _)| name)
        .chain(earlier)
        .collect();
    Some(match set_ups.len() {
        1 => word,
        several => format!("{word} ({several} set-ups)"),
    })
}

/// A line for a comparison, without the number of cases, which changes with every case that is
/// added.
fn compared(line: &str) -> String {
    match line
        .rsplit_once('|')
        .and_then(|(rest, _)| rest.rsplit_once('|'))
    {
        Some((rest, last)) if last.contains(" passed") => {
            // A new case passes. One that does not apply any more is a check that is lost.
            let (passed, others) = last.split_once(" passed").unwrap_or_default();
            let passed = passed.replace(|c: char| c.is_ascii_digit(), "");
            format!("{rest}|{passed} passed{others}")
        }
        _ => line.to_owned(),
    }
}

/// The table of stores: changes the last cell of each row whose second cell names a scheme with a
/// run.
fn stores(document: &str, runs: &Runs, rows: &BTreeSet<String>) -> Result<String, Failure> {
    between(document, BEGIN, |lines| {
        let row = |text: &&str| {
            let mut cells = cells(text);
            let schemes: Vec<&str> = cells.get(1).map_or(Vec::new(), |cell| {
                cell.split('`').skip(1).step_by(2).collect()
            });
            let stores = stores_of_schemes().filter(|(scheme, _)| schemes.contains(scheme));
            let found: Vec<_> = stores
                .filter_map(|(_, store)| Some((store, in_short(runs, rows, store)?)))
                .collect();
            let said = match found.as_slice() {
                [] => return (*text).to_owned(),
                [(_, said)] => said.clone(),
                several => several
                    .iter()
                    .map(|(store, said)| format!("{store}: {said}"))
                    .collect::<Vec<_>>()
                    .join("; "),
            };
            if let Some(last) = cells.last_mut() {
                *last = said;
            }
            line(&cells)
        };
        lines.iter().map(row).collect()
    })
}

/// The table of round trips: one row per set-up, in the order of the schemes; one without a run keeps
/// its row.
fn round_trips(document: &str, runs: &Runs) -> Result<String, Failure> {
    between(document, BEGIN_ALL, |lines| {
        let head = ["store"]
            .into_iter()
            .chain(OPERATIONS.iter().copied())
            .chain(["cases"]);
        let head: Vec<String> = head
            .map(|cell| {
                if cell == "store" || cell == "cases" {
                    cell.to_owned()
                } else {
                    format!("`{cell}`")
                }
            })
            .collect();
        let mut table = vec![
            line(&head),
            line(&vec!["---".to_owned(); head.len()]).replace(' ', ""),
        ];
        let earlier: BTreeMap<String, &str> = lines
            .iter()
            .skip(2)
            .filter_map(|text| Some((cells(text).into_iter().next()?, *text)))
            .collect();
        for (_, store) in stores_of_schemes() {
            let names = of(runs, store).map(|(name, _)| name).chain(earlier.keys());
            let names: BTreeSet<_> = names.filter(|name| base(name) == store).collect();
            for name in names {
                let run = match (runs.get(name), earlier.get(name)) {
                    (None, Some(row)) => {
                        table.push((*row).to_owned());
                        continue;
                    }
                    // Only a part of the cases ran: the row of the last whole run still holds, unless
                    // one of the cases failed.
                    (Some(run), Some(row)) if run.is_part && run.failed == 0 => {
                        table.push((*row).to_owned());
                        continue;
                    }
                    (Some(run), _) => run,
                    (None, None) => continue,
                };
                let trips = OPERATIONS.iter().map(|name| {
                    run.round_trips
                        .get(*name)
                        .map_or("–".to_owned(), u64::to_string)
                });
                table.push(line(
                    &[name.clone()]
                        .into_iter()
                        .chain(trips)
                        .chain([run.cases()])
                        .collect::<Vec<_>>(),
                ));
            }
        }
        table
    })
}

impl Status {
    /// Writes the tables, or compares them.
    pub fn run(&self, root: &Path) -> Result<(), Failure> {
        self.compare(root, &runs(&records(root))?)
    }

    fn compare(&self, root: &Path, runs: &Runs) -> Result<(), Failure> {
        let mut wrong = Vec::new();
        let set_ups = rows(&fs::read_to_string(root.join(PROVIDERS))?);
        let write_stores = |document: &str, runs: &Runs| stores(document, runs, &set_ups);
        let write: [(&str, &Write<'_>); 2] =
            [("README.md", &write_stores), (PROVIDERS, &round_trips)];
        for (name, write) in write {
            let path = root.join(name);
            let before = fs::read_to_string(&path)?;
            let after = write(&before, runs).map_err(|e| Failure::new(format!("{name}: {e}")))?;
            let same = before.lines().map(compared).eq(after.lines().map(compared));
            if before == after || (self.check && same) {
                continue;
            }
            if self.check {
                let lines = after
                    .lines()
                    .filter(|line| !before.lines().any(|old| compared(old) == compared(line)));
                wrong.push(format!(
                    "{name} should say:\n{}",
                    lines.collect::<Vec<_>>().join("\n")
                ));
            } else {
                fs::write(&path, after)?;
                say(&format!("{name} is written"));
            }
        }
        if !wrong.is_empty() {
            return Err(Failure::new(format!(
                "{}\n`cargo xtask status` writes it",
                wrong.join("\n")
            )));
        }
        cases::check(root, runs)?;
        if self.all || self.stores {
            let document = fs::read_to_string(root.join(PROVIDERS))?;
            cases::every_row_has_a_run(&document, runs, !self.all)?;
        }
        let parts: Vec<&str> = runs
            .iter()
            .filter(|(_, run)| self.whole && run.is_part)
            .map(|(store, _)| store.as_str())
            .collect();
        if !parts.is_empty() {
            return Err(Failure::new(format!(
                "only a part of the cases ran over {}: `cargo xtask test --whole` runs all",
                parts.join(", ")
            )));
        }
        let failed: Vec<&str> = runs
            .iter()
            .filter(|(_, run)| run.failed > 0)
            .map(|(store, _)| store.as_str())
            .collect();
        if failed.is_empty() {
            Ok(())
        } else {
            Err(Failure::new(format!(
                "cases failed on {}",
                failed.join(", ")
            )))
        }
    }
}

#[cfg(test)]
mod tests;
