//! DynamoDB's errors as errors of the contract. Clauses T4 and T5.
//!
//! A refusal with the HTTP status 400 means that nothing was written. After a server error (500 and
//! above) and without an answer, the outcome is unknown.

use aws_sdk_dynamodb::config::http::HttpResponse;
use aws_sdk_dynamodb::error::{ProvideErrorMetadata, SdkError};
use aws_sdk_dynamodb::types::CancellationReason;
use membership_core::{Operation, TableError, TableErrorKind};
use membership_provider::{causes, one_line, unanswered};

use crate::STORE;

/// An error of this store. The table's methods set the operation.
pub(crate) fn error(kind: TableErrorKind, message: impl Into<String>) -> TableError {
    TableError::new(kind, Operation::Connect, STORE, message)
}

/// The request cannot be built because a required part is missing; cannot happen.
pub(crate) fn malformed(e: impl std::fmt::Display) -> TableError {
    let why = format!("the request cannot be made ({e})");
    error(TableErrorKind::InvalidRequest, why)
}

/// The version row that the caller knows is gone.
pub(crate) fn gone() -> TableError {
    let why = "the version row that was known is gone";
    error(TableErrorKind::TableReplaced, why)
}

/// A request that failed.
#[derive(Debug)]
pub(crate) struct Failed<E> {
    /// The server's answer, if there was one. Some operations need its details.
    pub(crate) answer: Option<E>,
    /// What it means for every other operation.
    pub(crate) error: TableError,
}

impl<E> From<Box<Failed<E>>> for TableError {
    fn from(failed: Box<Failed<E>>) -> Self {
        failed.error
    }
}

/// The meaning of a failed request. `writes`: if its answer is lost, the outcome is unknown.
pub(crate) fn failed<E>(
    e: SdkError<E, HttpResponse>,
    endpoint: &str,
    writes: bool,
) -> Box<Failed<E>>
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
                endpoint,
                writes,
            );
            Box::new(Failed {
                answer: Some(answer),
                error,
            })
        }
        SdkError::ResponseError(_) => nowhere(unanswered(
            STORE,
            writes,
            &format!("{endpoint} does not answer as DynamoDB does"),
        )),
        other => nowhere(not_sent(&causes(&other), endpoint, writes)),
    }
}

/// Whether only the connection broke, after it was made: a read is then sent again.
pub(crate) fn broke_off<E: std::error::Error + 'static>(e: &SdkError<E, HttpResponse>) -> bool {
    matches!(e, SdkError::DispatchFailure(f) if f.is_io())
        && !causes(e).iter().any(|text| text.contains(CONNECTING))
}

/// How the HTTP client marks errors while connecting; there is no other way to tell.
const CONNECTING: &str = "client error (Connect)";

/// A request without an answer: the causes tell whether it was sent.
fn not_sent(causes: &[String], endpoint: &str, writes: bool) -> TableError {
    let has = |word: &str| causes.iter().any(|text| text.contains(word));
    let last = causes.last().map(|text| one_line(text)).unwrap_or_default();
    // The service that gives credentials does not answer. These are texts of `CredentialsError`.
    if has("credentials provider timed out") || has("an error occurred while loading credentials") {
        return error(
            TableErrorKind::Unavailable,
            format!("the credentials for {endpoint} are not available now ({last})"),
        );
    }
    if has("credential") || has("Credential") {
        let advice = "put keys into the URL, set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, name a profile, or give this machine a role";
        return error(
            TableErrorKind::PermissionDenied,
            format!("no credentials for {endpoint} ({last}): {advice}"),
        );
    }
    if has(CONNECTING) || has("connect timeout") {
        if has("certificate") || has("corrupt message") || has("tls") || has("TLS") {
            return error(
                TableErrorKind::Configuration,
                format!("{endpoint} does not accept TLS ({last}): check the endpoint"),
            );
        }
        return error(
            TableErrorKind::Unavailable,
            format!("{endpoint} cannot be reached ({last})"),
        );
    }
    if has("construct request")
        || has("failed to construct")
        || has("invalid endpoint")
        || has("Invalid endpoint")
    {
        return error(
            TableErrorKind::Configuration,
            format!("no request to {endpoint} can be made ({last})"),
        );
    }
    unanswered(
        STORE,
        writes,
        &format!("the connection to {endpoint} broke off ({last})"),
    )
}

/// The meaning of an error code.
fn of_code(
    code: Option<&str>,
    message: &str,
    status: u16,
    endpoint: &str,
    writes: bool,
) -> TableError {
    use TableErrorKind::{
        Busy, Configuration, LimitExceeded, NotInitialized, OutcomeUnknown, PermissionDenied,
        Unavailable,
    };
    let Some(code) = code else {
        return match status {
            500.. => unanswered(
                STORE,
                writes,
                &format!("{endpoint} answers with the HTTP status {status}"),
            ),
            _ => error(
                Configuration,
                format!(
                    "{endpoint} answers with the HTTP status {status}, and not as DynamoDB does: check the endpoint"
                ),
            ),
        };
    };
    let (kind, what) = match code {
        "TransactionConflictException"
        | "TransactionCanceledException"
        | "ReplicatedWriteConflictException" => (Busy, "another request uses the same items"),
        "ConditionalCheckFailedException" => (Busy, "the item changed meanwhile"),
        "ProvisionedThroughputExceededException"
        | "ThrottlingException"
        | "RequestLimitExceeded"
        | "LimitExceededException" => (
            Busy,
            "the table's or the account's throughput limit is reached",
        ),
        "ResourceInUseException" => (Busy, "the table is being created or changed"),
        // The commit that was sent first may still succeed.
        "TransactionInProgressException" => (OutcomeUnknown, "the same commit is still running"),
        "IdempotentParameterMismatchException" => (
            OutcomeUnknown,
            "another commit was sent under the same token",
        ),
        "ResourceNotFoundException" => (NotInitialized, "the table does not exist"),
        "ItemCollectionSizeLimitExceededException" => {
            (LimitExceeded, "the cluster is larger than the table allows")
        }
        "ValidationException" => invalid(message),
        "UnknownOperationException" | "SerializationException" => (
            Configuration,
            "this is not DynamoDB, or a version that is too old",
        ),
        code if is_denied(code) => (
            PermissionDenied,
            "these credentials are refused, or have no permission for this",
        ),
        _ if status >= 500 => {
            return unanswered(
                STORE,
                writes,
                &format!(
                    "{endpoint} had an internal error ({code}: {})",
                    one_line(message)
                ),
            );
        }
        _ => (Unavailable, "the request was refused"),
    };
    error(
        kind,
        format!("{what} ({endpoint}: {code}: {})", one_line(message)),
    )
}

fn is_denied(code: &str) -> bool {
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

/// An invalid request: only the message says why.
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
            "it is larger than DynamoDB allows",
        )
    } else {
        (
            TableErrorKind::Configuration,
            "DynamoDB refuses the request",
        )
    }
}

/// Why a transaction was cancelled, except for the conditions of the version row. It certainly did
/// not happen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Cancelled {
    /// A condition on a row failed.
    Row,
    /// A reason other than a condition.
    Otherwise(TableErrorKind, String),
}

/// The deciding reason of several. After a collision the other reasons are uncertain, because
/// DynamoDB did not check everything.
pub(crate) fn cancelled(reasons: &[CancellationReason]) -> Cancelled {
    let mut found = Cancelled::Otherwise(
        TableErrorKind::Busy,
        "DynamoDB cancelled the transaction without a reason".to_owned(),
    );
    for reason in reasons {
        let said = one_line(reason.message().unwrap_or_default());
        let why = |kind, what: &str| {
            Cancelled::Otherwise(
                kind,
                format!(
                    "{what} ({})",
                    if said.is_empty() { "cancelled" } else { &said }
                ),
            )
        };
        found = match reason.code().unwrap_or("None") {
            "None" => continue,
            "TransactionConflict" => {
                return why(
                    TableErrorKind::Busy,
                    "another transaction uses the same items",
                );
            }
            "ThrottlingError" | "ProvisionedThroughputExceeded" | "RequestLimitExceeded" => {
                return why(
                    TableErrorKind::Busy,
                    "the table's throughput limit is reached",
                );
            }
            "ConditionalCheckFailed" => Cancelled::Row,
            "ItemCollectionSizeLimitExceeded" => why(
                TableErrorKind::LimitExceeded,
                "the cluster is larger than the table allows",
            ),
            "ValidationError" => match invalid(&said) {
                (TableErrorKind::Configuration, what) => why(TableErrorKind::LimitExceeded, what),
                (kind, what) => why(kind, what),
            },
            code if is_denied(code) => why(
                TableErrorKind::PermissionDenied,
                "the credentials have no permission for this",
            ),
            code => why(TableErrorKind::Unavailable, code),
        };
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use TableErrorKind::{
        Busy, Configuration, ForeignTable, LimitExceeded, NotInitialized, OutcomeUnknown,
        PermissionDenied, Unavailable,
    };

    #[test]
    fn every_code_has_a_kind() {
        const THROTTLED: [&str; 3] = [
            "ProvisionedThroughputExceededException",
            "ThrottlingException",
            "RequestLimitExceeded",
        ];
        const DENIED: [&str; 4] = [
            "AccessDeniedException",
            "UnrecognizedClientException",
            "InvalidSignatureException",
            "ExpiredTokenException",
        ];
        const INVALID: [(&str, TableErrorKind); 4] = [
            (
                "The provided key element does not match the schema",
                ForeignTable,
            ),
            (
                "The number of conditions on the keys is invalid",
                ForeignTable,
            ),
            (
                "Item size has exceeded the maximum allowed size",
                LimitExceeded,
            ),
            ("Syntax error", Configuration),
        ];
        let refused = [
            ("TransactionConflictException", "", Busy),
            ("TransactionInProgressException", "", OutcomeUnknown),
            ("ResourceNotFoundException", "", NotInitialized),
            ("SomethingNew", "", Unavailable),
        ];
        let invalid = INVALID.map(|(message, kind)| ("ValidationException", message, kind));
        let cases = refused
            .into_iter()
            .chain(THROTTLED.map(|code| (code, "", Busy)))
            .chain(DENIED.map(|code| (code, "", PermissionDenied)))
            .chain(invalid)
            .map(|(code, message, kind)| (code, message, 400, kind, kind))
            .chain([
                ("InternalServerError", "", 500, OutcomeUnknown, Unavailable),
                ("ServiceUnavailable", "", 503, OutcomeUnknown, Unavailable),
            ]);
        for (code, message, status, written, read) in cases {
            let kind = |writes| of_code(Some(code), message, status, "there", writes).kind();
            let found = (kind(true), kind(false));
            assert_eq!(found, (written, read), "{code}: {message}");
        }
        assert_eq!(of_code(None, "", 404, "there", true).kind(), Configuration);
        assert_eq!(of_code(None, "", 502, "there", true).kind(), OutcomeUnknown);
    }

    #[test]
    fn requests_that_were_not_sent_certainly_did_not_happen() {
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
    fn cancellation_reasons_are_distinguished() {
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
