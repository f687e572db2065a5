//! Cassandra's errors as errors of the contract.
//!
//! A lightweight transaction can end without an outcome in two ways. Either its coordinator says
//! that it does not know the outcome: then it has stopped, and the next serial read completes or
//! rules out the transaction. Or there is no answer: then a server may still work on it, and no
//! read is final.

use membership_core::{Operation, TableError, TableErrorKind};
use membership_provider::{causes, one_line};
use scylla::errors::{
    ConnectionError, ConnectionPoolError, ConnectionSetupRequestErrorKind, DbError, ExecutionError,
    MetadataError, NewSessionError, PrepareError, RequestAttemptError,
};
use scylla::statement::Consistency;

use crate::STORE;

/// An error of this store. The table's methods set the operation.
pub(crate) fn error(kind: TableErrorKind, message: impl Into<String>) -> TableError {
    TableError::new(kind, Operation::Connect, STORE, message)
}

/// The version row that the caller knows is gone.
pub(crate) fn gone() -> TableError {
    let why = "the version row that was known is gone";
    error(TableErrorKind::TableReplaced, why)
}

/// A commit that was sent may have happened, whatever error prevents reading its outcome. Only a
/// table that was replaced or is being deleted makes the outcome irrelevant. `sent` says why the
/// outcome is unknown.
pub(crate) fn still_unknown(sent: &str, e: TableError) -> TableError {
    use TableErrorKind::{BeingDeleted, OutcomeUnknown, TableReplaced, TableRolledBack};
    match e.kind() {
        OutcomeUnknown | TableReplaced | TableRolledBack | BeingDeleted => e,
        kind => {
            let message = format!(
                "{sent}, and its outcome could not be read: {} [{}]",
                e.message(),
                kind.as_str()
            );
            let unknown = error(OutcomeUnknown, message);
            match e.place() {
                Some(place) => unknown.at(place),
                None => unknown,
            }
            .with_source(e)
        }
    }
}

/// What is unknown about a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Doubt {
    /// Nothing: it did not happen.
    None,
    /// Whether it happened; but no server works on it any more.
    Settled,
    /// Whether it happened, or still will.
    Open,
}

/// A request that failed.
#[derive(Debug)]
pub(crate) struct Failed {
    pub(crate) error: TableError,
    pub(crate) doubt: Doubt,
    /// The session cannot be used any more.
    pub(crate) ends_session: bool,
    /// Other requests used the same partition, or the node was busy: it may succeed the next time.
    pub(crate) passes: bool,
}

impl Failed {
    /// It did not happen.
    pub(crate) fn certain(error: TableError) -> Self {
        Self {
            error,
            doubt: Doubt::None,
            ends_session: false,
            passes: false,
        }
    }

    pub(crate) fn unanswered(writes: bool, why: &str, endpoint: &str) -> Self {
        Self::doubtful(writes, Doubt::Open, why, endpoint)
    }

    fn doubtful(writes: bool, doubt: Doubt, why: &str, endpoint: &str) -> Self {
        let (kind, doubt) = if writes {
            (TableErrorKind::OutcomeUnknown, doubt)
        } else {
            (TableErrorKind::Unavailable, Doubt::None)
        };
        Self {
            error: error(kind, why).at(endpoint),
            doubt,
            ends_session: false,
            passes: false,
        }
    }
}

impl From<Failed> for TableError {
    fn from(failed: Failed) -> Self {
        failed.error
    }
}

/// The failure of a request in an open session.
pub(crate) fn failed(e: &ExecutionError, writes: bool, endpoint: &str) -> Failed {
    let certain = |kind, message: String| Failed::certain(error(kind, message).at(endpoint));
    match e {
        ExecutionError::ConnectionPoolError(pool)
        | ExecutionError::PrepareError(PrepareError::ConnectionPoolError(pool)) => Failed {
            ends_session: true,
            ..Failed::certain(pool_error(pool, endpoint))
        },
        ExecutionError::EmptyPlan => Failed {
            ends_session: true,
            ..certain(
                TableErrorKind::Unavailable,
                "no allowed node is known: is the data centre right?".to_owned(),
            )
        },
        // Only the text of the statement was sent.
        ExecutionError::PrepareError(PrepareError::AllAttemptsFailed { first_attempt }) => {
            let failed = attempt(first_attempt, false, endpoint);
            Failed {
                doubt: Doubt::None,
                ..failed
            }
        }
        ExecutionError::LastAttemptError(e) => attempt(e, writes, endpoint),
        ExecutionError::RequestTimeout(_) => {
            Failed::unanswered(writes, "no answer in time", endpoint)
        }
        ExecutionError::BadQuery(_) => {
            certain(TableErrorKind::InvalidRequest, one_line(&e.to_string()))
        }
        _ => Failed::unanswered(writes, &one_line(&e.to_string()), endpoint),
    }
}

fn attempt(e: &RequestAttemptError, writes: bool, endpoint: &str) -> Failed {
    match e {
        RequestAttemptError::DbError(e, text) => answer_error(e, text, writes, endpoint),
        RequestAttemptError::UnableToAllocStreamId => Failed::certain(
            error(
                TableErrorKind::Busy,
                "the connection has the maximum number of requests",
            )
            .at(endpoint),
        ),
        RequestAttemptError::SerializationError(_)
        | RequestAttemptError::CqlRequestSerialization(_) => Failed::certain(
            error(TableErrorKind::InvalidRequest, one_line(&e.to_string())).at(endpoint),
        ),
        RequestAttemptError::BrokenConnectionError(_) => {
            let failed = Failed::unanswered(
                writes,
                &format!("the connection broke ({})", one_line(&e.to_string())),
                endpoint,
            );
            Failed {
                ends_session: true,
                ..failed
            }
        }
        _ => Failed::unanswered(writes, &one_line(&e.to_string()), endpoint),
    }
}

/// The error answer of a server.
fn answer_error(e: &DbError, text: &str, writes: bool, endpoint: &str) -> Failed {
    use TableErrorKind::{Busy, Configuration, NotInitialized, PermissionDenied, Unavailable};
    /// The code of `CAS_WRITE_UNKNOWN`, for which the driver has no name.
    const CAS_WRITE_UNKNOWN: i32 = 0x1700;
    let text = one_line(text);
    let certain =
        |kind, what: &str| Failed::certain(error(kind, format!("{what} ({text})")).at(endpoint));
    // After a transaction was accepted, it is written to the replicas, and that step can fail too.
    let perhaps = |failed: Failed| Failed {
        doubt: if writes { Doubt::Settled } else { Doubt::None },
        ..failed
    };
    match e {
        DbError::Unavailable {
            consistency,
            required,
            alive,
        } => {
            let failed = certain(
                Unavailable,
                &format!("{alive} of {required} required replicas are up"),
            );
            // At this level no replica has accepted the transaction yet.
            if matches!(consistency, Consistency::Serial | Consistency::LocalSerial) {
                failed
            } else {
                perhaps(failed)
            }
        }
        // Statements are looked up before they are executed. The driver prepared it again, and it
        // was lost again: tables are being created.
        DbError::Unprepared { .. } => Failed {
            passes: true,
            ..certain(Busy, "the node lost a prepared statement")
        },
        DbError::IsBootstrapping => certain(Unavailable, "the node is still starting"),
        DbError::Overloaded | DbError::RateLimitReached { .. } => {
            perhaps(certain(Busy, "the node is overloaded"))
        }
        DbError::Unauthorized => certain(
            PermissionDenied,
            "the user has no permission for this: grant it what the README of membership-cassandra lists under Permissions",
        ),
        DbError::AuthenticationError => {
            certain(PermissionDenied, "the servers refuse this user or password")
        }
        DbError::Invalid | DbError::ConfigError if is_missing(text.as_str()) => {
            certain(NotInitialized, "keyspace or tables do not exist")
        }
        DbError::Invalid | DbError::ConfigError | DbError::SyntaxError | DbError::ProtocolError => {
            certain(
                Configuration,
                "the servers refuse the request: Cassandra 4.0 or newer, or ScyllaDB, is required",
            )
        }
        // A failed round of a transaction may have left its proposal with a few replicas.
        DbError::ReadTimeout { .. }
        | DbError::WriteTimeout { .. }
        | DbError::ReadFailure { .. }
        | DbError::WriteFailure { .. } => {
            let failed = Failed::doubtful(
                writes,
                Doubt::Settled,
                &format!("too few replicas answered in time ({text})"),
                endpoint,
            );
            Failed {
                passes: true,
                ..failed
            }
        }
        DbError::Other(CAS_WRITE_UNKNOWN) => {
            let failed = Failed::doubtful(
                writes,
                Doubt::Settled,
                &format!("other requests used the same partition ({text})"),
                endpoint,
            );
            Failed {
                passes: true,
                ..failed
            }
        }
        // A new table is announced before it can be used.
        _ => {
            let failed = Failed::unanswered(
                writes,
                &format!("the node had an internal error ({e}: {text})"),
                endpoint,
            );
            Failed {
                passes: text.contains("Unknown CF"),
                ..failed
            }
        }
    }
}

/// Whether keyspace or table do not exist. There is no error code for it, only these texts.
fn is_missing(text: &str) -> bool {
    let text = text.to_ascii_lowercase();
    text.contains("does not exist")
        || text.contains("unconfigured table")
        || text.contains("can't find a column family")
}

fn pool_error(e: &ConnectionPoolError, endpoint: &str) -> TableError {
    match e {
        ConnectionPoolError::Broken {
            last_connection_error,
        } => connection_error(last_connection_error, endpoint, false),
        other => error(TableErrorKind::Unavailable, one_line(&other.to_string())).at(endpoint),
    }
}

/// The failure of opening a session: nothing was sent.
pub(crate) fn not_connected(e: &NewSessionError, endpoint: &str, tls: bool) -> TableError {
    match e {
        NewSessionError::FailedToResolveAnyHostname(_) => error(
            TableErrorKind::Unavailable,
            "no host of this name was found",
        )
        .at(endpoint),
        NewSessionError::MetadataError(MetadataError::ConnectionPoolError(
            ConnectionPoolError::Broken {
                last_connection_error,
            },
        )) => connection_error(last_connection_error, endpoint, tls),
        other => error(TableErrorKind::Unavailable, one_line(&other.to_string())).at(endpoint),
    }
}

fn connection_error(e: &ConnectionError, endpoint: &str, tls: bool) -> TableError {
    use TableErrorKind::{Configuration, PermissionDenied, Unavailable};
    let text = one_line(&chain(e));
    let (kind, what) = match e {
        ConnectionError::ConnectionSetupRequestError(setup) => match setup.get_error() {
            ConnectionSetupRequestErrorKind::DbError(DbError::AuthenticationError, _) => {
                (PermissionDenied, "the servers refuse this user or password")
            }
            ConnectionSetupRequestErrorKind::MissingAuthentication => (
                PermissionDenied,
                "the servers require a password: put it into the URL, or set MEMBERSHIP_CASSANDRA_USERNAME and MEMBERSHIP_CASSANDRA_PASSWORD",
            ),
            ConnectionSetupRequestErrorKind::DbError(..) => {
                (Unavailable, "the server is not ready yet")
            }
            _ if tls => (Unavailable, "cannot be reached with TLS"),
            _ => (
                Unavailable,
                "this does not answer as Cassandra does; where clients must use TLS, add tls=true",
            ),
        },
        _ if text.contains("certificate") => (
            Configuration,
            "the server's certificate is refused: tls_ca names the file with the authority that signed it",
        ),
        _ if tls
            && (text.contains("corrupt message")
                || text.contains("InvalidContentType")
                || text.contains("eof")) =>
        {
            (
                Configuration,
                "the server does not use TLS: leave tls out, or turn it on in the server",
            )
        }
        ConnectionError::ConnectTimeout => (Unavailable, "the server does not answer in time"),
        _ => (Unavailable, "the server cannot be reached"),
    };
    error(kind, format!("{what} ({text})")).at(endpoint)
}

/// The texts of an error and its sources, without repetitions.
fn chain(e: &dyn std::error::Error) -> String {
    causes(e)
        .into_iter()
        .reduce(|all, text| match all.contains(&text) {
            true => all,
            false => format!("{all}: {text}"),
        })
        .unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use TableErrorKind::{
        Busy, Configuration, NotInitialized, OutcomeUnknown, PermissionDenied, Unavailable,
    };
    use scylla::errors::WriteType;

    fn of(e: DbError, text: &str, writes: bool) -> (TableErrorKind, Doubt) {
        let failed = failed(
            &ExecutionError::LastAttemptError(RequestAttemptError::DbError(e, text.to_owned())),
            writes,
            "h:9042",
        );
        assert!(
            failed.error.to_string().contains("h:9042"),
            "{}",
            failed.error
        );
        (failed.error.kind(), failed.doubt)
    }

    #[test]
    fn every_answer_has_a_kind() {
        let timeout = |write_type| DbError::WriteTimeout {
            consistency: Consistency::Serial,
            received: 1,
            required: 2,
            write_type,
        };
        let down = |consistency| DbError::Unavailable {
            consistency,
            required: 2,
            alive: 1,
        };
        for (e, text, written, read) in [
            (
                timeout(WriteType::Cas),
                "",
                (OutcomeUnknown, Doubt::Settled),
                (Unavailable, Doubt::None),
            ),
            (
                timeout(WriteType::Simple),
                "",
                (OutcomeUnknown, Doubt::Settled),
                (Unavailable, Doubt::None),
            ),
            (
                DbError::Other(0x1700),
                "",
                (OutcomeUnknown, Doubt::Settled),
                (Unavailable, Doubt::None),
            ),
            (
                DbError::ServerError,
                "",
                (OutcomeUnknown, Doubt::Open),
                (Unavailable, Doubt::None),
            ),
            (
                DbError::Overloaded,
                "",
                (Busy, Doubt::Settled),
                (Busy, Doubt::None),
            ),
            (
                down(Consistency::Serial),
                "",
                (Unavailable, Doubt::None),
                (Unavailable, Doubt::None),
            ),
            (
                down(Consistency::Quorum),
                "",
                (Unavailable, Doubt::Settled),
                (Unavailable, Doubt::None),
            ),
            (
                DbError::IsBootstrapping,
                "",
                (Unavailable, Doubt::None),
                (Unavailable, Doubt::None),
            ),
            (
                DbError::Unauthorized,
                "",
                (PermissionDenied, Doubt::None),
                (PermissionDenied, Doubt::None),
            ),
            (
                DbError::AuthenticationError,
                "",
                (PermissionDenied, Doubt::None),
                (PermissionDenied, Doubt::None),
            ),
            (
                DbError::Invalid,
                "table silos does not exist",
                (NotInitialized, Doubt::None),
                (NotInitialized, Doubt::None),
            ),
            (
                DbError::Invalid,
                "unconfigured table silos",
                (NotInitialized, Doubt::None),
                (NotInitialized, Doubt::None),
            ),
            (
                DbError::Invalid,
                "Undefined column name",
                (Configuration, Doubt::None),
                (Configuration, Doubt::None),
            ),
        ] {
            assert_eq!(
                (of(e.clone(), text, true), of(e.clone(), text, false)),
                (written, read),
                "{e}: {text}"
            );
        }
    }

    #[test]
    fn transient_errors_pass() {
        let passes = |e: DbError, text: &str| {
            failed(
                &ExecutionError::LastAttemptError(RequestAttemptError::DbError(e, text.to_owned())),
                false,
                "h:9042",
            )
            .passes
        };
        let slow = DbError::ReadTimeout {
            consistency: Consistency::Serial,
            received: 0,
            required: 1,
            data_present: false,
        };
        assert!(passes(slow, "") && passes(DbError::Other(0x1700), ""));
        assert!(passes(
            DbError::ServerError,
            "java.lang.IllegalArgumentException: Unknown CF f380e780-e5c7-11f1-98f3-71ab9105318d"
        ));
        assert!(
            !passes(DbError::ServerError, "java.lang.NullPointerException")
                && !passes(DbError::Unauthorized, "")
        );
    }

    #[test]
    fn requests_that_were_not_sent_certainly_did_not_happen() {
        let refused = ConnectionError::IoError(std::sync::Arc::new(std::io::Error::from(
            std::io::ErrorKind::ConnectionRefused,
        )));
        let pool = ConnectionPoolError::Broken {
            last_connection_error: refused,
        };
        let failed = failed(&ExecutionError::ConnectionPoolError(pool), true, "h:9042");
        assert_eq!(
            (failed.error.kind(), failed.doubt, failed.ends_session),
            (Unavailable, Doubt::None, true)
        );
    }

    #[test]
    fn a_commit_that_was_sent_is_never_called_certain() {
        use TableErrorKind::{BeingDeleted, OutcomeUnknown, TableReplaced, TableRolledBack};
        let kept = [OutcomeUnknown, TableReplaced, TableRolledBack, BeingDeleted];
        for kind in TableErrorKind::ALL {
            let told = still_unknown(
                "no answer within 5s",
                error(kind, "the second thing").at("h:9042"),
            );
            assert_eq!(
                told.kind(),
                if kept.contains(&kind) {
                    kind
                } else {
                    OutcomeUnknown
                }
            );
            assert!(
                told.message().contains("the second thing") && told.place() == Some("h:9042"),
                "{told}"
            );
            assert!(
                kept.contains(&kind) || told.message().contains("no answer within 5s"),
                "{told}"
            );
        }
    }
}
