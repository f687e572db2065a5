//! What Consul says, as what the caller does next. Clauses T4 and T5.
//!
//! A refusal (4xx) means that nothing was written. An error of the server's own (5xx) leaves it open, but for the one that says that there is
//! no leader to write with: it comes before anything is proposed to anybody.

use membership_core::{Operation, TableError, TableErrorKind};

use crate::STORE;

/// An error during an operation of this table; the operation's name is put in by whoever answers the caller.
pub(crate) fn error(kind: TableErrorKind, message: impl Into<String>) -> TableError {
    TableError::new(kind, Operation::Connect, STORE, message)
}

/// What the configuration cannot mean.
pub(crate) fn wrong(message: impl Into<String>) -> TableError {
    error(TableErrorKind::Configuration, message)
}

/// The words that stand wherever a request failed because nobody leads: the servers themselves send a request again on them, because it
/// cannot have changed anything.
const NO_LEADER: &str = "No cluster leader";

/// Whether a refusal (403) says that the request was not even begun, because no server leads: another server may know better.
pub(crate) fn has_no_leader(status: u16, body: &str) -> bool {
    status == 500 && body.contains(NO_LEADER)
}

/// Whether a refusal (403) says that the request was not even begun, because its token is unknown. That a server knows all tokens which there are is
/// certain only after a while: one that comes to lead right after its own start knows none until it has read its log.
pub(crate) fn knows_no_token(body: &str) -> bool {
    body.contains(NO_TOKEN)
}

const NO_TOKEN: &str = "ACL not found";

/// Whether this is said about rights. Transactions say so operation by operation, with the status of a conflict.
pub(crate) fn is_about_rights(text: &str) -> bool {
    text.contains("Permission denied")
        || text.contains(NO_TOKEN)
        || text.contains("ACL support disabled")
}

const RIGHTS: &str = "give the token `key_prefix` with the policy `write` on the table's folder, as the README of membership-consul says";

/// That this token may not do this.
pub(crate) fn denied(text: &str) -> TableError {
    let what = if text.contains(NO_TOKEN) {
        "the server does not know this token: correct the one in the URL, or CONSUL_HTTP_TOKEN"
            .to_owned()
    } else {
        format!("the token may not do this: {RIGHTS}")
    };
    error(
        TableErrorKind::PermissionDenied,
        format!("{what} ({})", shorten(text)),
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

/// What an answer means that is none of those that the request is made for.
pub(crate) fn refused(status: u16, body: &str, writes: bool) -> TableError {
    use TableErrorKind::{Busy, Configuration, LimitExceeded, Unavailable};
    let said = shorten(body);
    if has_no_leader(status, body) {
        return error(
            Unavailable,
            "the servers have no leader now: a majority of them must run and reach each other",
        );
    }
    match status {
        403 => denied(body),
        _ if is_about_rights(body) => denied(body),
        429 => error(
            Busy,
            format!("the server takes no more requests or connections from here for now ({said})"),
        ),
        503 if body.contains("rate limit") => error(
            Busy,
            format!("the servers take no more writes for now ({said})"),
        ),
        413 => error(
            LimitExceeded,
            format!("the server takes no request as large as this ({said})"),
        ),
        400 if body.contains("HTTPS server") => {
            wrong("the server speaks TLS on this port: write consul+https://")
        }
        400..=499 => error(
            Configuration,
            format!("the server refuses with the HTTP status {status} ({said})"),
        ),
        500 if body.contains("No path to datacenter") => {
            wrong(format!("the servers know no such datacenter ({said})"))
        }
        500.. => unanswered(
            writes,
            &format!("the server failed with the HTTP status {status} ({said})"),
        ),
        _ => wrong(format!(
            "the answer has the HTTP status {status}, and is none of Consul: check the address"
        )),
    }
}

/// From a request that was not answered: what happened to it.
#[derive(Debug)]
pub(crate) enum Trouble {
    /// It was certainly not carried out.
    NotSent(TableError),
    /// It may have been.
    Lost(String),
}

/// What the HTTP client's error means.
pub(crate) fn trouble(e: &reqwest::Error) -> Trouble {
    judge(&chain(e), e.is_connect(), e.is_builder())
}

fn judge(causes: &[String], connecting: bool, building: bool) -> Trouble {
    let has = |word: &str| causes.iter().any(|text| text.contains(word));
    let last = causes.last().map(|text| shorten(text)).unwrap_or_default();
    // Servers say that they want a certificate only after the connection is made, and before they read anything.
    if has("CertificateRequired") || has("certificate required") || has("BadCertificate") {
        let advice = "name one that it accepts with tls_cert and tls_key, or CONSUL_CLIENT_CERT and CONSUL_CLIENT_KEY";
        return Trouble::NotSent(wrong(format!(
            "the server wants a client's certificate ({last}): {advice}"
        )));
    }
    if connecting && has("invalid peer certificate") {
        let advice =
            "name its authority with tls_ca or CONSUL_CACERT, and connect by a name that is in it";
        return Trouble::NotSent(wrong(format!(
            "the server's certificate is not trusted ({last}): {advice}"
        )));
    }
    if connecting && (has("InvalidContentType") || has("corrupt message")) {
        return Trouble::NotSent(wrong(
            "the server does not speak TLS on this port: write consul://, or name its port for HTTPS",
        ));
    }
    if building {
        return Trouble::NotSent(wrong(format!("no such request can be made ({last})")));
    }
    if connecting {
        return Trouble::NotSent(error(
            TableErrorKind::Unavailable,
            format!("it cannot be reached ({last})"),
        ));
    }
    if has("invalid HTTP version") || has("invalid HTTP") {
        return Trouble::Lost(format!("what answers there does not speak HTTP ({last})"));
    }
    Trouble::Lost(format!("the connection broke off ({last})"))
}

/// The error and its causes, the innermost last. The URL, which the first would show, holds no secret, but much else.
fn chain(e: &dyn std::error::Error) -> Vec<String> {
    let mut all = vec![e.to_string()];
    let mut cause = e.source();
    while let Some(e) = cause {
        all.push(e.to_string());
        cause = e.source();
    }
    all
}

/// As much of what somebody else wrote as a line bears.
pub(crate) fn shorten(text: &str) -> String {
    let line: String = text.split_whitespace().collect::<Vec<_>>().join(" ");
    let short: String = line.chars().filter(|c| !c.is_control()).take(200).collect();
    if short.is_empty() {
        "it says no more".to_owned()
    } else {
        short
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use TableErrorKind::{
        Busy, Configuration, LimitExceeded, OutcomeUnknown, PermissionDenied, Unavailable,
    };

    #[test]
    fn only_the_missing_leader_is_certain_among_the_servers_own_errors() {
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

    #[test]
    fn what_was_not_sent_is_certain() {
        let of = |causes: &[&str], connecting| {
            let causes: Vec<String> = causes.iter().map(|text| (*text).to_owned()).collect();
            match judge(&causes, connecting, false) {
                Trouble::NotSent(e) => Some(e.kind()),
                Trouble::Lost(_) => None,
            }
        };
        assert_eq!(
            of(
                &[
                    "error sending request",
                    "tcp connect error",
                    "Connection refused (os error 111)"
                ],
                true
            ),
            Some(Unavailable)
        );
        assert_eq!(
            of(
                &[
                    "error sending request",
                    "connection closed before message completed"
                ],
                false
            ),
            None
        );
        assert_eq!(
            of(
                &[
                    "error sending request",
                    "Connection reset by peer (os error 104)"
                ],
                false
            ),
            None
        );
        assert_eq!(
            of(
                &[
                    "error sending request",
                    "invalid peer certificate: UnknownIssuer"
                ],
                true
            ),
            Some(Configuration)
        );
        assert_eq!(
            of(
                &[
                    "error sending request",
                    "received corrupt message of type InvalidContentType"
                ],
                true
            ),
            Some(Configuration)
        );
        assert_eq!(
            of(
                &[
                    "error sending request",
                    "received fatal alert: CertificateRequired"
                ],
                false
            ),
            Some(Configuration)
        );
    }
}
