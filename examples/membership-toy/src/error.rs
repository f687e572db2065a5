//! Errors of the toy store, by what the caller does next.

use membership_core::{Operation, TableError, TableErrorKind};
use toy_store::Error;

use crate::STORE;

/// What is not surely "nothing was written" is `OutcomeUnknown`. The operation is filled in where
/// it is known.
pub(crate) fn from_store(source: Error) -> TableError {
    use TableErrorKind::*;
    let (kind, what) = match &source {
        Error::NotConnected(_) => (Unavailable, "the store cannot be reached"),
        Error::Denied => (PermissionDenied, "the store refuses the password"),
        Error::TooLarge => (LimitExceeded, "the store takes no document of this size"),
        Error::Refused(_) => (Configuration, "this store does not understand the request"),
        _ => (OutcomeUnknown, "the connection was lost"),
    };
    TableError::new(kind, Operation::Connect, STORE, what).with_source(source)
}
