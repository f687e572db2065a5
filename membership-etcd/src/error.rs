//! etcd's errors, by what the caller does next. Clauses T4 and T5.
//!
//! A write goes through the members' log. A write that a member refuses, before it proposes it or
//! when it applies it, was certainly not done; only after "no space" the table is read to find out.
//! Any other end of a request, also a member's own timeout, leaves open whether the proposal still
//! waits in the log: such a write may happen after a read that does not show it.

use membership_core::{Operation, TableError, TableErrorKind};
use membership_provider::http::NoAnswer;
use membership_provider::one_line;

use crate::STORE;
use crate::wire::Refused;

/// An error of this table. The caller sets the operation.
pub(crate) fn error(kind: TableErrorKind, message: impl Into<String>) -> TableError {
    TableError::new(kind, Operation::Connect, STORE, message)
}

/// Why a member gave no answer.
#[derive(Debug)]
pub(crate) enum Failure {
    /// Certainly nothing was done, and another member may do it.
    Elsewhere(TableError),
    /// Certainly nothing was done: the member does not know this user's token any more.
    Token(TableError),
    /// The request was sent, and its outcome is not known.
    Lost(String),
    /// Certainly nothing was done, and another member would answer the same.
    Refused(TableError),
}

/// A configuration that cannot work.
pub(crate) fn wrong(message: impl Into<String>) -> TableError {
    error(TableErrorKind::Configuration, message)
}

/// gRPC's codes.
mod code {
    pub(super) const INVALID_ARGUMENT: u32 = 3;
    pub(super) const PERMISSION_DENIED: u32 = 7;
    pub(super) const UNIMPLEMENTED: u32 = 12;
    pub(super) const UNAUTHENTICATED: u32 = 16;
}

/// The message when a connection ended before the answer: as `NoAnswer` writes it.
pub(crate) const BROKE: &str = "the connection broke";

/// The answer to an authentication when it is not enabled.
pub(crate) const NOT_ENABLED: &str = "authentication is not enabled";

/// Part of the message for a store without space.
const FULL: &str = "alarm NOSPACE";

/// Whether etcd says that it has no space. For a transaction this is not final: a member that runs
/// out of space while it applies one applies it, and answers this (etcd-io/etcd#16659).
pub(crate) fn is_full(e: &TableError) -> bool {
    e.kind() == TableErrorKind::Unavailable && e.message().contains(FULL)
}

/// The limit of an old etcd's gateway for the answers of its own member, in gRPC's words. No
/// request of ours is that large.
const OLD_GATEWAY: &str = "vs. 4194304)";

/// What a member's refusal means.
pub(crate) fn refused(refused: &Refused) -> Failure {
    use TableErrorKind::{Busy, Configuration, LimitExceeded, PermissionDenied, Unavailable};
    let text = one_line(refused.message());
    let has = |words: &str| text.contains(words);
    let of = |kind, what: &str| error(kind, format!("{what} ({text})"));
    if has("invalid auth token") || has("auth store is old") {
        return Failure::Token(of(
            PermissionDenied,
            "the member does not accept the token that it gave",
        ));
    }
    // Authentication was enabled later, or no user is configured.
    if has("user name is empty") {
        return Failure::Token(of(
            PermissionDenied,
            "etcd requires a user: put user and password into the URL",
        ));
    }
    if has("no leader") || has("not capable") || has("not supported for learner") {
        return Failure::Elsewhere(of(
            Unavailable,
            "the member has no connection to a majority",
        ));
    }
    // The request was carried out; its answer is too large.
    if has("received message larger than max") && has(OLD_GATEWAY) {
        return Failure::Lost(format!(
            "its gateway does not accept answers as large as the table: etcd 3.4.17 or newer is needed ({text})"
        ));
    }
    let (kind, what) = match refused.code {
        _ if has(NOT_ENABLED) => (Configuration, "authentication is turned off"),
        _ if has("authentication failed") => (PermissionDenied, "wrong user or password"),
        _ if has("database space exceeded") => (
            Unavailable,
            "etcd has no space and accepts no writes (alarm NOSPACE): compact its history, defragment every member, then `etcdctl alarm disarm`",
        ),
        _ if has("corrupt cluster") => (
            Unavailable,
            "etcd's members disagree on their data and answer no requests (alarm CORRUPT)",
        ),
        _ if has("too many requests") => (Busy, "etcd has too many requests at once"),
        _ if has("request is too large") || has("received message larger than max") => (
            LimitExceeded,
            "the request is larger than etcd accepts: see --max-request-bytes",
        ),
        _ if has("too many operations") => (
            LimitExceeded,
            "the request has more operations than etcd accepts: see --max-txn-ops",
        ),
        code::PERMISSION_DENIED => (
            PermissionDenied,
            "the user may not read and write the keys below the prefix",
        ),
        code::UNAUTHENTICATED => {
            return Failure::Token(of(PermissionDenied, "etcd does not know the user"));
        }
        code::INVALID_ARGUMENT | code::UNIMPLEMENTED => (
            Configuration,
            "etcd does not accept the request: is this etcd 3.4.17 or newer?",
        ),
        // "request timed out", "leader changed", "server stopped", and the gateway's own errors.
        _ => {
            return Failure::Lost(format!(
                "the member does not know the outcome of the request ({text})"
            ));
        }
    };
    Failure::Refused(of(kind, what))
}

/// What an answer means that is not etcd's.
pub(crate) fn foreign_answer(status: u16, text: &str) -> Failure {
    let what = match status {
        // etcd can take the user from a certificate, but not over its gateway, and then refuses.
        400 if text.contains("CommonName") => {
            "with authentication, etcd's gateway refuses client certificates that have a common name (CN): \
                                               name one without it with tls_cert, beside user and password"
                .to_owned()
        }
        404 => "the server answers 404 Not Found: this is no etcd 3.4.17 or newer, or its JSON gateway is off (enable-grpc-gateway)".to_owned(),
        429 => return Failure::Refused(error(TableErrorKind::Busy, "the server answers 429 Too Many Requests")),
        500.. => return Failure::Lost(format!("the server answers with the HTTP status {status}")),
        _ => format!("the server answers with the HTTP status {status}, and not as etcd does: check host, port, and whether it is etcd+https://"),
    };
    Failure::Refused(error(TableErrorKind::Configuration, what))
}

/// Why the HTTP client could not finish a request.
pub(crate) fn unfinished(e: &reqwest::Error) -> Failure {
    match NoAnswer::from_error(STORE, e, "etcd://") {
        NoAnswer::NotSent(e) => Failure::Elsewhere(e),
        NoAnswer::Lost(why) => Failure::Lost(why),
    }
}

#[cfg(test)]
mod tests {
    use membership_provider::unanswered;

    use super::*;

    /// The kind, and what the client does next.
    fn of(code: u32, message: &str) -> (Option<TableErrorKind>, &'static str) {
        match refused(&Refused::new(code, message)) {
            Failure::Elsewhere(e) => (Some(e.kind()), "elsewhere"),
            Failure::Token(e) => (Some(e.kind()), "token"),
            Failure::Lost(_) => (None, "lost"),
            Failure::Refused(e) => (Some(e.kind()), "refused"),
        }
    }

    #[test]
    fn refusals_are_distinguished() {
        use TableErrorKind::*;
        let kinds: [(_, &[&str]); 8] = [
            (
                (Some(PermissionDenied), "token"),
                &[
                    "16 etcdserver: invalid auth token",
                    "3 etcdserver: revision of auth store is old",
                    "3 etcdserver: user name is empty",
                ],
            ),
            (
                (Some(PermissionDenied), "refused"),
                &[
                    "3 etcdserver: authentication failed, invalid user ID or password",
                    "7 etcdserver: permission denied",
                ],
            ),
            (
                (Some(Configuration), "refused"),
                &[
                    "9 etcdserver: authentication is not enabled",
                    "3 json: cannot unmarshal",
                ],
            ),
            (
                (Some(Unavailable), "elsewhere"),
                &[
                    "14 etcdserver: no leader",
                    "14 etcdserver: not capable",
                    "14 etcdserver: rpc not supported for learner",
                ],
            ),
            (
                (Some(Unavailable), "refused"),
                &[
                    "8 etcdserver: mvcc: database space exceeded",
                    "15 etcdserver: corrupt cluster",
                ],
            ),
            (
                (Some(Busy), "refused"),
                &["8 etcdserver: too many requests"],
            ),
            (
                (Some(LimitExceeded), "refused"),
                &[
                    "3 etcdserver: request is too large",
                    "8 grpc: received message larger than max (2097180 vs. 2097152)",
                    "3 etcdserver: too many operations in txn request",
                ],
            ),
            // The member had accepted them: only the log knows their outcome.
            (
                (None, "lost"),
                &[
                    "8 grpc: received message larger than max (4778467 vs. 4194304)",
                    "14 etcdserver: request timed out",
                    "14 etcdserver: request timed out, possibly due to previous leader failure",
                    "14 etcdserver: request timed out, possibly due to connection lost",
                    "14 etcdserver: leader changed",
                    "14 etcdserver: server stopped",
                    "14 transport is closing",
                    "4 context deadline exceeded",
                    "2 raft proposal dropped",
                    "9 etcdserver: not leader",
                    "0 ",
                ],
            ),
        ];
        for (expected, answers) in kinds {
            for answer in answers {
                let (code, message) = answer.split_once(' ').unwrap();
                assert_eq!(of(code.parse().unwrap(), message), expected, "{message}");
            }
        }
    }

    #[test]
    fn an_old_gateway_is_distinguished_from_a_request_that_is_too_large() {
        let text = "grpc: received message larger than max (4778467 vs. 4194304)";
        let Failure::Lost(why) = refused(&Refused::new(8, text)) else {
            unreachable!("it was carried out")
        };
        for (writes, kind) in [
            (true, TableErrorKind::OutcomeUnknown),
            (false, TableErrorKind::Unavailable),
        ] {
            let e = unanswered(STORE, writes, &why);
            assert!(
                e.kind() == kind && e.message().contains("etcd 3.4.17 or newer is needed"),
                "{e}"
            );
        }
    }

    #[test]
    fn a_store_without_space_is_recognized() {
        let full = refused(&Refused::new(
            8,
            "etcdserver: mvcc: database space exceeded",
        ));
        assert!(matches!(full, Failure::Refused(e) if is_full(&e)));
        let other = refused(&Refused::new(15, "etcdserver: corrupt cluster"));
        assert!(matches!(other, Failure::Refused(e) if !is_full(&e)));
    }

    #[test]
    fn the_answer_of_another_server_refuses_a_request_unless_it_is_a_servers_error() {
        for status in [301, 400, 401, 404, 429] {
            assert!(
                matches!(foreign_answer(status, ""), Failure::Refused(_)),
                "{status}"
            );
        }
        for status in [500, 502, 504] {
            assert!(
                matches!(foreign_answer(status, ""), Failure::Lost(_)),
                "{status}"
            );
        }
        let named = "CommonName of client sending a request against gateway will be ignored and not used as expected\n";
        assert!(
            matches!(foreign_answer(400, named), Failure::Refused(e) if e.message().contains("tls_cert"))
        );
    }
}
