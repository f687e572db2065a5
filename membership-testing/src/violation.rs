//! A violated invariant: what happened, when, and the commands that reproduce it.

use std::fmt;
use std::time::Duration;

/// A violated invariant. Displays with the seed, the end of the trace and, if known, the command
/// that replays it.
#[derive(Clone, PartialEq, Eq)]
pub struct Violation(Box<Details>);

#[derive(Clone, PartialEq, Eq)]
struct Details {
    seed: u64,
    invariant: &'static str,
    what: String,
    at: Duration,
    tail: Vec<String>,
    replay: Option<String>,
    shrink: Option<String>,
}

impl Violation {
    /// A violation of `invariant` (`P1` to `P16`, or another word for a requirement of the harness
    /// itself), at a virtual time, in a run from a seed.
    #[must_use]
    pub fn new(
        seed: u64,
        invariant: &'static str,
        what: impl Into<String>,
        at: Duration,
        tail: Vec<String>,
    ) -> Self {
        Self(Box::new(Details {
            seed,
            invariant,
            what: what.into(),
            at,
            tail,
            replay: None,
            shrink: None,
        }))
    }

    /// Adds the command that replays it.
    #[must_use]
    pub fn with_replay(mut self, command: impl Into<String>) -> Self {
        self.0.replay = Some(command.into());
        self
    }

    /// Adds the command that looks for a smaller run that fails the same way.
    #[must_use]
    pub fn with_shrink(mut self, command: impl Into<String>) -> Self {
        self.0.shrink = Some(command.into());
        self
    }

    /// The seed of the run.
    #[must_use]
    pub fn seed(&self) -> u64 {
        self.0.seed
    }

    /// The invariant.
    #[must_use]
    pub fn invariant(&self) -> &'static str {
        self.0.invariant
    }

    /// What happened.
    #[must_use]
    pub fn what(&self) -> &str {
        &self.0.what
    }

    /// The virtual time of the violation.
    #[must_use]
    pub fn at(&self) -> Duration {
        self.0.at
    }

    /// The last lines of the trace.
    #[must_use]
    pub fn tail(&self) -> &[String] {
        &self.0.tail
    }
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let d = &self.0;
        writeln!(f, "{} is violated: {}", d.invariant, d.what)?;
        writeln!(
            f,
            "  seed {}, at {:.3}s of virtual time",
            d.seed,
            d.at.as_secs_f64()
        )?;
        if !d.tail.is_empty() {
            writeln!(f, "  the trace until then:")?;
        }
        for line in &d.tail {
            writeln!(f, "    {line}")?;
        }
        if let Some(command) = &d.replay {
            writeln!(f, "  to replay it: {command}")?;
        }
        if let Some(command) = &d.shrink {
            writeln!(f, "  to shrink it: {command}")?;
        }
        Ok(())
    }
}

impl fmt::Debug for Violation {
    /// The same text as `Display`, because `unwrap` prints this one.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl std::error::Error for Violation {}
