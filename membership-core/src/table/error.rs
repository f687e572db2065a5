//! One error for all stores, by what the caller does next.

use std::error::Error;
use std::fmt;

use super::Attempt;

/// Which operation failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Operation {
    /// Opening the store.
    Connect,
    /// `initialize`
    Initialize,
    /// `read`
    Read,
    /// `read_row`
    ReadRow,
    /// `commit`
    Commit,
    /// `update_i_am_alive`
    UpdateIAmAlive,
    /// `delete`
    Delete,
}

impl Operation {
    /// The name used in errors, logs and metrics.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Connect => "connect",
            Self::Initialize => "initialize",
            Self::Read => "read",
            Self::ReadRow => "read_row",
            Self::Commit => "commit",
            Self::UpdateIAmAlive => "update_i_am_alive",
            Self::Delete => "delete",
        }
    }
}

/// What happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum TableErrorKind {
    /// The store could not be reached or refused for now; nothing was written.
    Unavailable,
    /// The store is busy (lock, throttling, deadlock, collision with another transaction); nothing was written.
    Busy,
    /// The request may have been carried out.
    OutcomeUnknown,
    /// A heartbeat for a silo that has no row; nothing was written.
    NoSuchRow,
    /// The store says that we may not.
    PermissionDenied,
    /// The configuration cannot work (address, file, network file system, missing feature).
    Configuration,
    /// A limit of the store would be exceeded; nothing was sent.
    LimitExceeded,
    /// The request is not well-formed (empty commit, the same row twice); nothing was sent.
    InvalidRequest,
    /// There is something under our name that is not ours; nothing was written.
    ForeignTable,
    /// The table needs a newer build; nothing was written.
    NewerLayout,
    /// No version row, and this client never saw one.
    NotInitialized,
    /// A `delete` was begun: run it again.
    BeingDeleted,
    /// The table was wiped or made anew under a running client.
    TableReplaced,
    /// The table went back in time under a running client.
    TableRolledBack,
    /// Rows without a version row, or a version row that cannot be read.
    Damaged,
}

/// What the caller does next.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum NextStep {
    /// Certainly not applied: try again later.
    Retry,
    /// May have been applied: find out first.
    FindOut,
    /// Trying again does not help: a person must do something.
    GiveUp,
}

impl TableErrorKind {
    /// Every kind.
    pub const ALL: [Self; 15] = [
        Self::Unavailable,
        Self::Busy,
        Self::OutcomeUnknown,
        Self::NoSuchRow,
        Self::PermissionDenied,
        Self::Configuration,
        Self::LimitExceeded,
        Self::InvalidRequest,
        Self::ForeignTable,
        Self::NewerLayout,
        Self::NotInitialized,
        Self::BeingDeleted,
        Self::TableReplaced,
        Self::TableRolledBack,
        Self::Damaged,
    ];

    /// What the caller does next.
    #[must_use]
    pub const fn next_step(self) -> NextStep {
        match self {
            Self::Unavailable | Self::Busy => NextStep::Retry,
            Self::OutcomeUnknown => NextStep::FindOut,
            _ => NextStep::GiveUp,
        }
    }

    /// The name used in logs and metrics.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Unavailable => "unavailable",
            Self::Busy => "busy",
            Self::OutcomeUnknown => "outcome_unknown",
            Self::NoSuchRow => "no_such_row",
            Self::PermissionDenied => "permission_denied",
            Self::Configuration => "configuration",
            Self::LimitExceeded => "limit_exceeded",
            Self::InvalidRequest => "invalid_request",
            Self::ForeignTable => "foreign_table",
            Self::NewerLayout => "newer_layout",
            Self::NotInitialized => "not_initialized",
            Self::BeingDeleted => "being_deleted",
            Self::TableReplaced => "table_replaced",
            Self::TableRolledBack => "table_rolled_back",
            Self::Damaged => "damaged",
        }
    }

    const fn advice(self) -> &'static str {
        match self {
            Self::Unavailable => {
                "nothing was written; check that the store is up and reachable, then try again"
            }
            Self::Busy => "nothing was written; try again",
            Self::OutcomeUnknown => {
                "it may have been written; read the table before doing anything else"
            }
            Self::NoSuchRow => "the silo has no row: it was removed or never joined",
            Self::PermissionDenied => {
                "correct user and password, or grant what the provider's README lists"
            }
            Self::Configuration => "correct the configuration",
            Self::LimitExceeded => "nothing was sent; change less at once or make the row smaller",
            Self::InvalidRequest => "nothing was sent; correct the request",
            Self::ForeignTable => "nothing was written; use another table, prefix or file",
            Self::NewerLayout => "nothing was written; update this program",
            Self::NotInitialized => "start a silo, or call `initialize`",
            Self::BeingDeleted => "run delete again to finish it",
            Self::TableReplaced => {
                "it was wiped or made anew; restart the silos that still know the old one"
            }
            Self::TableRolledBack => {
                "it went back in time; restart the silos that know the newer one"
            }
            Self::Damaged => "run `membership doctor`",
        }
    }
}

/// An operation on the table that did not succeed.
///
/// Displays as one line that says what to do next; the source error is kept. Never holds a secret (clause T15).
#[derive(Debug, Clone)]
pub struct TableError {
    kind: TableErrorKind,
    operation: Operation,
    store: &'static str,
    place: Option<String>,
    key: Option<String>,
    message: String,
    source: Option<std::sync::Arc<dyn Error + Send + Sync + 'static>>,
}

impl TableError {
    /// An error of this kind. `message` says what happened, without secrets.
    #[must_use]
    pub fn new(
        kind: TableErrorKind,
        operation: Operation,
        store: &'static str,
        message: impl Into<String>,
    ) -> Self {
        Self {
            kind,
            operation,
            store,
            place: None,
            key: None,
            message: message.into(),
            source: None,
        }
    }

    /// Names the row or key it is about.
    #[must_use]
    pub fn with_key(mut self, key: impl Into<String>) -> Self {
        self.key = Some(key.into());
        self
    }

    /// Names the server that it is about, for example `db.example:5432`. A name that is there already stays: whoever was closer gave it.
    #[must_use]
    pub fn at(mut self, place: impl Into<String>) -> Self {
        self.place.get_or_insert_with(|| place.into());
        self
    }

    /// Keeps the error of the client library.
    #[must_use]
    pub fn with_source(mut self, source: impl Error + Send + Sync + 'static) -> Self {
        self.source = Some(std::sync::Arc::new(source));
        self
    }

    /// The same error under another operation's name.
    #[must_use]
    pub fn during(mut self, operation: Operation) -> Self {
        self.operation = operation;
        self
    }

    /// What the caller of a commit is told of this. Of one that is sent again ([`Attempt::Again`]) the first sending may have happened,
    /// whatever this one ended with, and it becomes [`OutcomeUnknown`](TableErrorKind::OutcomeUnknown); only a table that is another one
    /// now, or goes, says that there is nothing to find out. Clause T5.
    #[must_use]
    pub fn of_commit(self, attempt: Attempt) -> Self {
        use TableErrorKind::{BeingDeleted, OutcomeUnknown, TableReplaced, TableRolledBack};
        match self.kind() {
            _ if attempt == Attempt::First => self,
            OutcomeUnknown | TableReplaced | TableRolledBack | BeingDeleted => self,
            kind => {
                let message = format!(
                    "it was sent before, and what became of it is not known: {} [{}]",
                    self.message(),
                    kind.as_str()
                );
                let unknown = Self::new(OutcomeUnknown, self.operation(), self.store(), message);
                let place = self.place().map(str::to_owned);
                place.into_iter().fold(unknown, Self::at).with_source(self)
            }
        }
    }

    /// The same error where nothing can have been written: what was asked only to read has no unknown outcome.
    #[must_use]
    pub fn of_a_read(mut self) -> Self {
        if self.kind == TableErrorKind::OutcomeUnknown {
            self.kind = TableErrorKind::Unavailable;
        }
        self
    }

    /// What happened.
    #[must_use]
    pub const fn kind(&self) -> TableErrorKind {
        self.kind
    }

    /// During what.
    #[must_use]
    pub const fn operation(&self) -> Operation {
        self.operation
    }

    /// In which store.
    #[must_use]
    pub const fn store(&self) -> &'static str {
        self.store
    }

    /// At which server, where there is one.
    #[must_use]
    pub fn place(&self) -> Option<&str> {
        self.place.as_deref()
    }

    /// What happened, without the rest: for an error that says more of it.
    #[must_use]
    pub fn message(&self) -> &str {
        &self.message
    }

    /// The row or key it is about, if it is about one.
    #[must_use]
    pub fn key(&self) -> Option<&str> {
        self.key.as_deref()
    }

    /// What the caller does next.
    #[must_use]
    pub const fn next_step(&self) -> NextStep {
        self.kind.next_step()
    }
}

impl fmt::Display for TableError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.store, self.operation.as_str())?;
        if let Some(place) = &self.place {
            write!(f, " at {place}")?;
        }
        write!(f, ": {}", self.message)?;
        if let Some(key) = &self.key {
            write!(f, " (key {key:?})")?;
        }
        write!(f, " [{}: {}]", self.kind.as_str(), self.kind.advice())
    }
}

impl Error for TableError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.source.as_deref().map(|e| e as &(dyn Error + 'static))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_that_a_second_sending_meets_says_that_the_first_did_not_happen() {
        let of = |kind, attempt| {
            TableError::new(kind, Operation::Commit, "memory", "away")
                .at("near:1")
                .of_commit(attempt)
                .kind()
        };
        for kind in TableErrorKind::ALL {
            assert_eq!(of(kind, Attempt::First), kind);
            let again = of(kind, Attempt::Again);
            let decides = matches!(
                kind,
                TableErrorKind::TableReplaced
                    | TableErrorKind::TableRolledBack
                    | TableErrorKind::BeingDeleted
            );
            assert_eq!(
                again,
                if decides {
                    kind
                } else {
                    TableErrorKind::OutcomeUnknown
                }
            );
        }
    }

    #[test]
    fn says_what_to_do_next() {
        for kind in TableErrorKind::ALL {
            let e =
                TableError::new(kind, Operation::Commit, "memory", "it went wrong").with_key("k");
            assert!(
                e.to_string().contains("it went wrong") && e.to_string().contains(kind.as_str()),
                "{e}"
            );
        }
        let e = TableError::new(
            TableErrorKind::Busy,
            Operation::Read,
            "memory",
            "it went wrong",
        )
        .at("near:1")
        .at("far:2");
        assert!(
            e.to_string()
                .starts_with("memory read at near:1: it went wrong ["),
            "{e}"
        );
        assert_eq!(
            TableErrorKind::OutcomeUnknown.next_step(),
            NextStep::FindOut
        );
        assert_eq!(TableErrorKind::Busy.next_step(), NextStep::Retry);
        assert_eq!(TableErrorKind::Damaged.next_step(), NextStep::GiveUp);
    }
}
