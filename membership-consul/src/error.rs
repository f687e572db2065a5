//! Consul's errors, by what the caller does next. Clauses T4 and T5.
//!
//! A refusal (4xx) means that nothing was written. A server's error (5xx) leaves the outcome
//! unknown, except that there is no leader: servers say so before they propose a write.

use membership_core::{Operation, TableError, TableErrorKind};
use membership_provider::{one_line, unanswered};

use crate::STORE;

/// An error of this table. The caller sets the operation.
pub(crate) fn error(kind: TableErrorKind, message: impl Into<String>) -> TableError {
    TableError::new(kind, Operation::Connect, STORE, message)
}

/// A configuration that cannot work.
pub(crate) fn wrong(message: impl Into<String>) -> TableError {
    error(TableErrorKind::Configuration, message)
}

/// The text of every request that failed because there is no leader. The servers themselves send
/// such a request again, because it cannot have changed anything.
const NO_LEADER: &str = "No cluster leader";

/// Whether the request was not begun because the server knows no leader: another server may know
/// one.
pub(crate) fn has_no_leader(status: u16, body: &str) -> bool {
    status == 500 && body.contains(NO_LEADER)
}

/// Whether the request was not begun because its token is unknown. A server that becomes leader
/// right after its start knows no token until it has read its log.
pub(crate) fn knows_no_token(body: &str) -> bool {
    body.contains(NO_TOKEN)
}

const NO_TOKEN: &str = "ACL not found";

/// Whether the text is about permissions. Transactions refuse each operation with the status of a
/// conflict.
pub(crate) fn is_about_permissions(text: &str) -> bool {
    text.contains("Permission denied")
        || text.contains(NO_TOKEN)
        || text.contains("ACL support disabled")
}

const PERMISSIONS: &str = "give the token `key_prefix` with the policy `write` on the table's folder, as the README of membership-consul says";

/// The error of a token that may not do this.
pub(crate) fn denied(text: &str) -> TableError {
    let what = if text.contains(NO_TOKEN) {
        "the server does not know this token: correct the one in the URL, or CONSUL_HTTP_TOKEN"
            .to_owned()
    } else {
        format!("the token may not do this: {PERMISSIONS}")
    };
    error(
        TableErrorKind::PermissionDenied,
        format!("{what} ({})", shorten(text)),
    )
}

/// What an unexpected answer means.
pub(crate) fn refused(status: u16, body: &str, writes: bool) -> TableError {
    use TableErrorKind::{Busy, Configuration, LimitExceeded, Unavailable};
    let text = shorten(body);
    if has_no_leader(status, body) {
        return error(
            Unavailable,
            "the servers have no leader now: a majority of them must run and reach each other",
        );
    }
    match status {
        403 => denied(body),
        _ if is_about_permissions(body) => denied(body),
        429 => error(
            Busy,
            format!(
                "the server accepts no more requests or connections from here for now ({text})"
            ),
        ),
        503 if body.contains("rate limit") => error(
            Busy,
            format!("the servers accept no more writes for now ({text})"),
        ),
        413 => error(
            LimitExceeded,
            format!("the server does not accept a request of this size ({text})"),
        ),
        400 if body.contains("HTTPS server") => {
            wrong("the server speaks TLS on this port: use consul+https://")
        }
        400..=499 => error(
            Configuration,
            format!("the server refuses with the HTTP status {status} ({text})"),
        ),
        500 if body.contains("No path to datacenter") => {
            wrong(format!("the servers know no such datacenter ({text})"))
        }
        500.. => unanswered(
            STORE,
            writes,
            &format!("the server failed with the HTTP status {status} ({text})"),
        ),
        _ => wrong(format!(
            "the server answers with the HTTP status {status} and is not Consul: check the address"
        )),
    }
}

/// The server's text as part of a message.
pub(crate) fn shorten(text: &str) -> String {
    match one_line(text) {
        text if text.is_empty() => "no reason given".to_owned(),
        text => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use TableErrorKind::{
        Busy, Configuration, LimitExceeded, OutcomeUnknown, PermissionDenied, Unavailable,
    };

    #[test]
    fn of_a_servers_errors_only_a_missing_leader_is_certain() {
        let kind = |status, body, writes| refused(status, body, writes).kind();
        for writes in [false, true] {
            assert_eq!(kind(500, "No cluster leader", writes), Unavailable);
            assert_eq!(
                kind(500, "rpc error making call: No cluster leader", writes),
                Unavailable
            );
            assert_eq!(kind(403, "Permission denied", writes), PermissionDenied);
            assert_eq!(kind(403, "ACL not found", writes), PermissionDenied);
            assert_eq!(
                kind(500, "rpc error making call: Permission denied", writes),
                PermissionDenied
            );
            assert_eq!(
                kind(413, "Request body(600000 bytes) too large", writes),
                LimitExceeded
            );
            assert_eq!(kind(429, "", writes), Busy);
            assert_eq!(
                kind(503, "rate limit exceeded, try again later", writes),
                Busy
            );
            assert_eq!(
                kind(400, "Invalid query parameter: \"ns\"", writes),
                Configuration
            );
            assert_eq!(kind(500, "No path to datacenter", writes), Configuration);
            assert_eq!(kind(302, "", writes), Configuration);
        }
        for body in [
            "leadership lost while committing log",
            "node is not the leader",
            "rpc error making call: EOF",
            "",
            "raft is already shutdown",
        ] {
            assert_eq!(kind(500, body, true), OutcomeUnknown, "{body}");
            assert_eq!(kind(500, body, false), Unavailable, "{body}");
        }
        assert_eq!(kind(503, "upstream connect error", true), OutcomeUnknown);
        assert_eq!(kind(504, "", true), OutcomeUnknown);
    }
}
