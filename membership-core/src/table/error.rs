//! One error type for all stores, classified by what the caller does next.

use std::error::Error;
use std::fmt;

use super::Attempt;
use crate::model::text::quoted;

/// The operation that failed.
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
    /// The name of the operation in errors, logs and metrics.
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

/// The kind of an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum TableErrorKind {
    /// The store could not be reached, or refused the request for now; nothing was written.
    Unavailable,
    /// The store is busy (lock, throttling, deadlock, collision with another transaction); nothing
    /// was written.
    Busy,
    /// The request may have been carried out.
    OutcomeUnknown,
    /// A heartbeat for a silo that has no row; nothing was written.
    NoSuchRow,
    /// The store denied permission.
    PermissionDenied,
    /// The configuration is invalid (address, file, network file system, missing feature).
    Configuration,
    /// A limit of the store would be exceeded; nothing was sent.
    LimitExceeded,
    /// The request is not well-formed (empty commit, the same row twice); nothing was sent.
    InvalidRequest,
    /// The name of the table is in use by other data; nothing was written.
    ForeignTable,
    /// The table needs a newer build; nothing was written.
    NewerLayout,
    /// There is no version row, and this client never saw one.
    NotInitialized,
    /// A `delete` was interrupted: run it again.
    BeingDeleted,
    /// The table was deleted or created again while a client was running.
    TableReplaced,
    /// The table was rolled back while a client was running.
    TableRolledBack,
    /// There are rows without a version row, or the version row cannot be read.
    Damaged,
}

/// What the caller does after an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum NextStep {
    /// The operation was certainly not applied: try again later.
    Retry,
    /// The operation may have been applied: find out first.
    FindOut,
    /// Trying again does not help: an operator must act.
    GiveUp,
}

impl TableErrorKind {
    /// All kinds.
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

    /// What the caller does after an error of this kind.
    #[must_use]
    pub const fn next_step(self) -> NextStep {
        match self {
            Self::Unavailable | Self::Busy => NextStep::Retry,
            Self::OutcomeUnknown => NextStep::FindOut,
            _ => NextStep::GiveUp,
        }
    }

    /// The name of the kind in logs and metrics.
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

crate::debug_as_display!(TableError);

/// A failed operation on the table.
///
/// Displays as one line that says what to do next; the source error is kept. Never contains a
/// secret (clause T15).
#[derive(Clone)]
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
    /// Creates an error of this kind. `message` says what happened, without secrets.
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

    /// Sets the row or key that the error is about.
    #[must_use]
    pub fn with_key(mut self, key: impl Into<String>) -> Self {
        self.key = Some(key.into());
        self
    }

    /// Sets the server that the error is about, for example `db.example:5432`. A server that is
    /// already set is kept, because it was set closer to the cause.
    #[must_use]
    pub fn at(mut self, place: impl Into<String>) -> Self {
        self.place.get_or_insert_with(|| place.into());
        self
    }

    /// Sets the source: the error of the client library.
    #[must_use]
    pub fn with_source(mut self, source: impl Error + Send + Sync + 'static) -> Self {
        self.source = Some(std::sync::Arc::new(source));
        self
    }

    /// Sets the operation.
    #[must_use]
    pub fn during(mut self, operation: Operation) -> Self {
        self.operation = operation;
        self
    }

    /// Converts an error of one attempt into the error of the commit. If the commit was sent again
    /// ([`Attempt::Again`]), the first attempt may have happened whatever the error of the second
    /// is, so the kind becomes [`OutcomeUnknown`](TableErrorKind::OutcomeUnknown). The exceptions
    /// are errors that say that the table was replaced, rolled back or is being deleted: then there
    /// is nothing to find out. Clause T5.
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

    /// Converts an error of a read: a read writes nothing, so `OutcomeUnknown` becomes
    /// `Unavailable`.
    #[must_use]
    pub fn of_a_read(mut self) -> Self {
        if self.kind == TableErrorKind::OutcomeUnknown {
            self.kind = TableErrorKind::Unavailable;
        }
        self
    }

    /// The kind of this error.
    #[must_use]
    pub const fn kind(&self) -> TableErrorKind {
        self.kind
    }

    /// The operation that failed.
    #[must_use]
    pub const fn operation(&self) -> Operation {
        self.operation
    }

    /// The name of the store.
    #[must_use]
    pub const fn store(&self) -> &'static str {
        self.store
    }

    /// The server, if it is known.
    #[must_use]
    pub fn place(&self) -> Option<&str> {
        self.place.as_deref()
    }

    /// What happened, without the other parts; for an error that adds its own text.
    #[must_use]
    pub fn message(&self) -> &str {
        &self.message
    }

    /// The row or key that the error is about, if there is one.
    #[must_use]
    pub fn key(&self) -> Option<&str> {
        self.key.as_deref()
    }

    /// What the caller does after this error.
    #[must_use]
    pub const fn next_step(&self) -> NextStep {
        self.kind.next_step()
    }
}

impl fmt::Display for TableError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.store, self.operation.as_str())?;
        if let Some(place) = &self.place {
            write!(f, " at {}", one_line(place))?;
        }
        write!(f, ": {}", one_line(&self.message))?;
        if let Some(key) = &self.key {
            write!(f, " (key {key:?})")?;
        }
        write!(f, " [{}: {}]", self.kind.as_str(), self.kind.advice())
    }
}

/// A path, and the text of a client library, may hold any character.
fn one_line(text: &str) -> String {
    quoted(text, usize::MAX)
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
    fn an_error_of_a_second_attempt_leaves_the_outcome_unknown() {
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
    fn the_message_says_what_to_do_next() {
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
