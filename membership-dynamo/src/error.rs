//! What DynamoDB says, as what the caller does next. Clauses T4 and T5.
//!
//! A refusal with a status of 400 means that nothing was written. What is uncertain is an error of the server's own (500 and above) and what
//! was never answered.

use aws_sdk_dynamodb::config::http::HttpResponse;
use aws_sdk_dynamodb::error::{ProvideErrorMetadata, SdkError};
use aws_sdk_dynamodb::types::CancellationReason;
use membership_core::{Operation, TableError, TableErrorKind};

use crate::STORE;

/// An error during an operation of this table; the operation's name is put in by whoever answers the caller.
pub(crate) fn error(kind: TableErrorKind, message: impl Into<String>) -> TableError {
    TableError::new(kind, Operation::Connect, STORE, message)
}

/// A request that did not succeed.
#[derive(Debug)]
pub(crate) struct Failed<E> {
    /// What the server answered, if it did: some operations understand more of it than the next field says.
    pub(crate) answer: Option<E>,
    /// What that means for whoever does not look.
    pub(crate) error: TableError,
}

/// What a failed request means. `at` is the server as people know it; `writes`: if its answer is lost, the outcome is unknown.
pub(crate) fn failed<E>(e: SdkError<E, HttpResponse>, at: &str, writes: bool) -> Box<Failed<E>>
where
    E: ProvideErrorMetadata + std::error::Error + 'static,
{
    let nowhere = |error| {
        Box::new(Failed {
            answer: None,
            error,
        })
    };
    match e {
        SdkError::ServiceError(refused) => {
            let status = refused.raw().status().as_u16();
            let answer = refused.into_err();
            let error = of_code(
                answer.code(),
                answer.message().unwrap_or_default(),
                status,
                at,
                writes,
            );
            Box::new(Failed {
                answer: Some(answer),
                error,
            })
        }
        SdkError::ResponseError(_) => nowhere(unanswered(
            writes,
            &format!("{at} answers with what is no answer of DynamoDB"),
        )),
        other => nowhere(not_sent(&chain(&other), at, writes)),
    }
}

/// Whether a connection that had been made broke while nothing else was wrong: who only asks, asks again.
pub(crate) fn broke_off<E: std::error::Error + 'static>(e: &SdkError<E, HttpResponse>) -> bool {
    matches!(e, SdkError::DispatchFailure(f) if f.is_io())
        && !chain(e).iter().any(|text| text.contains(CONNECTING))
}

/// How the HTTP client names what happened before there was a connection; it has no other way to tell.
const CONNECTING: &str = "client error (Connect)";

/// The error and its causes, the innermost last.
fn chain(e: &dyn std::error::Error) -> Vec<String> {
    let mut all = vec![e.to_string()];
    let mut cause = e.source();
    while let Some(e) = cause {
        all.push(e.to_string());
        cause = e.source();
    }
    all
}

/// From a request that got no answer: its causes tell how far it came.
fn not_sent(causes: &[String], at: &str, writes: bool) -> TableError {
    let has = |word: &str| causes.iter().any(|text| text.contains(word));
    let last = causes.last().map(|text| shorten(text)).unwrap_or_default();
    // A role's service that does not answer now; the words are those of the SDK's `CredentialsError`.
    if has("credentials provider timed out") || has("an error occurred while loading credentials") {
        return error(
            TableErrorKind::Unavailable,
            format!("the credentials for {at} cannot be had now ({last})"),
        );
    }
    if has("credential") || has("Credential") {
        let advice = "put keys into the URL, set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, name a profile, or give this machine a role";
        return error(
            TableErrorKind::PermissionDenied,
            format!("no credentials for {at} ({last}): {advice}"),
        );
    }
    if has(CONNECTING) || has("connect timeout") {
        if has("certificate") || has("corrupt message") || has("tls") || has("TLS") {
            return error(
                TableErrorKind::Configuration,
                format!("{at} cannot be spoken to in TLS ({last}): check the endpoint"),
            );
        }
        return error(
            TableErrorKind::Unavailable,
            format!("{at} cannot be reached ({last})"),
        );
    }
    if has("construct request")
        || has("failed to construct")
        || has("invalid endpoint")
        || has("Invalid endpoint")
    {
        return error(
            TableErrorKind::Configuration,
            format!("no request to {at} can be made ({last})"),
        );
    }
    unanswered(
        writes,
        &format!("the connection to {at} broke off ({last})"),
    )
}

/// A request that was handed to a connection and not answered.
pub(crate) fn unanswered(writes: bool, why: &str) -> TableError {
    if writes {
        error(
            TableErrorKind::OutcomeUnknown,
            format!("{why} after the request was sent"),
        )
    } else {
        error(TableErrorKind::Unavailable, why)
    }
}

/// What a refusal's code means.
fn of_code(code: Option<&str>, message: &str, status: u16, at: &str, writes: bool) -> TableError {
    use TableErrorKind::{
        Busy, Configuration, LimitExceeded, NotInitialized, OutcomeUnknown, PermissionDenied,
        Unavailable,
    };
    let Some(code) = code else {
        return match status {
            500.. => unanswered(
                writes,
                &format!("{at} answers with the HTTP status {status}"),
            ),
            _ => error(
                Configuration,
                format!(
                    "{at} answers with the HTTP status {status}, and not as DynamoDB does: check the endpoint"
                ),
            ),
        };
    };
    let (kind, what) = match code {
        "TransactionConflictException"
        | "TransactionCanceledException"
        | "ReplicatedWriteConflictException" => {
            (Busy, "another request is at work on the same items")
        }
        "ConditionalCheckFailedException" => (Busy, "the item changed meanwhile"),
        "ProvisionedThroughputExceededException"
        | "ThrottlingException"
        | "RequestLimitExceeded"
        | "LimitExceededException" => (
            Busy,
            "more is asked than the table or the account may ask at once",
        ),
        "ResourceInUseException" => (Busy, "the table is being made or changed"),
        // The first sending of the same commit may still succeed.
        "TransactionInProgressException" => {
            (OutcomeUnknown, "the same commit is still being carried out")
        }
        "IdempotentParameterMismatchException" => (
            OutcomeUnknown,
            "another commit was sent under the same token",
        ),
        "ResourceNotFoundException" => (NotInitialized, "the table does not exist"),
        "ItemCollectionSizeLimitExceededException" => {
            (LimitExceeded, "the cluster is larger than the table takes")
        }
        "ValidationException" => invalid(message),
        "UnknownOperationException" | "SerializationException" => {
            (Configuration, "this is no DynamoDB, or one that is too old")
        }
        code if is_about_rights(code) => (
            PermissionDenied,
            "it refuses these credentials, or they may not do this",
        ),
        _ if status >= 500 => {
            return unanswered(
                writes,
                &format!("{at} failed by itself ({code}: {})", shorten(message)),
            );
        }
        _ => (Unavailable, "it refuses"),
    };
    error(kind, format!("{what} ({at}: {code}: {})", shorten(message)))
}

fn is_about_rights(code: &str) -> bool {
    const CODES: [&str; 12] = [
        "AccessDenied",
        "UnrecognizedClient",
        "InvalidSignature",
        "IncompleteSignature",
        "SignatureDoesNotMatch",
        "MissingAuthenticationToken",
        "ExpiredToken",
        "InvalidClientTokenId",
        "InvalidAccessKeyId",
        "NotAuthorized",
        "OptInRequired",
        "RequestExpired",
    ];
    CODES.iter().any(|known| code.starts_with(known))
}

/// A request that DynamoDB finds wrong: only its text tells what is.
fn invalid(message: &str) -> (TableErrorKind, &'static str) {
    let message = message.to_ascii_lowercase();
    if message.contains("schema")
        || message.contains("key element")
        || message.contains("type mismatch for key")
        || message.contains("on the keys")
    {
        (
            TableErrorKind::ForeignTable,
            "the table has other keys than ours: name another table",
        )
    } else if message.contains("size") || message.contains("exceed") {
        (
            TableErrorKind::LimitExceeded,
            "it is more than DynamoDB takes",
        )
    } else {
        (
            TableErrorKind::Configuration,
            "DynamoDB does not take the request",
        )
    }
}

/// Why a transaction was cancelled, when no condition of the version row was the reason. It certainly did not happen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Cancelled {
    /// A condition on a row failed.
    Row,
    /// Something that has nothing to do with conditions.
    Otherwise(TableErrorKind, String),
}

/// Of several reasons the one that makes the others uncertain counts: whoever collides has not looked at everything.
pub(crate) fn cancelled(reasons: &[CancellationReason]) -> Cancelled {
    let mut found = Cancelled::Otherwise(
        TableErrorKind::Busy,
        "DynamoDB cancelled the transaction without a reason".to_owned(),
    );
    for reason in reasons {
        let said = shorten(reason.message().unwrap_or_default());
        let why = |kind, what: &str| {
            Cancelled::Otherwise(
                kind,
                format!(
                    "{what} ({})",
                    if said.is_empty() { "cancelled" } else { said }
                ),
            )
        };
        found = match reason.code().unwrap_or("None") {
            "None" => continue,
            "TransactionConflict" => {
                return why(
                    TableErrorKind::Busy,
                    "another transaction is at work on the same items",
                );
            }
            "ThrottlingError" | "ProvisionedThroughputExceeded" | "RequestLimitExceeded" => {
                return why(
                    TableErrorKind::Busy,
                    "more is asked than the table may be asked at once",
                );
            }
            "ConditionalCheckFailed" => Cancelled::Row,
            "ItemCollectionSizeLimitExceeded" => why(
                TableErrorKind::LimitExceeded,
                "the cluster is larger than the table takes",
            ),
            "ValidationError" => match invalid(said) {
                (TableErrorKind::Configuration, what) => why(TableErrorKind::LimitExceeded, what),
                (kind, what) => why(kind, what),
            },
            code if is_about_rights(code) => why(
                TableErrorKind::PermissionDenied,
                "the credentials may not do this",
            ),
            code => why(TableErrorKind::Unavailable, code),
        };
    }
    found
}

fn shorten(text: &str) -> &str {
    let end = text.char_indices().nth(240).map_or(text.len(), |(i, _)| i);
    &text[..end]
}

#[cfg(test)]
mod tests {
    use super::*;
    use TableErrorKind::{
        Busy, Configuration, ForeignTable, LimitExceeded, NotInitialized, OutcomeUnknown,
        PermissionDenied, Unavailable,
    };

    #[test]
    fn every_code_says_what_to_do() {
        for (code, message, status, written, read) in [
            (
                "TransactionConflictException",
                "Transaction is ongoing for the item",
                400,
                Busy,
                Busy,
            ),
            (
                "TransactionInProgressException",
                "",
                400,
                OutcomeUnknown,
                OutcomeUnknown,
            ),
            (
                "ProvisionedThroughputExceededException",
                "",
                400,
                Busy,
                Busy,
            ),
            ("ThrottlingException", "Rate exceeded", 400, Busy, Busy),
            ("RequestLimitExceeded", "", 400, Busy, Busy),
            (
                "ResourceNotFoundException",
                "Cannot do operations on a non-existent table",
                400,
                NotInitialized,
                NotInitialized,
            ),
            (
                "AccessDeniedException",
                "User is not authorized to perform: dynamodb:Query",
                400,
                PermissionDenied,
                PermissionDenied,
            ),
            (
                "UnrecognizedClientException",
                "The security token is invalid",
                400,
                PermissionDenied,
                PermissionDenied,
            ),
            (
                "InvalidSignatureException",
                "Signature expired",
                400,
                PermissionDenied,
                PermissionDenied,
            ),
            (
                "ExpiredTokenException",
                "",
                400,
                PermissionDenied,
                PermissionDenied,
            ),
            (
                "ValidationException",
                "The provided key element does not match the schema",
                400,
                ForeignTable,
                ForeignTable,
            ),
            (
                "ValidationException",
                "The number of conditions on the keys is invalid",
                400,
                ForeignTable,
                ForeignTable,
            ),
            (
                "ValidationException",
                "Item size has exceeded the maximum allowed size",
                400,
                LimitExceeded,
                LimitExceeded,
            ),
            (
                "ValidationException",
                "Syntax error",
                400,
                Configuration,
                Configuration,
            ),
            ("InternalServerError", "", 500, OutcomeUnknown, Unavailable),
            ("ServiceUnavailable", "", 503, OutcomeUnknown, Unavailable),
            ("SomethingNew", "", 400, Unavailable, Unavailable),
        ] {
            let kind = |writes| of_code(Some(code), message, status, "there", writes).kind();
            assert_eq!(
                (kind(true), kind(false)),
                (written, read),
                "{code}: {message}"
            );
        }
        assert_eq!(of_code(None, "", 404, "there", true).kind(), Configuration);
        assert_eq!(of_code(None, "", 502, "there", true).kind(), OutcomeUnknown);
    }

    #[test]
    fn what_was_not_sent_is_certain() {
        let kind = |causes: &[&str], writes| {
            let causes: Vec<String> = causes.iter().map(|text| (*text).to_owned()).collect();
            not_sent(&causes, "http://h:1", writes).kind()
        };
        let refused = [
            "dispatch failure",
            "io error",
            "client error (Connect)",
            "tcp connect error",
            "Connection refused (os error 111)",
        ];
        assert_eq!(kind(&refused, true), Unavailable);
        let cut = [
            "dispatch failure",
            "io error",
            "client error (SendRequest)",
            "connection closed before message completed",
        ];
        assert_eq!(kind(&cut, true), OutcomeUnknown);
        assert_eq!(kind(&cut, false), Unavailable);
        assert_eq!(
            kind(
                &[
                    "dispatch failure",
                    "the credential provider was not enabled"
                ],
                true
            ),
            PermissionDenied
        );
        let tls = [
            "dispatch failure",
            "io error",
            "client error (Connect)",
            "invalid peer certificate: UnknownIssuer",
        ];
        assert_eq!(kind(&tls, true), Configuration);
    }

    #[test]
    fn reasons_of_a_cancellation_are_told_apart() {
        let of = |codes: &[&str]| {
            let reasons: Vec<_> = codes
                .iter()
                .map(|code| CancellationReason::builder().code(*code).build())
                .collect();
            match cancelled(&reasons) {
                Cancelled::Row => None,
                Cancelled::Otherwise(kind, _) => Some(kind),
            }
        };
        assert_eq!(of(&["None", "ConditionalCheckFailed", "None"]), None);
        assert_eq!(of(&["None", "TransactionConflict"]), Some(Busy));
        assert_eq!(
            of(&["None", "ConditionalCheckFailed", "TransactionConflict"]),
            Some(Busy)
        );
        assert_eq!(
            of(&["ThrottlingError", "ConditionalCheckFailed"]),
            Some(Busy)
        );
        assert_eq!(of(&["None", "ProvisionedThroughputExceeded"]), Some(Busy));
        assert_eq!(of(&["ValidationError"]), Some(LimitExceeded));
        assert_eq!(
            of(&["None", "ItemCollectionSizeLimitExceeded"]),
            Some(LimitExceeded)
        );
        assert_eq!(of(&["AccessDenied"]), Some(PermissionDenied));
        assert_eq!(of(&[]), Some(Busy));
    }
}
