//! Errors of {{Title}}, by what the caller does next.

use membership_core::{Operation, TableError, TableErrorKind};

use crate::STORE;

/// An error of this kind. Its operation is filled in where the operation is known.
pub(crate) fn error(kind: TableErrorKind, message: impl Into<String>) -> TableError {
    TableError::new(kind, Operation::Connect, STORE, message)
}

/// What a function answers until it is written. Goes when nobody uses it any more.
#[allow(dead_code, reason = "until the last function is written")]
pub(crate) fn not_written(function: &str) -> TableError {
    error(TableErrorKind::Configuration, format!("`{function}` is not written yet: docs/new-provider.md says what it does"))
}

/// To be written for the error type of your client, in the place of `std::io::Error`: one arm per
/// kind of error. What is not surely "nothing was written" is `OutcomeUnknown`. Each function asks
/// the store with `self.timeouts.limit(STORE, true, request).await?.map_err(from_store)?`.
#[allow(dead_code, reason = "until the first function is written")]
pub(crate) fn from_store(source: std::io::Error) -> TableError {
    let (kind, what) = match source.kind() {
        std::io::ErrorKind::ConnectionRefused => (TableErrorKind::Unavailable, "the store cannot be reached"),
        std::io::ErrorKind::PermissionDenied => (TableErrorKind::PermissionDenied, "the store refuses the credentials"),
        _ => (TableErrorKind::OutcomeUnknown, "the connection was lost"),
    };
    error(kind, what).with_source(source)
}
