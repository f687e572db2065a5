//! ZooKeeper's errors by what the caller does next. Clauses T4, T5, T15.
//!
//! If the server answers a request with an error, nothing of it was done: a `multi` is executed as
//! a whole or not at all. Everything else (a broken connection, an ended session, a request above
//! the server's limit, which shows as a broken connection) leaves a write's outcome unknown.
//! ZooKeeper's errors contain no text of the client, and so no secret.

use membership_core::{Operation, TableError, TableErrorKind};
use zookeeper_client::Error;

use crate::STORE;

/// An error of this store. [`Inner::run`](crate::client::Inner::run) names the operation.
pub(crate) fn error(kind: TableErrorKind, message: impl Into<String>) -> TableError {
    TableError::new(kind, Operation::Connect, STORE, message)
}

/// The error of a request that did not succeed. For a read see [`TableError::of_a_read`].
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
            "znodes of a creator need a login, and the server must have digest enabled".to_owned(),
        ),
        Error::QuotaExceeded => (
            Kind::LimitExceeded,
            "the quota of a path is exceeded".to_owned(),
        ),
        Error::Throttled => (Kind::Busy, "the server is throttling".to_owned()),
        Error::NotReadOnly => (
            Kind::Unavailable,
            "the server has lost its ensemble and only serves reads".to_owned(),
        ),
        Error::Unimplemented => (
            Kind::Configuration,
            "the server does not know the request: ZooKeeper 3.6 or newer is needed".to_owned(),
        ),
        Error::NoHosts => (Kind::Unavailable, "no server could be reached".to_owned()),
        Error::BadArguments(_) => (
            Kind::InvalidRequest,
            format!("ZooKeeper does not accept the request: {e}"),
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
            format!("the answer cannot be used: {other}"),
        ),
    };
    error(kind, message).with_source(e)
}

#[cfg(test)]
mod tests {
    use super::*;
    use membership_core::NextStep;

    #[test]
    fn only_refusals_of_the_server_are_certain() {
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
