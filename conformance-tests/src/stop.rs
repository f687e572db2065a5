//! Why a case ends early.

use crate::capability::{Capability, Reason};

/// Why a case ends early.
#[derive(Debug)]
#[non_exhaustive]
pub enum Stop {
    /// It failed; the text says what happened.
    Failed(String),
    /// It needs a capability that the backend does not stage. Not applicable if the backend lists a
    /// reason for it; otherwise a failure.
    NotStaged(Capability),
    /// The limits of the table or of its store leave nothing to test; the text is the reason.
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
