//! Errors of the service and of the way to it ⇄ the contract. Clauses T4, T5, T15.

use azure_core::error::ErrorKind;
use membership_core::{Operation, TableError, TableErrorKind};

use crate::STORE;
use crate::batch::Refusal;

/// An error under the name of connecting; whoever knows better calls `during`.
pub(crate) fn error(kind: TableErrorKind, message: impl Into<String>) -> TableError {
    TableError::new(kind, Operation::Connect, STORE, message)
}

/// A mistake in the configuration.
pub(crate) fn wrong(message: impl Into<String>) -> TableError {
    error(TableErrorKind::Configuration, message)
}

/// The kind of error that an answer of the service is. Conditions that failed are not among them: who set them judges them.
///
/// A status above 499 says by itself nothing about what happened: only throttling is said to happen before anything is done.
pub(crate) fn kind(refusal: &Refusal) -> TableErrorKind {
    match (refusal.code.as_str(), refusal.status) {
        ("ServerBusy" | "TableBeingDeleted" | "TooManyRequests", _) | (_, 429) => {
            TableErrorKind::Busy
        }
        ("OperationTimedOut" | "InternalError", _) => TableErrorKind::OutcomeUnknown,
        ("TableNotFound", _) => TableErrorKind::NotInitialized,
        (
            "RequestBodyTooLarge"
            | "ContentLengthExceeded"
            | "EntityTooLarge"
            | "PropertyValueTooLarge"
            | "TooManyProperties"
            | "KeyValueTooLarge",
            _,
        )
        | (_, 413) => TableErrorKind::LimitExceeded,
        (_, 401 | 403) | ("AuthenticationFailed" | "InvalidAuthenticationInfo", _) => {
            TableErrorKind::PermissionDenied
        }
        (_, 500..) | (_, 408) | (_, ..=299) => TableErrorKind::OutcomeUnknown,
        _ => TableErrorKind::Configuration,
    }
}

/// One line for an answer that is an error.
pub(crate) fn refused(refusal: &Refusal, place: &str) -> TableError {
    let kind = kind(refusal);
    let code = if refusal.code.is_empty() {
        "no code"
    } else {
        &refusal.code
    };
    let said = format!("{place} answers {} ({code})", refusal.status);
    let advice = match (refusal.code.as_str(), kind) {
        ("TableBeingDeleted", _) => {
            ": the table is being deleted, which takes the service about a minute; then it can be made anew".to_owned()
        }
        ("AuthenticationFailed" | "AuthorizationFailure", _) => {
            ": is the key or signature right, not expired, and this machine's clock within 15 minutes of the true time?".to_owned()
        }
        ("KeyBasedAuthenticationNotPermitted", _) => ": this account takes no keys; use `credential=default`".to_owned(),
        (_, TableErrorKind::PermissionDenied) => {
            ": Entra ID needs the role `Storage Table Data Contributor`, an account's signature service `t`, types `co` and `raud`"
                .to_owned()
        }
        ("TableNotFound", _) => ": there is no such table".to_owned(),
        ("", TableErrorKind::Configuration) => ": is this the address of a table service?".to_owned(),
        (_, TableErrorKind::Configuration) if refusal.status == 404 => ": is the account's name right?".to_owned(),
        _ if refusal.message.is_empty() => String::new(),
        _ => format!(": {}", refusal.message),
    };
    error(kind, format!("{said}{advice}"))
}

/// One line for a request that got no answer. The error itself is not kept: it holds the address, and that may hold a signature (clause T15).
pub(crate) fn unanswered(failure: &azure_core::Error, place: &str) -> TableError {
    let why = innermost(failure);
    match failure.kind() {
        // A credential says why itself, and nothing was sent to the table.
        ErrorKind::Credential => error(
            TableErrorKind::PermissionDenied,
            format!("no token of Entra ID for {place}: {failure}"),
        ),
        ErrorKind::Connection if why.contains("certificate") => error(
            TableErrorKind::Configuration,
            format!("{place} is not trusted ({why}): name its authority with `tls_ca`"),
        ),
        ErrorKind::Connection => error(
            TableErrorKind::Unavailable,
            format!("{place} cannot be reached ({why})"),
        ),
        ErrorKind::Other if why.contains("non-TLS") => wrong(format!(
            "tokens of Entra ID are not sent to {place}, which has no TLS: use https, or give the `account_key`"
        )),
        _ => error(
            TableErrorKind::OutcomeUnknown,
            format!("{place} has not answered ({why})"),
        ),
    }
}

/// What the system said, without what was being asked of it.
fn innermost(failure: &azure_core::Error) -> String {
    let mut inner: &dyn std::error::Error = failure;
    let mut text = None;
    while let Some(source) = inner.source() {
        inner = source;
        text = Some(inner.to_string());
    }
    // An error without a cause names no address.
    text.unwrap_or_else(|| failure.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(code: &str, status: u16) -> TableErrorKind {
        kind(&Refusal {
            status,
            code: code.to_owned(),
            ..Refusal::default()
        })
    }

    #[test]
    fn answers_are_told_apart_by_what_to_do_next() {
        use TableErrorKind::*;
        for (code, status, expected) in [
            ("ServerBusy", 503, Busy),
            ("", 429, Busy),
            ("TableBeingDeleted", 409, Busy),
            ("TableNotFound", 404, NotInitialized),
            ("AuthenticationFailed", 403, PermissionDenied),
            ("AuthorizationFailure", 403, PermissionDenied),
            ("AuthorizationPermissionMismatch", 403, PermissionDenied),
            ("InvalidAuthenticationInfo", 401, PermissionDenied),
            ("RequestBodyTooLarge", 413, LimitExceeded),
            ("InvalidInput", 400, Configuration),
            ("ResourceNotFound", 404, Configuration),
            ("", 301, Configuration),
            // May have happened: a gateway's word is not the service's.
            ("OperationTimedOut", 500, OutcomeUnknown),
            ("InternalError", 500, OutcomeUnknown),
            ("", 500, OutcomeUnknown),
            ("", 502, OutcomeUnknown),
            ("", 503, OutcomeUnknown),
            ("", 504, OutcomeUnknown),
            ("", 200, OutcomeUnknown),
        ] {
            assert_eq!(of(code, status), expected, "{code} {status}");
        }
    }
}
