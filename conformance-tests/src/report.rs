//! The result of a run, one line per case.

use std::fmt;
use std::time::Duration;

use crate::{Clause, Reason, RoundTrips};

/// The outcome of one case.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The store keeps the clause.
    Passed,
    /// The store violates the clause, or the case could not be staged.
    Failed(String),
    /// The case does not apply to this store.
    NotApplicable(Reason),
}

/// One case and its outcome.
#[derive(Clone, Debug)]
pub struct CaseResult {
    /// The case's name; unique in the suite.
    pub name: &'static str,
    /// The clauses it proves.
    pub clauses: &'static [Clause],
    /// The outcome.
    pub outcome: Outcome,
    /// The duration.
    pub took: Duration,
    /// The round trips of each operation, if the case counts them.
    pub round_trips: Option<RoundTrips>,
    /// Other figures that the case measured.
    pub figures: Option<String>,
    /// The command that runs the case again, if it failed.
    pub replay: Option<String>,
}

impl fmt::Display for CaseResult {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut clauses: Vec<String> = self.clauses.iter().map(ToString::to_string).collect();
        if clauses.is_empty() {
            clauses.push("-".to_owned());
        }
        let word = match &self.outcome {
            Outcome::Passed => "passed",
            Outcome::Failed(_) => "FAILED",
            Outcome::NotApplicable(_) => "n/a",
        };
        write!(
            f,
            "{word:<7} {:<12} {:<46} {:>8.1} ms",
            clauses.join(" "),
            self.name,
            self.took.as_secs_f64() * 1e3
        )?;
        if let Some(round_trips) = &self.round_trips {
            write!(f, "  {round_trips}")?;
        }
        if let Some(figures) = &self.figures {
            write!(f, "  {figures}")?;
        }
        match &self.outcome {
            Outcome::Passed => Ok(()),
            Outcome::NotApplicable(reason) => write!(f, "  {reason}"),
            Outcome::Failed(what) => {
                write!(f, "\n        {what}")?;
                for clause in self.clauses {
                    write!(f, "\n        {clause}: {}", clause.text())?;
                }
                if let Some(replay) = &self.replay {
                    write!(f, "\n        again: {replay}")?;
                }
                Ok(())
            }
        }
    }
}

/// The result of the suite for one store.
#[derive(Clone, Debug)]
#[must_use]
pub struct Report {
    /// The name that the backend gives the store.
    pub store: String,
    /// The seed; [`Suite::seed`](crate::Suite::seed) repeats this run with it.
    pub seed: u64,
    /// Every selected case, in order.
    pub results: Vec<CaseResult>,
}

impl Report {
    /// Whether at least one case ran and none failed.
    #[must_use]
    pub fn passed(&self) -> bool {
        !self.results.is_empty() && self.failures().next().is_none()
    }

    /// The cases that failed.
    pub fn failures(&self) -> impl Iterator<Item = &CaseResult> {
        self.results
            .iter()
            .filter(|r| matches!(r.outcome, Outcome::Failed(_)))
    }

    /// The cases that do not apply to this store.
    pub fn not_applicable(&self) -> impl Iterator<Item = &CaseResult> {
        self.results
            .iter()
            .filter(|r| matches!(r.outcome, Outcome::NotApplicable(_)))
    }

    /// The counted round trips, if any: for the tables of a provider's documentation.
    #[must_use]
    pub fn round_trips(&self) -> Option<RoundTrips> {
        self.results.iter().find_map(|r| r.round_trips)
    }

    /// The last line: the numbers of passed, failed and not applicable cases.
    #[must_use]
    pub fn summary(&self) -> String {
        let (failed, skipped) = (self.failures().count(), self.not_applicable().count());
        let passed = self.results.len() - failed - skipped;
        format!(
            "{}: {passed} passed, {failed} failed, {skipped} not applicable (seed {})",
            self.store, self.seed
        )
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for result in &self.results {
            writeln!(f, "{result}")?;
        }
        f.write_str(&self.summary())
    }
}
