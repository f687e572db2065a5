//! Errors of the toy store, by what the caller does next.

use std::time::Duration;

use membership_core::{Operation, TableError, TableErrorKind};
use toy_store::Error;

use crate::STORE;

/// An error of this kind. Its operation is filled in where the operation is known.
pub(crate) fn error(kind: TableErrorKind, message: impl Into<String>) -> TableError {
    TableError::new(kind, Operation::Connect, STORE, message)
}

/// The answer of a call, or an error when there is none in time.
pub(crate) async fn in_time<T>(limit: Duration, call: impl Future<Output = Result<T, Error>>) -> Result<T, TableError> {
    match tokio::time::timeout(limit, call).await {
        Ok(answer) => answer.map_err(from_store),
        // It may have been on its way.
        Err(_) => Err(error(TableErrorKind::OutcomeUnknown, format!("no answer within {limit:?}"))),
    }
}

/// What is not surely "nothing was written" is `OutcomeUnknown`.
fn from_store(source: Error) -> TableError {
    let kind = match source {
        Error::NotConnected(_) => TableErrorKind::Unavailable,
        Error::Denied => TableErrorKind::PermissionDenied,
        Error::TooLarge => TableErrorKind::LimitExceeded,
        Error::Refused(_) => TableErrorKind::Configuration,
        _ => TableErrorKind::OutcomeUnknown,
    };
    error(kind, source.to_string()).with_source(source)
}
