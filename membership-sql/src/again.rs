//! Commits that are sent again.

use membership_core::{Attempt, CommitRequest, TableError, TableErrorKind};

/// What the caller of a commit is told of an error. Of one that is sent again the first sending may have happened, whatever this one ended
/// with; only a table that is another one now, or goes, says that there is nothing to find out. Clause T5.
pub(crate) fn of_commit(request: &CommitRequest, e: TableError) -> TableError {
    use TableErrorKind::{BeingDeleted, OutcomeUnknown, TableReplaced, TableRolledBack};
    match e.kind() {
        _ if request.attempt == Attempt::First => e,
        OutcomeUnknown | TableReplaced | TableRolledBack | BeingDeleted => e,
        kind => {
            let message = format!("it was sent before, and what became of it is not known: {} [{}]", e.message(), kind.as_str());
            let unknown = TableError::new(OutcomeUnknown, e.operation(), e.store(), message);
            let place = e.place().map(str::to_owned);
            place.into_iter().fold(unknown, TableError::at).with_source(e)
        }
    }
}

#[cfg(test)]
mod tests {
    use membership_core::{CommitId, Operation, TableId, VersionToken};

    use super::*;

    #[test]
    fn a_commit_that_was_sent_before_is_never_called_certain_to_have_failed() {
        use TableErrorKind::{BeingDeleted, OutcomeUnknown, TableReplaced, TableRolledBack};
        let token = VersionToken::new(TableId::new(1), 0, CommitId::new(0), &[]);
        let first = CommitRequest::new(token, CommitId::new(1), None, [], [], []);
        let kept = [OutcomeUnknown, TableReplaced, TableRolledBack, BeingDeleted];
        for kind in TableErrorKind::ALL {
            let e = || TableError::new(kind, Operation::Commit, "sql", "the answer").at("h:1");
            assert_eq!(of_commit(&first, e()).kind(), kind);
            let told = of_commit(&first.again(), e());
            assert_eq!(told.kind(), if kept.contains(&kind) { kind } else { OutcomeUnknown });
            assert!(told.message().contains("the answer") && told.place() == Some("h:1"), "{told}");
        }
    }
}
