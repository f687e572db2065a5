//! The fate of a commit according to an answer: it happened, it did not, or it may have. A pure
//! function; the protocol's writer and the changes of [`admin`](crate::admin) use it. Clause T5.
//!
//! A commit that may have happened is searched in a version row that is read afterwards.
//! [`CommitRequest::judge`] decides whether it happened, can no longer happen, or may still happen
//! and must be sent again unchanged.

use super::{Attempt, CommitOutcome, CommitRequest, Conflict, NextStep, TableError};
use crate::VersionToken;

/// The result of a commit according to one answer.
#[derive(Clone, Debug, PartialEq)]
pub enum Fate {
    /// It is in the table.
    Happened(VersionToken),
    /// It did not happen and never will: another commit was first.
    Conflict(Conflict),
    /// It did not happen, according to this error.
    Failed(TableError),
    /// It may have happened. Contains the error, or `None` when the answer names another commit and
    /// therefore proves nothing.
    Unknown(Option<TableError>),
}

impl CommitRequest {
    /// Interprets the answer to this commit. An error that answers a second attempt says nothing
    /// about the first.
    #[must_use]
    pub fn fate(&self, answer: Result<CommitOutcome, TableError>) -> Fate {
        match answer {
            Ok(CommitOutcome::Committed(token)) if self.next_token(&[]).same_commit(&token) => {
                Fate::Happened(token)
            }
            Ok(CommitOutcome::Committed(_)) => Fate::Unknown(None),
            Ok(CommitOutcome::Conflict(conflict)) => Fate::Conflict(conflict),
            Err(error)
                if error.next_step() == NextStep::FindOut || self.attempt == Attempt::Again =>
            {
                Fate::Unknown(Some(error))
            }
            Err(error) => Fate::Failed(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{CommitId, Operation, SharedSettings, TableErrorKind, TableId, VersionRow};

    #[test]
    fn an_answer_means_happened_not_happened_or_unknown() {
        let row = VersionRow::initial(TableId::new(1), SharedSettings::default());
        let first = CommitRequest::new(row.token(&[]), CommitId::new(1), None, [], [], []);
        let other = CommitRequest::new(row.token(&[]), CommitId::new(2), None, [], [], []);
        let token = first.next_token(b"etag");
        let committed = |token| Ok(CommitOutcome::Committed(token));
        let failed = |kind| Err(TableError::new(kind, Operation::Commit, "test", "away"));
        for request in [&first, &first.again()] {
            let fate = |answer| request.fate(answer);
            assert_eq!(
                fate(committed(token.clone())),
                Fate::Happened(token.clone())
            );
            assert_eq!(fate(committed(other.next_token(&[]))), Fate::Unknown(None));
            let conflict = Conflict::default();
            let lost = fate(Ok(CommitOutcome::Conflict(conflict.clone())));
            assert_eq!(lost, Fate::Conflict(conflict));
            let unknown = fate(failed(TableErrorKind::OutcomeUnknown));
            assert!(matches!(unknown, Fate::Unknown(Some(_))));
            let busy = fate(failed(TableErrorKind::Busy));
            let again = request.attempt == Attempt::Again;
            assert_eq!(matches!(busy, Fate::Unknown(Some(_))), again);
            assert_eq!(matches!(busy, Fate::Failed(_)), !again);
        }
    }
}
