//! Why a case ends early.

use crate::capability::{Capability, Reason};

/// Why a case ends early.
#[derive(Debug)]
#[non_exhaustive]
pub enum Stop {
    /// It failed, and this is what happened.
    Failed(String),
    /// It needs something that the backend does not stage. Not applicable where the backend's list says why; else a failure.
    NotStaged(Capability),
    /// The limits of the table or of its store leave nothing to test, for this reason.
    NotApplicable(Reason),
}

impl Stop {
    /// A failure.
    pub fn failed(what: impl Into<String>) -> Self {
        Self::Failed(what.into())
    }
}

impl<E: std::error::Error> From<E> for Stop {
    fn from(error: E) -> Self {
        let mut text = error.to_string();
        let mut source = error.source();
        while let Some(cause) = source {
            text.push_str(": ");
            text.push_str(&cause.to_string());
            source = cause.source();
        }
        Self::Failed(text)
    }
}
