//! What a run found, kept in a file for those who write documents from it.

use std::io;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use crate::{Outcome, Report, Suite};

/// The folder that runs are kept in, where there is one.
pub(crate) const FOLDER: &str = "MEMBERSHIP_CONFORMANCE_RECORDS";

impl Report {
    /// Everything but how long it took: store, seed, round trips as they were counted, whether every case of the suite
    /// ran, and how each ended. The layout is for this
    /// project's own tools, and may change.
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

    /// Writes [`to_json`](Self::to_json) to `folder/STORE.json`, in the place of an earlier run's, and gives the path.
    ///
    /// # Errors
    /// What the file system says. The folder is made where it is missing.
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

/// Keeps a run where the environment says so: a whole one, or the usual part of one over a set-up that repeats another. Another part says
/// nothing about a store.
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

#[allow(clippy::print_stderr, reason = "whoever asked for the file is told")]
fn say(text: &str) {
    eprintln!("{text}");
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backends::Memory;

    #[tokio::test]
    async fn a_run_is_written_as_it_ended() {
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
