//! Errors of NATS, by what the caller does next.

use async_nats::client::{RequestError, RequestErrorKind};
use async_nats::jetstream::{Error as ApiError, ErrorCode};
use async_nats::{ConnectError, ConnectErrorKind};
use membership_core::{Operation, TableError, TableErrorKind};
use membership_provider::{innermost, one_line};

use crate::STORE;

/// An error of this kind. Its operation is filled in where the operation is known.
pub(crate) fn error(kind: TableErrorKind, message: impl Into<String>) -> TableError {
    TableError::new(kind, Operation::Connect, STORE, message)
}

/// Why no connection was made. Nothing was sent.
pub(crate) fn of_connect(source: ConnectError) -> TableError {
    let why = innermost(&source);
    let (kind, what) = match source.kind() {
        ConnectErrorKind::AuthorizationViolation | ConnectErrorKind::Authentication => (
            TableErrorKind::PermissionDenied,
            "the server refuses user, password or token",
        ),
        ConnectErrorKind::Tls => (TableErrorKind::Configuration, "TLS failed"),
        ConnectErrorKind::ServerParse => (TableErrorKind::Configuration, "a host has no such name"),
        _ => (TableErrorKind::Unavailable, "no server can be reached"),
    };
    error(kind, format!("{what} ({why})")).with_source(source)
}

/// Why a request has no answer. It may have been done.
pub(crate) fn of_request(source: RequestError) -> TableError {
    let (kind, what) = match source.kind() {
        RequestErrorKind::MaxPayloadExceeded => (
            TableErrorKind::LimitExceeded,
            "the server's max_payload is smaller",
        ),
        RequestErrorKind::InvalidSubject => (
            TableErrorKind::InvalidRequest,
            "the subject of a key is not valid",
        ),
        // Nobody listens at a subject of JetStream itself.
        RequestErrorKind::NoResponders => (
            TableErrorKind::Unavailable,
            "JetStream does not answer: turn it on in the servers, or wait until they have a leader",
        ),
        RequestErrorKind::TimedOut | RequestErrorKind::Other => (
            TableErrorKind::OutcomeUnknown,
            "the connection ended after the request was sent",
        ),
    };
    error(kind, what).with_source(source)
}

/// What JetStream answered. Only what it certainly did not do is not `OutcomeUnknown`.
pub(crate) fn of_answer(source: &ApiError) -> TableError {
    let kind = match source.error_code() {
        ErrorCode::CLUSTER_NOT_AVAILABLE
        | ErrorCode::CLUSTER_NOT_LEADER
        | ErrorCode::CLUSTER_NOT_ACTIVE
        | ErrorCode::CLUSTER_NO_PEERS
        | ErrorCode::STREAM_OFFLINE
        | ErrorCode::STREAM_NOT_FOUND => TableErrorKind::Unavailable,
        ErrorCode::STREAM_TOO_MANY_REQUESTS
        | ErrorCode::STREAM_WRONG_LAST_SEQUENCE_CONSTANT
        | ErrorCode::STREAM_EXPECTED_LAST_SEQ_PER_SUBJECT_NOT_READY => TableErrorKind::Busy,
        ErrorCode::STREAM_MESSAGE_EXCEEDS_MAXIMUM
        | ErrorCode::STREAM_HEADER_EXCEEDS_MAXIMUM
        | ErrorCode::STREAM_MAX_STREAM_BYTES_EXCEEDED
        | ErrorCode::ACCOUNT_RESOURCES_EXCEEDED
        | ErrorCode::STORAGE_RESOURCES_EXCEEDED
        | ErrorCode::MEMORY_RESOURCES_EXCEEDED
        | ErrorCode::INSUFFICIENT_RESOURCES
        | ErrorCode::MAXIMUM_STREAMS_LIMIT => TableErrorKind::LimitExceeded,
        ErrorCode::JETSTREAM_NOT_ENABLED
        | ErrorCode::JETSTREAM_NOT_ENABLED_FOR_ACCOUNT
        | ErrorCode::NO_ACCOUNT
        | ErrorCode::STREAM_REPLICAS_NOT_SUPPORTED
        | ErrorCode::STREAM_INVALID_CONFIG
        | ErrorCode::STREAM_SUBJECT_OVERLAP
        | ErrorCode::STREAM_SEALED
        | ErrorCode::REQUIRED_API_LEVEL => TableErrorKind::Configuration,
        // A bucket that is full refuses new messages.
        ErrorCode::STREAM_STORE_FAILED if source.to_string().contains("maximum") => {
            TableErrorKind::LimitExceeded
        }
        _ => TableErrorKind::OutcomeUnknown,
    };
    error(
        kind,
        format!("JetStream answers: {}", one_line(&source.to_string())),
    )
    .with_source(source.clone())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_was_certainly_not_done_says_so() {
        let kind = |code: u64, text: &str| {
            let text = format!(r#"{{"code":503,"err_code":{code},"description":"{text}"}}"#);
            of_answer(&serde_json::from_str(&text).unwrap()).kind()
        };
        assert_eq!(kind(10008, "no leader"), TableErrorKind::Unavailable);
        assert_eq!(kind(10164, "in process"), TableErrorKind::Busy);
        assert_eq!(
            kind(10077, "maximum bytes exceeded"),
            TableErrorKind::LimitExceeded
        );
        assert_eq!(kind(10077, "disk trouble"), TableErrorKind::OutcomeUnknown);
        assert_eq!(kind(19999, "something new"), TableErrorKind::OutcomeUnknown);
        assert_eq!(kind(10039, "not enabled"), TableErrorKind::Configuration);
    }
}
