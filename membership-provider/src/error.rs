//! Errors of client libraries as one line of a [`TableError`].

use std::error::Error;

use membership_core::{Operation, TableError, TableErrorKind, VersionToken};

/// More of a foreign text does not fit into a line.
const LONGEST: usize = 240;

/// The texts of an error and its sources, the innermost last.
///
/// ```
/// use membership_provider::causes;
///
/// let inner = std::io::Error::other("connection refused");
/// assert_eq!(causes(&inner), ["connection refused"]);
/// ```
#[must_use]
pub fn causes(error: &dyn Error) -> Vec<String> {
    std::iter::successors(Some(error), |&error| error.source())
        .map(ToString::to_string)
        .collect()
}

/// The text of the innermost source of an error, as [`one_line`]. The outer ones of most client
/// libraries say nothing new.
///
/// ```
/// use membership_provider::innermost;
///
/// let error = std::io::Error::other("connection refused\nby peer");
/// assert_eq!(innermost(&error), "connection refused by peer");
/// ```
#[must_use]
pub fn innermost(error: &dyn Error) -> String {
    one_line(&causes(error).pop().unwrap_or_default())
}

/// A foreign text as part of a message: one line, no control characters, at most 240 characters.
///
/// ```
/// use membership_provider::one_line;
///
/// assert_eq!(one_line("no\n  leader\u{7}"), "no leader");
/// assert_eq!(one_line(&"x".repeat(1000)).len(), 240);
/// ```
#[must_use]
pub fn one_line(text: &str) -> String {
    let words: Vec<&str> = text.split_whitespace().collect();
    words
        .join(" ")
        .chars()
        .filter(|c| !c.is_control())
        .take(LONGEST)
        .collect()
}

/// The error of a request that was sent and not answered: the outcome of a write is unknown, a read
/// did not happen. `why` says what ended it, for example `no answer within 5s`. Clause T5.
///
/// ```
/// use membership_core::TableErrorKind;
/// use membership_provider::unanswered;
///
/// assert_eq!(unanswered("mystore", true, "no answer within 5s").kind(), TableErrorKind::OutcomeUnknown);
/// assert_eq!(unanswered("mystore", false, "no answer within 5s").kind(), TableErrorKind::Unavailable);
/// ```
#[must_use]
pub fn unanswered(store: &'static str, writes: bool, why: &str) -> TableError {
    let (kind, message) = if writes {
        let message = format!("{why} after the request was sent");
        (TableErrorKind::OutcomeUnknown, message)
    } else {
        (TableErrorKind::Unavailable, why.to_owned())
    };
    TableError::new(kind, Operation::Connect, store, message)
}

/// A missing table is "not initialized" only for a caller that never saw it (clause T16): for one
/// that knows a version of it, it was replaced.
///
/// ```
/// use membership_core::{Operation, SharedSettings, TableError, TableErrorKind, TableId, VersionRow};
/// use membership_provider::gone_since;
///
/// let missing = || TableError::new(TableErrorKind::NotInitialized, Operation::Read, "mystore", "no such table");
/// let known = VersionRow::initial(TableId::new(7), SharedSettings::default()).token(&[]);
/// assert_eq!(gone_since(missing(), None).kind(), TableErrorKind::NotInitialized);
/// assert_eq!(gone_since(missing(), Some(&known)).kind(), TableErrorKind::TableReplaced);
/// ```
#[must_use]
pub fn gone_since(error: TableError, known: Option<&VersionToken>) -> TableError {
    if known.is_none() || error.kind() != TableErrorKind::NotInitialized {
        return error;
    }
    let message = "the table that was known is gone";
    TableError::new(
        TableErrorKind::TableReplaced,
        error.operation(),
        error.store(),
        message,
    )
}

#[cfg(test)]
mod tests {
    use membership_core::{SharedSettings, TableId, VersionRow};

    use super::*;

    #[derive(Debug)]
    struct Outer(std::io::Error);

    impl std::fmt::Display for Outer {
        fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            f.write_str("error sending request")
        }
    }

    impl Error for Outer {
        fn source(&self) -> Option<&(dyn Error + 'static)> {
            Some(&self.0)
        }
    }

    #[test]
    fn the_innermost_cause_is_named() {
        let error = Outer(std::io::Error::other("connection refused"));
        assert_eq!(
            causes(&error),
            ["error sending request", "connection refused"]
        );
        assert_eq!(innermost(&error), "connection refused");
    }

    #[test]
    fn a_table_that_was_known_and_is_gone_was_replaced() {
        use TableErrorKind::{Busy, NotInitialized, TableReplaced};
        let row = VersionRow::initial(TableId::new(7), SharedSettings::default());
        let token = row.token(&[]);
        let gone = |kind, known: Option<&VersionToken>| {
            let error = TableError::new(kind, Operation::Read, "test", "gone");
            gone_since(error, known).kind()
        };
        assert_eq!(gone(NotInitialized, Some(&token)), TableReplaced);
        assert_eq!(gone(NotInitialized, None), NotInitialized);
        assert_eq!(gone(Busy, Some(&token)), Busy);
    }
}
