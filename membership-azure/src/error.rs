//! The service's errors and connection errors as errors of the contract. Clauses T4, T5, T15.

use azure_core::error::ErrorKind;
use membership_core::{Operation, TableError, TableErrorKind};
use membership_provider::{innermost, one_line};

use crate::STORE;
use crate::batch::Refusal;

/// An error of this store. The table's methods set the operation.
pub(crate) fn error(kind: TableErrorKind, message: impl Into<String>) -> TableError {
    TableError::new(kind, Operation::Connect, STORE, message)
}

/// A mistake in the configuration.
pub(crate) fn wrong(message: impl Into<String>) -> TableError {
    error(TableErrorKind::Configuration, message)
}

/// The answer lacks the ETag that every entity has.
pub(crate) fn no_etag() -> TableError {
    wrong("the service gives no ETag for the version row: is it a table service?")
}

/// The kind of an error answer. Failed conditions are not errors: the requests handle them.
///
/// After a status above 499 the outcome is unknown. Only throttling is documented to happen before
/// anything is done.
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

/// An error answer.
pub(crate) fn refused(refusal: &Refusal, endpoint: &str) -> TableError {
    let kind = kind(refusal);
    let code = if refusal.code.is_empty() {
        "no code"
    } else {
        &refusal.code
    };
    let said = format!("{endpoint} answers {} ({code})", refusal.status);
    let advice = match (refusal.code.as_str(), kind) {
        ("TableBeingDeleted", _) => {
            ": the table is being deleted, which takes the service about a minute; then it can be created again".to_owned()
        }
        ("AuthenticationFailed" | "AuthorizationFailure", _) => {
            ": is the key or signature right, not expired, and this machine's clock within 15 minutes of the true time?".to_owned()
        }
        ("KeyBasedAuthenticationNotPermitted", _) => ": this account accepts no keys; use `credential=default`".to_owned(),
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

/// Tokens are secrets.
pub(crate) fn without_tls(endpoint: &str) -> TableError {
    wrong(format!(
        "tokens of Entra ID are not sent to {endpoint}, which has no TLS: use https, or give the `account_key`"
    ))
}

/// The credential gave no token, so nothing was sent to the table. Its message says why.
pub(crate) fn no_token(failure: &azure_core::Error, endpoint: &str) -> TableError {
    let causes = std::iter::successors(Some(failure as &dyn std::error::Error), |e| e.source());
    // The service that gives tokens is away, which is no refusal.
    let is_away = |kind: &ErrorKind| match kind {
        ErrorKind::Connection | ErrorKind::Io => true,
        ErrorKind::HttpResponse { status, .. } => matches!(u16::from(*status), 408 | 429 | 500..),
        _ => false,
    };
    let mut causes = causes.filter_map(|e| e.downcast_ref::<azure_core::Error>());
    let kind = match causes.any(|e| is_away(e.kind())) {
        true => TableErrorKind::Unavailable,
        false => TableErrorKind::PermissionDenied,
    };
    let (mut said, why) = (one_line(&failure.to_string()), innermost(failure));
    if !said.contains(&why) {
        said = format!("{said} ({why})");
    }
    error(kind, format!("no token of Entra ID for {endpoint}: {said}"))
}

/// The credential gave no token in time, so nothing was sent to the table.
pub(crate) fn late_token(timeout: std::time::Duration, endpoint: &str) -> TableError {
    let why = format!(
        "no token of Entra ID for {endpoint} within {timeout:?}: name the one `credential` that exists, or give it more time with `operation_timeout`"
    );
    error(TableErrorKind::Unavailable, why)
}

/// Whether nothing was sent because the server's certificate is not trusted.
pub(crate) fn is_untrusted(failure: &azure_core::Error) -> bool {
    matches!(failure.kind(), ErrorKind::Connection) && innermost(failure).contains("certificate")
}

/// A request without an answer. The source is not kept: it contains the URL, and that may contain a
/// signature (clause T15).
pub(crate) fn unanswered(failure: &azure_core::Error, endpoint: &str) -> TableError {
    // The innermost cause does not contain the URL.
    let why = innermost(failure);
    match failure.kind() {
        _ if is_untrusted(failure) => error(
            TableErrorKind::Configuration,
            format!(
                "{endpoint} has an untrusted certificate ({why}): name its authority with `tls_ca`"
            ),
        ),
        ErrorKind::Connection => error(
            TableErrorKind::Unavailable,
            format!("{endpoint} cannot be reached ({why})"),
        ),
        _ => error(
            TableErrorKind::OutcomeUnknown,
            format!("{endpoint} did not answer ({why})"),
        ),
    }
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
    fn every_answer_has_a_kind() {
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
            // May have happened: these may come from a gateway instead of the service.
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
