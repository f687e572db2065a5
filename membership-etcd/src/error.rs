//! What etcd says, as what the caller does next. Clauses T4 and T5.
//!
//! A write goes through the members' log. What a member refuses before it proposes the write, or when the write's turn has come, was
//! certainly not done; only of a store without room that is looked up. Whatever else ends a request, a time-out of the member's own included, leaves open whether the proposal is still on
//! its way: such a write may happen even after somebody has read that it did not.

use membership_core::{Operation, TableError, TableErrorKind};

use crate::STORE;
use crate::wire::Refused;

/// An error during an operation of this table; the operation's name is put in by whoever answers the caller.
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
    /// The request was sent, and what became of it is not known.
    Lost(String),
    /// Certainly nothing was done, and no other member would do it either.
    Refused(TableError),
}

/// A request that was sent and not answered.
pub(crate) fn unanswered(writes: bool, why: &str) -> TableError {
    if writes {
        error(
            TableErrorKind::OutcomeUnknown,
            format!("after the request was sent: {why}"),
        )
    } else {
        error(TableErrorKind::Unavailable, why)
    }
}

/// gRPC's codes.
mod code {
    pub(super) const INVALID_ARGUMENT: u32 = 3;
    pub(super) const PERMISSION_DENIED: u32 = 7;
    pub(super) const UNIMPLEMENTED: u32 = 12;
    pub(super) const UNAUTHENTICATED: u32 = 16;
}

/// How it is said that a connection has ended before the answer was there.
pub(crate) const BROKE_OFF: &str = "the connection broke off";

/// What whoever says who they are is told where nobody is asked.
pub(crate) const NOT_ENABLED: &str = "authentication is not enabled";

/// What is wrong with a store without room.
const FULL: &str = "alarm NOSPACE";

/// Whether etcd says that it has no room. Of a transaction that is not final: a member that runs out of room while it carries one out
/// carries it out, and says this instead of its success (etcd-io/etcd#16659).
pub(crate) fn is_full(e: &TableError) -> bool {
    e.kind() == TableErrorKind::Unavailable && e.message().contains(FULL)
}

/// How much of an answer the gateway of an old etcd takes from its own member, as gRPC says it; what we ask for is never as large.
const OLD_GATEWAY: &str = "vs. 4194304)";

/// What a member's refusal means.
pub(crate) fn refused(refused: &Refused) -> Failure {
    use TableErrorKind::{Busy, Configuration, LimitExceeded, PermissionDenied, Unavailable};
    let said = shorten(refused.message());
    let has = |words: &str| said.contains(words);
    let of = |kind, what: &str| error(kind, format!("{what} ({said})"));
    if has("invalid auth token") || has("auth store is old") {
        return Failure::Token(of(
            PermissionDenied,
            "it does not take the token that it gave",
        ));
    }
    // Authentication was turned on since, or nobody named a user.
    if has("user name is empty") {
        return Failure::Token(of(
            PermissionDenied,
            "it wants a user: put user and password into the URL",
        ));
    }
    if has("no leader") || has("not capable") || has("not supported for learner") {
        return Failure::Elsewhere(of(
            Unavailable,
            "the member has no majority of the others behind it",
        ));
    }
    // What was asked for was done; its answer is too large.
    if has("received message larger than max") && has(OLD_GATEWAY) {
        return Failure::Lost(format!(
            "its gateway takes no answer as large as the table: etcd 3.4.17 or newer is needed ({said})"
        ));
    }
    let (kind, what) = match refused.code {
        _ if has(NOT_ENABLED) => (Configuration, "it asks nobody who they are"),
        _ if has("authentication failed") => (PermissionDenied, "wrong user or password"),
        _ if has("database space exceeded") => (
            Unavailable,
            "etcd is full and takes no writes (alarm NOSPACE): compact its history, defragment every member, then `etcdctl alarm disarm`",
        ),
        _ if has("corrupt cluster") => (
            Unavailable,
            "etcd's members disagree on their data and serve nobody (alarm CORRUPT)",
        ),
        _ if has("too many requests") => (Busy, "more is asked than etcd takes at once"),
        _ if has("request is too large") || has("received message larger than max") => (
            LimitExceeded,
            "it is more than etcd takes at once: see --max-request-bytes",
        ),
        _ if has("too many operations") => (
            LimitExceeded,
            "it is more than etcd takes at once: see --max-txn-ops",
        ),
        code::PERMISSION_DENIED => (
            PermissionDenied,
            "the user may not read and write the keys below the prefix",
        ),
        code::UNAUTHENTICATED => {
            return Failure::Token(of(PermissionDenied, "it does not know who that is"));
        }
        code::INVALID_ARGUMENT | code::UNIMPLEMENTED => (
            Configuration,
            "it does not take the request: is this etcd 3.4.17 or newer?",
        ),
        // "request timed out", "leader changed", "server stopped", and whatever its gateway says of the member behind it.
        _ => {
            return Failure::Lost(format!(
                "it could not say what became of the request ({said})"
            ));
        }
    };
    Failure::Refused(of(kind, what))
}

/// What an answer means that is none of etcd's own.
pub(crate) fn stranger(status: u16, text: &str) -> Failure {
    let what = match status {
        // etcd has users by a certificate's name, but not over its gateway, and does not let anybody believe otherwise.
        400 if text.contains("CommonName") => {
            "with authentication, etcd's gateway lets nobody in whose certificate has a common name (CN): \
                                               let tls_cert name a certificate without one, beside user and password"
                .to_owned()
        }
        404 => "it answers 404 Not Found: this is no etcd 3.4.17 or newer, or its JSON gateway is off (enable-grpc-gateway)".to_owned(),
        429 => return Failure::Refused(error(TableErrorKind::Busy, "it answers 429 Too Many Requests")),
        500.. => return Failure::Lost(format!("it answers with the HTTP status {status}")),
        _ => format!("it answers with the HTTP status {status}, and not as etcd does: check host, port, and whether it is etcd+https://"),
    };
    Failure::Refused(error(TableErrorKind::Configuration, what))
}

/// What became of a request that the HTTP client could not finish.
pub(crate) fn unfinished(e: &reqwest::Error) -> Failure {
    of_causes(e.is_connect(), e.is_builder(), &chain(e))
}

fn of_causes(connecting: bool, building: bool, causes: &[String]) -> Failure {
    let last = causes.last().map(|text| shorten(text)).unwrap_or_default();
    let has = |words: &str| causes.iter().any(|text| text.contains(words));
    if building {
        return Failure::Refused(error(
            TableErrorKind::Configuration,
            format!("no request can be made ({last})"),
        ));
    }
    // A certificate of ours that is not liked is answered with an alert, before anything that we sent is looked at.
    let alert =
        has("received fatal alert") && (connecting || has("Certificate") || has("UnknownCA"));
    if alert
        || (connecting
            && (has("certificate") || has("corrupt message") || has("InvalidContentType")))
    {
        let advice = "check etcd+https://, tls_ca, and tls_cert with tls_key where it asks for a certificate";
        return Failure::Elsewhere(error(
            TableErrorKind::Configuration,
            format!("it cannot be spoken to in TLS ({last}): {advice}"),
        ));
    }
    if connecting {
        // Who speaks no TLS hangs up; so does who goes down in that moment.
        let advice = if has("handshake eof") {
            ": does it take TLS? if not, use etcd://"
        } else {
            ""
        };
        return Failure::Elsewhere(error(
            TableErrorKind::Unavailable,
            format!("it cannot be reached ({last}){advice}"),
        ));
    }
    Failure::Lost(format!("{BROKE_OFF} ({last})"))
}

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

pub(crate) fn innermost(e: &dyn std::error::Error) -> String {
    chain(e)
        .pop()
        .map(|text| shorten(&text).to_owned())
        .unwrap_or_default()
}

fn shorten(text: &str) -> &str {
    let end = text.char_indices().nth(240).map_or(text.len(), |(i, _)| i);
    &text[..end]
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Kind, and what is done next: another member, another token, nothing; or unknown.
    fn of(code: u32, message: &str) -> (Option<TableErrorKind>, &'static str) {
        match refused(&Refused::new(code, message)) {
            Failure::Elsewhere(e) => (Some(e.kind()), "elsewhere"),
            Failure::Token(e) => (Some(e.kind()), "token"),
            Failure::Lost(_) => (None, "lost"),
            Failure::Refused(e) => (Some(e.kind()), "refused"),
        }
    }

    #[test]
    fn refusals_are_told_apart() {
        use TableErrorKind::*;
        for (code, message, kind, next) in [
            (
                16,
                "etcdserver: invalid auth token",
                Some(PermissionDenied),
                "token",
            ),
            (
                3,
                "etcdserver: revision of auth store is old",
                Some(PermissionDenied),
                "token",
            ),
            (
                3,
                "etcdserver: user name is empty",
                Some(PermissionDenied),
                "token",
            ),
            (
                3,
                "etcdserver: authentication failed, invalid user ID or password",
                Some(PermissionDenied),
                "refused",
            ),
            (
                9,
                "etcdserver: authentication is not enabled",
                Some(Configuration),
                "refused",
            ),
            (
                7,
                "etcdserver: permission denied",
                Some(PermissionDenied),
                "refused",
            ),
            (14, "etcdserver: no leader", Some(Unavailable), "elsewhere"),
            (
                14,
                "etcdserver: not capable",
                Some(Unavailable),
                "elsewhere",
            ),
            (
                14,
                "etcdserver: rpc not supported for learner",
                Some(Unavailable),
                "elsewhere",
            ),
            (
                8,
                "etcdserver: mvcc: database space exceeded",
                Some(Unavailable),
                "refused",
            ),
            (8, "etcdserver: too many requests", Some(Busy), "refused"),
            (
                3,
                "etcdserver: request is too large",
                Some(LimitExceeded),
                "refused",
            ),
            (
                8,
                "grpc: received message larger than max (2097180 vs. 2097152)",
                Some(LimitExceeded),
                "refused",
            ),
            (
                8,
                "grpc: received message larger than max (4778467 vs. 4194304)",
                None,
                "lost",
            ),
            (
                3,
                "etcdserver: too many operations in txn request",
                Some(LimitExceeded),
                "refused",
            ),
            (
                15,
                "etcdserver: corrupt cluster",
                Some(Unavailable),
                "refused",
            ),
            (3, "json: cannot unmarshal", Some(Configuration), "refused"),
            // The member had taken them: what became of them only the log knows.
            (14, "etcdserver: request timed out", None, "lost"),
            (
                14,
                "etcdserver: request timed out, possibly due to previous leader failure",
                None,
                "lost",
            ),
            (
                14,
                "etcdserver: request timed out, possibly due to connection lost",
                None,
                "lost",
            ),
            (14, "etcdserver: leader changed", None, "lost"),
            (14, "etcdserver: server stopped", None, "lost"),
            (14, "transport is closing", None, "lost"),
            (4, "context deadline exceeded", None, "lost"),
            (2, "raft proposal dropped", None, "lost"),
            (9, "etcdserver: not leader", None, "lost"),
            (0, "", None, "lost"),
        ] {
            assert_eq!(of(code, message), (kind, next), "{message}");
        }
    }

    #[test]
    fn an_old_gateway_is_told_apart_from_a_request_that_is_too_large() {
        let said = "grpc: received message larger than max (4778467 vs. 4194304)";
        let Failure::Lost(why) = refused(&Refused::new(8, said)) else {
            unreachable!("it was carried out")
        };
        for (writes, kind) in [
            (true, TableErrorKind::OutcomeUnknown),
            (false, TableErrorKind::Unavailable),
        ] {
            let e = unanswered(writes, &why);
            assert!(
                e.kind() == kind && e.message().contains("etcd 3.4.17 or newer is needed"),
                "{e}"
            );
        }
    }

    #[test]
    fn a_store_without_room_is_known_again() {
        let full = refused(&Refused::new(
            8,
            "etcdserver: mvcc: database space exceeded",
        ));
        assert!(matches!(full, Failure::Refused(e) if is_full(&e)));
        let other = refused(&Refused::new(15, "etcdserver: corrupt cluster"));
        assert!(matches!(other, Failure::Refused(e) if !is_full(&e)));
    }

    #[test]
    fn answers_of_strangers_are_no_outcome_of_a_write_unless_they_failed_themselves() {
        for status in [301, 400, 401, 404, 429] {
            assert!(
                matches!(stranger(status, ""), Failure::Refused(_)),
                "{status}"
            );
        }
        for status in [500, 502, 504] {
            assert!(matches!(stranger(status, ""), Failure::Lost(_)), "{status}");
        }
        let named = "CommonName of client sending a request against gateway will be ignored and not used as expected\n";
        assert!(
            matches!(stranger(400, named), Failure::Refused(e) if e.message().contains("tls_cert"))
        );
    }

    #[test]
    fn only_what_was_never_sent_is_certain() {
        let causes = |text: &str| vec!["error sending request".to_owned(), text.to_owned()];
        let kind = |failure| match failure {
            Failure::Elsewhere(e) => Some(e.kind()),
            _ => None,
        };
        let refused = "Connection refused (os error 111)";
        assert_eq!(
            kind(of_causes(true, false, &causes(refused))),
            Some(TableErrorKind::Unavailable)
        );
        assert_eq!(
            kind(of_causes(
                true,
                false,
                &causes("invalid peer certificate: UnknownIssuer")
            )),
            Some(TableErrorKind::Configuration)
        );
        assert_eq!(
            kind(of_causes(
                false,
                false,
                &causes("received fatal alert: CertificateRequired")
            )),
            Some(TableErrorKind::Configuration)
        );
        assert!(matches!(
            of_causes(
                false,
                false,
                &causes("connection closed before message completed")
            ),
            Failure::Lost(_)
        ));
        assert!(matches!(
            of_causes(false, true, &causes("bad")),
            Failure::Refused(_)
        ));
    }
}
