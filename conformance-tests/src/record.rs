//! Keeps the result of a run in a file, from which documents are written.

use std::io;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use crate::{Outcome, Report, Suite};

/// The folder for results of runs, if one is set.
pub(crate) const FOLDER: &str = "MEMBERSHIP_CONFORMANCE_RECORDS";

impl Report {
    /// Everything except durations: store, seed, counted round trips, whether every case of the
    /// suite ran, and the outcome of each. The layout is for this project's own tools, and may
    /// change.
    #[must_use]
    pub fn to_json(&self) -> Value {
        let cases = self.results.iter().map(|result| {
            let clauses: Vec<String> = result.clauses.iter().map(ToString::to_string).collect();
            let (outcome, why) = match &result.outcome {
                Outcome::Passed => ("passed", None),
                Outcome::Failed(what) => ("failed", Some(what.clone())),
                Outcome::NotApplicable(reason) => ("not_applicable", Some(reason.to_string())),
            };
            json!({ "name": result.name, "clauses": clauses, "outcome": outcome, "why": why })
        });
        let round_trips: serde_json::Map<String, Value> = self
            .round_trips()
            .into_iter()
            .flat_map(|counted| counted.each().collect::<Vec<_>>())
            .map(|(name, n)| (name.to_owned(), json!(n)))
            .collect();
        json!({
            "store": self.store,
            "seed": self.seed,
            "round_trips": round_trips,
            "complete": self.results.len() == Suite::cases().count(),
            "cases": cases.collect::<Vec<_>>(),
        })
    }

    /// Writes [`to_json`](Self::to_json) to `folder/STORE.json`, replaces the file of an earlier
    /// run, and returns the path.
    ///
    /// # Errors
    /// The error of the file system. A missing folder is created.
    pub fn record(&self, folder: &Path) -> io::Result<PathBuf> {
        std::fs::create_dir_all(folder)?;
        let path = folder.join(format!(
            "{}.json",
            self.store
                .replace(|c: char| !c.is_ascii_alphanumeric(), "-")
        ));
        std::fs::write(&path, format!("{:#}\n", self.to_json()))?;
        Ok(path)
    }
}

/// Keeps a run if the environment requests that: a whole run, or the usual part over a set-up that
/// repeats another one. Other parts say nothing about a store.
pub(crate) fn keep(report: &Report, is_usual_part: bool) {
    let Some(folder) = std::env::var_os(FOLDER) else {
        return;
    };
    if report.results.len() < Suite::cases().count() && !is_usual_part {
        return;
    }
    if let Err(error) = report.record(Path::new(&folder)) {
        say(&format!(
            "{FOLDER}: the run of {} is not kept: {error}",
            report.store
        ));
    }
}

#[allow(
    clippy::print_stderr,
    reason = "the caller requested the file, and must learn that it is missing"
)]
fn say(text: &str) {
    eprintln!("{text}");
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backends::Memory;

    #[tokio::test]
    async fn a_record_holds_every_outcome() {
        let suite = Suite::new(Memory::default())
            .named("versions_rise")
            .named("secrets_do_not_show")
            .on_result(|_| {});
        let mut report = suite.run().await;
        report.store = "my store".to_owned();
        let folder = tempfile::tempdir().unwrap();
        let path = report.record(&folder.path().join("new")).unwrap();
        assert_eq!(path.file_name().unwrap(), "my-store.json");
        let read: Value = serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap();
        assert_eq!(read, report.to_json());
        let outcomes: Vec<_> = read["cases"]
            .as_array()
            .unwrap()
            .iter()
            .map(|case| case["outcome"].clone())
            .collect();
        assert_eq!(
            (outcomes, &read["complete"]),
            (
                vec![json!("passed"), json!("not_applicable")],
                &json!(false)
            )
        );
    }
}
