//! Runs the cases one after the other and reports the outcome of each.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use crate::case::{Case, Cx, Progress};
use crate::effort::Effort;
use crate::environment::{Asked, Environment};
use crate::{Backend, Capability, CaseResult, Clause, Outcome, Report, Stop, cases};

type Listener = Box<dyn Fn(&CaseResult) + Send + Sync>;

/// The suite for one backend. See the crate for an example.
pub struct Suite {
    backend: Arc<dyn Backend>,
    seed: u64,
    effort: Effort,
    /// The environment requests the long runs.
    asked: Asked,
    clauses: Vec<Clause>,
    names: Vec<String>,
    /// If the set-up repeats another one: the clauses that it can change. Empty means all.
    differing: Vec<Clause>,
    whole: bool,
    listener: Option<Listener>,
    progress: Option<Progress>,
    /// An invalid value in the environment.
    wrong: Option<String>,
}

impl Suite {
    /// Runs every case, and prints each to standard output when it ends. The environment can change
    /// that:
    ///
    /// | variable | value | as |
    /// |---|---|---|
    /// | `MEMBERSHIP_CONFORMANCE_SEED` | a number | [`seed`](Self::seed) |
    /// | `MEMBERSHIP_CONFORMANCE_CASES` | names, or parts of names, separated by commas | [`named`](Self::named) |
    /// | `MEMBERSHIP_CONFORMANCE_CLAUSES` | clauses, separated by commas: `T5,T13` | [`clauses`](Self::clauses) |
    /// | `MEMBERSHIP_CONFORMANCE_EFFORT` | `quick` or `soak` | [`Effort::quick`], [`Effort::soak`] |
    /// | `MEMBERSHIP_CONFORMANCE_SETUPS` | `whole` | every case, also where a set-up [`repeats`](Self::repeats) another one |
    ///
    /// The caller's later calls are added to that. An invalid value fails the run.
    pub fn new(backend: impl Backend) -> Self {
        Self::shared(Arc::new(backend))
    }

    /// The same for a backend that the caller shares.
    #[must_use]
    pub fn shared(backend: Arc<dyn Backend>) -> Self {
        let asked = Environment::read();
        let (asked, wrong) = match asked {
            Ok(asked) => (asked, None),
            Err(wrong) => (Environment::default(), Some(wrong)),
        };
        Self {
            backend,
            seed: asked.seed.unwrap_or_else(fresh_seed),
            effort: match asked.effort {
                Asked::Quick => Effort::quick(),
                Asked::Usual => Effort::default(),
                Asked::Soak => Effort::soak(),
            },
            asked: asked.effort,
            clauses: asked.clauses,
            names: asked.cases,
            differing: Vec::new(),
            whole: asked.whole,
            listener: None,
            progress: None,
            wrong,
        }
    }

    /// Repeats the random choices of an earlier run. The timing of threads is not repeated.
    #[must_use]
    pub fn seed(mut self, seed: u64) -> Self {
        self.seed = seed;
        self
    }

    /// Sets how much work the long cases do.
    #[must_use]
    pub fn effort(mut self, change: impl FnOnce(&mut Effort)) -> Self {
        change(&mut self.effort);
        self
    }

    /// Sets how much work the long cases do, unless the environment requests a soak: fewer
    /// repetitions for a slow store. Every case still runs, and each repetition checks as much.
    #[must_use]
    pub fn effort_unless_soak(self, change: impl FnOnce(&mut Effort)) -> Self {
        match self.asked {
            Asked::Soak => self,
            Asked::Usual => self.effort(change),
            Asked::Quick => {
                let quick = self.effort;
                let mut suite = self.effort(change);
                suite.effort = suite.effort.at_most(quick);
                suite
            }
        }
    }

    /// Runs only the cases that prove one of these clauses (and of those of earlier calls).
    #[must_use]
    pub fn clauses(mut self, clauses: impl IntoIterator<Item = Clause>) -> Self {
        self.clauses.extend(clauses);
        self
    }

    /// Runs only the cases whose name contains this text (or one of those of earlier calls).
    #[must_use]
    pub fn named(mut self, part: impl Into<String>) -> Self {
        self.names.push(part.into());
        self
    }

    /// Says that this backend is another set-up (TLS, several servers) of a store for which another
    /// run takes every case. Then only the cases run that prove one of these clauses, which the
    /// set-up can change. This has no effect with `MEMBERSHIP_CONFORMANCE_SETUPS=whole`, or if the
    /// caller selects clauses or cases.
    #[must_use]
    pub fn repeats(mut self, differing: impl IntoIterator<Item = Clause>) -> Self {
        self.differing.extend(differing);
        self
    }

    /// Passes each result to this function instead of printing it.
    #[must_use]
    pub fn on_result(mut self, listener: impl Fn(&CaseResult) + Send + Sync + 'static) -> Self {
        self.listener = Some(Box::new(listener));
        self
    }

    /// Passes the progress of long cases to this function, for example one line for each kill of a
    /// server. Without it they are printed, unless [`on_result`](Self::on_result) takes the
    /// results.
    #[must_use]
    pub fn on_progress(mut self, listener: impl Fn(&str) + Send + Sync + 'static) -> Self {
        self.progress = Some(Arc::new(listener));
        self
    }

    /// The name and the clauses of every case, in order.
    pub fn cases() -> impl Iterator<Item = (&'static str, &'static [Clause])> {
        cases::ALL
            .iter()
            .flat_map(|group| group.iter())
            .map(|case| (case.name, case.clauses))
    }

    /// Runs the selected cases one after the other, each on its own clusters, which are removed
    /// afterwards.
    ///
    /// Always returns a report, which contains the failures. Dropping the future stops the suite
    /// and leaves the clusters of the running case behind. Needs a tokio runtime with time enabled;
    /// a runtime with several threads finds more faults.
    pub async fn run(self) -> Report {
        let mut results = Vec::new();
        let chosen = cases::ALL
            .iter()
            .flat_map(|group| group.iter())
            .any(|case| self.wants(case));
        let nothing = || "no case has such a name or such a clause".to_owned();
        if let Some(what) = self.wrong.clone().or_else(|| (!chosen).then(nothing)) {
            let result = CaseResult {
                name: "what_was_asked_for",
                clauses: &[],
                outcome: Outcome::Failed(what),
                took: Duration::ZERO,
                round_trips: None,
                figures: None,
                replay: None,
            };
            self.tell(&result);
            return Report {
                store: self.backend.name(),
                seed: self.seed,
                results: vec![result],
            };
        }
        for case in cases::ALL
            .iter()
            .flat_map(|group| group.iter())
            .filter(|case| self.wants(case))
        {
            let result = self.run_case(case).await;
            self.tell(&result);
            results.push(result);
        }
        let report = Report {
            store: self.backend.name(),
            seed: self.seed,
            results,
        };
        crate::record::keep(&report, self.is_shortened());
        report
    }

    fn tell(&self, result: &CaseResult) {
        match &self.listener {
            Some(listener) => listener(result),
            None => print(result),
        }
    }

    fn progress(&self) -> Progress {
        match (&self.progress, &self.listener) {
            (Some(progress), _) => progress.clone(),
            (None, Some(_)) => Arc::new(|_: &str| {}),
            (None, None) => Arc::new(print),
        }
    }

    /// Whether cases are omitted because another run takes them.
    fn is_shortened(&self) -> bool {
        !self.differing.is_empty()
            && !self.whole
            && self.clauses.is_empty()
            && self.names.is_empty()
    }

    fn wants(&self, case: &Case) -> bool {
        if self.is_shortened() && !case.clauses.iter().any(|c| self.differing.contains(c)) {
            return false;
        }
        (self.clauses.is_empty() || case.clauses.iter().any(|c| self.clauses.contains(c)))
            && (self.names.is_empty()
                || self
                    .names
                    .iter()
                    .any(|part| case.name.contains(part.as_str())))
    }

    async fn run_case(&self, case: &'static Case) -> CaseResult {
        let began = Instant::now();
        let cx = Cx::new(
            self.backend.clone(),
            case.name,
            self.seed,
            self.effort,
            self.progress(),
        );
        // A separate task: a panic in a provider fails only this case.
        let mut task = tokio::spawn((case.run)(cx.clone()));
        let ended = tokio::time::timeout(self.effort.case_timeout, &mut task).await;
        task.abort();
        let verdict = match ended {
            Ok(Ok(verdict)) => verdict,
            Ok(Err(error)) => Err(Stop::failed(format!("the case panicked: {error}"))),
            Err(_) => Err(Stop::failed(format!(
                "still running after {:?}",
                self.effort.case_timeout
            ))),
        };
        let left = cx.remove_clusters().await;
        let outcome = match verdict.and(left) {
            Ok(()) => Outcome::Passed,
            Err(Stop::Failed(what)) => Outcome::Failed(what),
            Err(Stop::NotApplicable(reason)) => Outcome::NotApplicable(reason),
            Err(Stop::NotStaged(capability)) => match self
                .backend
                .not_applicable()
                .iter()
                .find(|(c, _)| *c == capability)
            {
                Some((_, reason)) => Outcome::NotApplicable(*reason),
                None => Outcome::Failed(format!(
                    "the backend neither stages Capability::{capability:?} nor lists it in `not_applicable`: stage it, or list it \
                     with the reason that is true of the store: {}",
                    possible(capability)
                )),
            },
        };
        let replay = matches!(outcome, Outcome::Failed(_))
            .then(|| self.backend.replay_command(self.seed, case.name));
        let (took, round_trips, figures) = (began.elapsed(), cx.count(), cx.figures());
        CaseResult {
            name: case.name,
            clauses: case.clauses,
            outcome,
            took,
            round_trips,
            figures,
            replay,
        }
    }
}

#[allow(
    clippy::print_stdout,
    reason = "printing the report is what the suite is run for"
)]
fn print<T: fmt::Display + ?Sized>(line: &T) {
    println!("{line}");
}

/// The reasons that a store can have, in words.
fn possible(capability: Capability) -> String {
    let reasons = capability.reasons().iter();
    let texts: Vec<String> = reasons.map(|r| format!("Reason::{r:?} ({r})")).collect();
    texts.join(", ")
}

fn fresh_seed() -> u64 {
    let nanos = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |d| d.as_nanos());
    // The lower half changes fastest, and is enough for a seed.
    u64::try_from(nanos & u128::from(u32::MAX)).unwrap_or(0) ^ (u64::from(std::process::id()) << 32)
}
