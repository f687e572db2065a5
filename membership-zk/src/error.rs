//! What ZooKeeper says, as what the caller does next. Clauses T4, T5, T15.
//!
//! An error that the server answers a request with means that nothing of it was done: a `multi` is carried out whole or not at all. Everything
//! else (a connection that broke, a session that ended, a request that was too large for the server, which shows as a broken connection) leaves
//! a write's outcome open. ZooKeeper's errors carry no text of the client, and so no secret.

use membership_core::{Operation, TableError, TableErrorKind};
use zookeeper_client::Error;

use crate::STORE;

/// An error during an operation of this table; the operation's name is put in by whoever answers the caller.
pub(crate) fn error(kind: TableErrorKind, message: impl Into<String>) -> TableError {
    TableError::new(kind, Operation::Connect, STORE, message)
}

/// What a request came to that was not answered with what it was for. What only reads has no open outcome; see
/// [`TableError::of_a_read`].
pub(crate) fn failed(e: Error) -> TableError {
    use TableErrorKind as Kind;
    let (kind, message) = match &e {
        Error::NoAuth => (
            Kind::PermissionDenied,
            "the access control list of a znode does not allow it".to_owned(),
        ),
        Error::AuthFailed => (Kind::PermissionDenied, "the login was refused".to_owned()),
        Error::InvalidAcl => (
            Kind::Configuration,
            "znodes of a creator need a login that the server knows: digest must be on".to_owned(),
        ),
        Error::QuotaExceeded => (
            Kind::LimitExceeded,
            "the quota of a path is exceeded".to_owned(),
        ),
        Error::Throttled => (Kind::Busy, "the server is throttling".to_owned()),
        Error::NotReadOnly => (
            Kind::Unavailable,
            "the server has lost its ensemble, and only reads".to_owned(),
        ),
        Error::Unimplemented => (
            Kind::Configuration,
            "the server does not know the request: ZooKeeper 3.6 or newer is needed".to_owned(),
        ),
        Error::NoHosts => (Kind::Unavailable, "no server could be reached".to_owned()),
        Error::BadArguments(_) => (
            Kind::InvalidRequest,
            format!("ZooKeeper does not take the request: {e}"),
        ),
        Error::NoNode
        | Error::BadVersion
        | Error::NodeExists
        | Error::NotEmpty
        | Error::NoChildrenForEphemerals => {
            (Kind::Busy, format!("the znodes changed meanwhile ({e})"))
        }
        Error::SessionExpired | Error::ClientClosed => (
            Kind::OutcomeUnknown,
            "the session ended before the answer".to_owned(),
        ),
        Error::ConnectionLoss => (
            Kind::OutcomeUnknown,
            "the connection broke before the answer".to_owned(),
        ),
        other => (
            Kind::OutcomeUnknown,
            format!("no answer that could be used: {other}"),
        ),
    };
    error(kind, message).with_source(e)
}

#[cfg(test)]
mod tests {
    use super::*;
    use membership_core::NextStep;

    #[test]
    fn only_what_the_server_refused_certainly_did_not_happen() {
        let of = |e| failed(e).next_step();
        for open in [
            Error::ConnectionLoss,
            Error::SessionExpired,
            Error::SessionMoved,
            Error::ClientClosed,
            Error::Timeout,
            Error::MarshallingError,
            Error::UnexpectedErrorCode(-1),
            Error::UnexpectedErrorCode(-7),
            Error::UnexpectedError("what is this".to_owned()),
        ] {
            assert_eq!(of(open.clone()), NextStep::FindOut, "{open}");
        }
        for retry in [
            Error::Throttled,
            Error::NotReadOnly,
            Error::BadVersion,
            Error::NoHosts,
        ] {
            assert_eq!(of(retry.clone()), NextStep::Retry, "{retry}");
        }
        for give_up in [
            Error::NoAuth,
            Error::AuthFailed,
            Error::InvalidAcl,
            Error::Unimplemented,
            Error::QuotaExceeded,
        ] {
            assert_eq!(of(give_up.clone()), NextStep::GiveUp, "{give_up}");
        }
    }
}
