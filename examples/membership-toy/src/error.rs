//! Errors of the toy store, by what the caller does next.

use std::time::Duration;

use membership_core::{Operation, TableError, TableErrorKind};

use crate::STORE;

/// An error of this kind. Its operation is filled in where the operation is known.
pub(crate) fn error(kind: TableErrorKind, message: impl Into<String>) -> TableError {
    TableError::new(kind, Operation::Connect, STORE, message)
}

/// The answer of a call, or an error when there is none in time.
pub(crate) async fn in_time<T>(
    limit: Duration,
    call: impl Future<Output = Result<T, toy_store::Error>>,
) -> Result<T, TableError> {
    match tokio::time::timeout(limit, call).await {
        Ok(answer) => answer.map_err(from_store),
        // It may have been on its way.
        Err(_) => Err(error(
            TableErrorKind::OutcomeUnknown,
            format!("no answer within {limit:?}"),
        )),
    }
}

/// What is not surely "nothing was written" is `OutcomeUnknown`.
fn from_store(source: toy_store::Error) -> TableError {
    use toy_store::Error;
    let (kind, what) = match &source {
        Error::NotConnected(_) => (TableErrorKind::Unavailable, "the store cannot be reached"),
        Error::Denied => (
            TableErrorKind::PermissionDenied,
            "the store refuses the password",
        ),
        Error::TooLarge => (
            TableErrorKind::LimitExceeded,
            "the store takes no document of this size",
        ),
        Error::Refused(_) => (
            TableErrorKind::Configuration,
            "this store does not understand the request",
        ),
        _ => (TableErrorKind::OutcomeUnknown, "the connection was lost"),
    };
    error(kind, what).with_source(source)
}
